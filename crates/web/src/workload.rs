//! The workload `web`: its needs, metrics and images.

use std::time::Duration;

use anyhow::Result;

use bigiron_model::metric::MetricDef;
use bigiron_model::workload::Options;
use bigiron_service::apache::Mpm;
use bigiron_service::httpd::Kind;
use bigiron_workload::network::modules;
use bigiron_workload::silence::{BESIDE_LOAD, EMULATED_SECOND};
use bigiron_workload::{
    Configured, Context, ImageContext, Images, Needs, NightlyRow, OptionDef, Running, RunsOn, Workload, check_network,
};

use crate::options::OPTIONS;
use crate::settings::{Job, Settings, WebServer};
use crate::trial::Trial;
use crate::{images, metrics};

const MIB: u64 = 1 << 20;
/// Bytes of a line in an access log, and of free space for files that a server makes.
const LOG_LINE: u64 = 128;
const ROOM: u64 = 32 * MIB;
/// A record of a POST, of which there is one in twenty requests.
const POST: u64 = 100;
/// And for a copy of the executable that makes dynamic pages.
const PROGRAM: u64 = 64 * MIB;

/// CPU time of a request at both ends at most: that of a page made by a program.
const REQUEST: Duration = Duration::from_millis(10);
const EMULATED_REQUEST: Duration = Duration::from_millis(100);

/// The workload `web`.
pub struct Web;

impl Workload for Web {
    fn name(&self) -> &'static str {
        "web"
    }

    fn summary(&self) -> &'static str {
        "Web clients: static and dynamic pages, TLS and idle connections on nginx, Apache or a server of yours"
    }

    fn options(&self) -> &'static [OptionDef] {
        OPTIONS
    }

    fn nightly(&self) -> &'static [NightlyRow] {
        const QUICK: &[(&str, &str)] = &[("length", "1000"), ("warmup", "200")];
        const WEB99: &[(&str, &str)] =
            &[("job", "web99"), ("directories", "5"), ("line-rate", "off"), ("keep-alive", "page")];
        const ROWS: &[NightlyRow] = &[
            NightlyRow::PLAIN.quick(QUICK),
            NightlyRow { label: "web99", options: WEB99, ..NightlyRow::PLAIN }.quick(QUICK),
        ];
        ROWS
    }

    fn parse(&self, options: &Options) -> Result<Box<dyn Configured>, String> {
        Ok(Box::new(Settings::parse(options)?))
    }
}

impl Configured for Settings {
    fn check_arm(&self, on: RunsOn) -> Result<(), String> {
        if let WebServer::Url(_) = self.server { check_network("web.url", on) } else { Ok(()) }
    }

    fn needs(&self) -> Needs {
        let connections = u64::from(self.connections);
        let server = match &self.server {
            WebServer::Url(_) => 0,
            WebServer::Private { kind: Kind::Nginx { .. }, .. } => 32 * MIB,
            WebServer::Private { kind: Kind::Apache { mpm }, workers } => {
                let workers = u64::from(workers.unwrap_or_else(|| mpm.workers_for(self.connections)));
                // A process, or the stack and the buffers of a thread.
                16 * MIB + workers * if *mpm == Mpm::Prefork { 2 * MIB } else { MIB / 4 }
            }
        };
        // The driver's part of a connection and the sockets' buffers at both ends.
        let each = match self.job {
            // Little of an idle connection's buffers is in use.
            Job::C10k => MIB / 32,
            Job::Handshakes | Job::Bulk => MIB / 8,
            Job::StaticPage | Job::Web99 | Job::CgiDb => MIB / 16,
        };
        let memory_bytes = 32 * MIB + self.document_bytes() + server + connections * each;
        let is_private = self.server.recipe().is_some();
        Needs { storage_bytes: is_private.then_some(self.room()), memory_bytes, modules: modules(self.over_devices) }
    }

    fn encrypts(&self) -> bool {
        self.is_encrypted()
    }

    fn images(&self, cx: &ImageContext<'_>) -> Result<Images> {
        images::of(self, cx)
    }

    fn metrics(&self) -> Vec<MetricDef> {
        metrics::of(self)
    }

    fn silence(&self) -> Duration {
        BESIDE_LOAD + self.longest(REQUEST, 1)
    }

    fn guest_silence(&self) -> Duration {
        self.longest(EMULATED_REQUEST, EMULATED_SECOND)
    }

    fn prepare(&self, cx: &Context<'_>) -> Result<Box<dyn Running + '_>> {
        Ok(Box::new(Trial::prepare(cx, self)?))
    }
}

impl Settings {
    /// Space for the documents and the access log.
    fn room(&self) -> u64 {
        let requests = self.requests();
        let log = if self.access_log { requests * LOG_LINE } else { 0 };
        let posts = if self.dynamic { requests / 20 * POST } else { 0 };
        // The documents of the page are part of the room, and so are the lines of a short run.
        ROOM + (log + posts).saturating_sub(ROOM / 2)
            + self.document_bytes()
            + if self.gateway().is_some() { PROGRAM } else { 0 }
    }

    /// Bytes of the files of `web99`, each rounded up to whole blocks.
    fn document_bytes(&self) -> u64 {
        let directories = if self.job == Job::Web99 { self.directories as u64 } else { 0 };
        directories * (5 * MIB + MIB / 4)
    }
}
