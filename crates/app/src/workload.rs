//! The workload `app`: its needs, metrics and images.

use std::time::Duration;

use anyhow::{Context as _, Result};

use bigiron_archive::Store;
use bigiron_model::metric::MetricDef;
use bigiron_model::suggest;
use bigiron_model::workload::Options;
use bigiron_service::tomcat;
use bigiron_sql::database::Database;
use bigiron_sql::engine::PrivateDatabase;
use bigiron_workload::silence::{BESIDE_LOAD, EMULATED_SECOND};
use bigiron_workload::{
    Configured, Context, ImageContext, Images, Needs, NightlyRow, OptionDef, Running, RunsOn, Workload, check_network,
    limits,
};

use crate::database::load;
use crate::options::{NAME, OPTIONS, TRANSPORT, VIRTUAL};
use crate::remote_tier::RemoteTier;
use crate::settings::{Settings, TierHost};
use crate::tier::TOMCAT;
use crate::tiers::Tiers;
use crate::trial::Trial;
use crate::{conditions, metrics};

const MIB: u64 = 1 << 20;
/// Memory of a JVM besides its heap, of the database, and of each of its processes.
const BESIDE_HEAP: u64 = 192 * MIB;
const DATABASE: u64 = 192 * MIB;
const EACH: u64 = 3 * MIB;
/// Tomcat's configuration and log.
const TOMCATS_FILES: u64 = 16 * MIB;
/// Threads and processes besides Tomcat's and the pool's.
const BESIDE: usize = 64;

/// CPU time of a request in all tiers at most. Emulated boots of 1,400 requests took 130 s, with the start of the servers.
const REQUEST: Duration = Duration::from_millis(10);
const EMULATED_REQUEST: Duration = Duration::from_millis(100);

/// The workload `app`.
pub struct App;

impl Workload for App {
    fn name(&self) -> &'static str {
        NAME
    }

    fn summary(&self) -> &'static str {
        "A business behind an application server: HTTP, servlets in Tomcat, a connection pool, and PostgreSQL or MariaDB"
    }

    fn options(&self) -> &'static [OptionDef] {
        OPTIONS
    }

    fn check_dotted(&self, name: &str) -> Result<(), String> {
        match name {
            "virtual-threads" | "threads-kind" => return Err(VIRTUAL.to_owned()),
            "transport" => return Err(TRANSPORT.to_owned()),
            _ => {}
        }
        let names = OPTIONS.iter().map(|option| option.name);
        Err(suggest::nearest(name, names.clone()).map_or_else(
            || format!("`{NAME}` has {}", suggest::list(names)),
            |near| format!("did you mean `{NAME}.{near}`?"),
        ))
    }

    fn nightly(&self) -> &'static [NightlyRow] {
        const ROWS: &[NightlyRow] = &[NightlyRow::PLAIN.quick(&[("length", "400"), ("warmup", "400")])];
        ROWS
    }

    fn parse(&self, options: &Options) -> Result<Box<dyn Configured>, String> {
        Ok(Box::new(Settings::parse(options)?))
    }
}

impl Configured for Settings {
    fn check_arm(&self, on: RunsOn) -> Result<(), String> {
        for (option, host) in [("app.tomcat-on", &self.tomcat_on), ("app.database-on", &self.database_on)] {
            if *host != TierHost::Here {
                check_network(option, on)?;
            }
        }
        Ok(())
    }

    fn needs(&self) -> Needs {
        let servers = &self.servers;
        let here = |host: &TierHost, bytes: u64| if *host == TierHost::Here { bytes } else { 0 };
        let storage_bytes = if self.database_on == TierHost::Here { servers.room() } else { TOMCATS_FILES };
        let tomcat = servers.heap_bytes + BESIDE_HEAP + u64::from(servers.threads) * MIB / 8;
        let database = DATABASE + servers.data_bytes() + u64::from(servers.pool) * EACH;
        let memory_bytes =
            here(&self.tomcat_on, tomcat) + here(&self.database_on, database) + u64::from(self.clients) * MIB / 8;
        Needs { storage_bytes: Some(storage_bytes), memory_bytes, modules: Vec::new() }
    }

    fn images(&self, cx: &ImageContext<'_>) -> Result<Images> {
        // Before a study begins, and before anything is downloaded. A trial that cannot begin stops its study and blames nobody.
        let is_planned = cx.foundation.contains_key(TOMCAT.hash);
        let mut met = Vec::new();
        for (host, option, tomcat) in
            [(&self.tomcat_on, "app.tomcat-on", true), (&self.database_on, "app.database-on", false)]
        {
            if let Some(name) = host.machine().filter(|_| !is_planned) {
                met.push((RemoteTier::meet(name, option)?, option, tomcat));
            }
        }
        let (store, mut what) = (Store::open()?, String::new());
        let mut fill = |database: &mut dyn Database| {
            load(database, self.servers.dealers)?;
            conditions::alone(database)
        };
        let contents = self.servers.contents(&mut what);
        let mut all = PrivateDatabase::images_with(&self.servers.engine(), cx, contents, &mut fill)?;
        let root = TOMCAT.find(&store, &tomcat::RECIPE, tomcat::SERIES, cx, &mut all)?;
        let java = tomcat::java_version(&root.about.packages);
        all.foundation.insert(TOMCAT.version.to_owned(), format!("{} on Java {java}", root.about.version));
        for (machine, option, tomcat) in met {
            machine.fetch(option, &self.servers, &all.foundation, tomcat)?;
        }
        if cx.filesystem.is_some() {
            all.images.push(TOMCAT.image(&store, &tomcat::RECIPE, &root, cx)?);
        }
        Ok(all)
    }

    fn metrics(&self) -> Vec<MetricDef> {
        metrics::of()
    }

    fn silence(&self) -> Duration {
        BESIDE_LOAD + self.longest(REQUEST, 1)
    }

    fn guest_silence(&self) -> Duration {
        BESIDE_LOAD + self.longest(EMULATED_REQUEST, EMULATED_SECOND)
    }

    fn prepare(&self, cx: &Context<'_>) -> Result<Box<dyn Running + '_>> {
        let here = |host: &TierHost, processes: u32| if *host == TierHost::Here { processes as usize } else { 0 };
        let processes = here(&self.tomcat_on, self.servers.threads) + here(&self.database_on, self.servers.pool);
        limits::check(processes + BESIDE)?;
        limits::allow_files(self.load(None).files)
            .context("The connections of `app.clients` and `app.pool` count as open files")?;
        Ok(Box::new(Trial { settings: self, tiers: Tiers::open(cx, self)? }))
    }
}
