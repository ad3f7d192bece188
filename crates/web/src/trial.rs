//! A trial: its run, what is read around the window, and its facts.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};

use bigiron_model::workload::Window;
use bigiron_probe::counters::span;
use bigiron_probe::symbols;
use bigiron_service::guest_tree::TREE;
use bigiron_service::httpd::{Gateway, Kind};
use bigiron_service::kernel_cpu_ns;
use bigiron_sys::load::files::file_system;
use bigiron_workload::footprint::{Footprint, of_kernel};
use bigiron_workload::run_control::{RunLength, RunMoment};
use bigiron_workload::units::print_duration;
use bigiron_workload::{Context, EndedBadly, Progress, Running, WorkloadResult, WrongData};

use crate::driver::{self, Drive, DriveResult, Work};
use crate::encryption;
use crate::metrics::{self, OtherCpu};
use crate::server::TrialServer;
use crate::settings::{Job, KeepAlive, Settings, WebServer};
use crate::web99::Mix;

/// A trial with its server. Dropping it ends a private one.
pub struct Trial<'a> {
    settings: &'a Settings,
    server: TrialServer,
}

/// What was seen from outside the driver.
struct Seen {
    other: OtherCpu,
    /// Growth of the whole machine's memory, except the page cache, from the first connection until the window closed.
    memory_bytes: u64,
    /// Growth of the server's and the kernel's memory until the idle connections were there.
    idle: [u64; 2],
    /// The facts of the devices between server and driver.
    network: Vec<(String, String)>,
}

impl<'a> Trial<'a> {
    /// Starts the server.
    ///
    /// # Errors
    /// As [`TrialServer::open`].
    pub fn prepare(cx: &Context<'_>, settings: &'a Settings) -> Result<Self> {
        Ok(Self { settings, server: TrialServer::open(cx, settings)? })
    }

    #[cfg(test)]
    pub(crate) fn server(&mut self) -> &mut TrialServer {
        &mut self.server
    }

    fn drive(&self, cx: &Context<'_>) -> Result<(DriveResult, Seen)> {
        let server = &self.server;
        let memory = Footprint::now()?;
        let has_idle = self.settings.job == Job::C10k;
        let without = if has_idle { [server.memory_bytes(), of_kernel()?] } else { [0; 2] };
        let mut with = Ok(without);
        let mut grown = Ok(Vec::new());
        let read = || (server.cpu_ns(), kernel_cpu_ns());
        let (mut before, mut after) = ((None, 0), (None, 0));
        let mut traffic = Ok(Default::default());
        let mut watch = |moment: RunMoment| match moment {
            RunMoment::Opened => {
                traffic = server.wiring.traffic();
                before = read();
                span::before();
            }
            RunMoment::Closed => {
                after = read();
                span::after();
                grown = memory.grown();
            }
            RunMoment::Connecting if has_idle => with = of_kernel().map(|kernel| [server.memory_bytes(), kernel]),
            RunMoment::Connecting | RunMoment::Sample | RunMoment::Halfway => {}
        };
        let driven = driver::run(Drive {
            load: &self.settings.load(),
            work: self.work(),
            address: server.address,
            encryptor: server.encryptor.as_deref(),
            host: &server.host,
            wiring: &server.wiring,
            documents: &server.documents,
            threads: self.settings.threads_on(cx.cpus),
            seed: cx.seed,
            watch: &mut watch,
        })?;
        let used = |(before, after): (u64, u64)| after.saturating_sub(before);
        let other = OtherCpu { server: before.0.zip(after.0).map(used), kernel: used((before.1, after.1)) };
        let with = with?;
        let idle = [0, 1].map(|n| with[n].saturating_sub(without[n]));
        let network = server.wiring.facts(traffic?)?;
        Ok((driven, Seen { other, memory_bytes: grown?.iter().sum(), idle, network }))
    }

    fn work(&self) -> Work<'_> {
        match self.settings.job {
            Job::Web99 => Work::Drawn(Box::new(Mix::new(self.settings.directories, self.settings.dynamic))),
            Job::StaticPage | Job::C10k | Job::CgiDb | Job::Handshakes | Job::Bulk => Work::Cycle,
        }
    }

    fn facts(&self, cx: &Context<'_>, driven: &DriveResult, seen: &Seen) -> BTreeMap<String, String> {
        let Settings { connections, keep_alive, pipeline, sendfile, access_log, .. } = *self.settings;
        let mut facts = BTreeMap::from_iter(seen.network.iter().cloned());
        let mut put = |name: &str, value: String| facts.insert(name.to_owned(), value);
        let switch = |on: bool| if on { "on" } else { "off" }.to_owned();
        if let WebServer::Private { .. } = self.settings.server {
            put("server-version", self.server.version.clone());
        }
        put("documents", self.server.documents.count().to_string());
        put("document-bytes", self.server.documents.bytes().to_string());
        put("connections", connections.to_string());
        if self.settings.job == Job::C10k {
            put("connections-idle", format!("{}, all held", connections - self.settings.driven()));
        }
        put("threads", self.settings.threads_on(cx.cpus).to_string());
        let is_existing = matches!(self.settings.server, WebServer::Url(_));
        let kept = match keep_alive {
            KeepAlive::Yes if is_existing => "until the server ends them",
            KeepAlive::Yes => "for the whole run",
            KeepAlive::Page => "for a page",
            KeepAlive::No => "for one request",
        };
        put("connections-kept", kept.to_owned());
        put("pipeline", pipeline.to_string());
        let length = |length| match length {
            RunLength::Operations(n) => format!("{n} requests"),
            RunLength::Time(time) => print_duration(time),
        };
        put("warmup", length(self.settings.warm_up));
        put("length", length(self.settings.length));
        put("requests-checked", driven.tally.requests.to_string());
        put("errors", "0".to_owned());
        if let Some(rate) = self.settings.line_rate {
            put("line-rate", format!("{rate} bit/s"));
            put("connections-conforming", format!("{} of {}", driven.conforming, self.settings.driven()));
        }
        if let Some(rate) = self.settings.rate {
            put("rate", format!("{rate} requests/s"));
            put("backlog", driven.backlog.to_string());
            put("longest-queue", driven.longest_queue.to_string());
        }
        if let Some(version) = self.server.tls_version {
            put("tls-version", version.to_owned());
        }
        // A user's server may close connections after a number of requests.
        if keep_alive != KeepAlive::Yes || is_existing {
            put("connections-made", driven.tally.connect.count().to_string());
        }
        let tail = |q| driven.tally.first_byte.quantile(q).unwrap_or(0) as f64 / 1e6;
        put("first-byte", format!("median {:.3} ms, 99th percentile {:.3} ms", tail(0.5), tail(0.99)));
        match &self.settings.server {
            WebServer::Private { kind: Kind::Nginx { reuseport, .. }, .. } => put("reuseport", switch(*reuseport)),
            WebServer::Private { kind: Kind::Apache { mpm }, .. } => put("mpm", mpm.name().to_owned()),
            WebServer::Url(_) => return facts,
        };
        put("workers", self.server.workers().to_string());
        // Encrypted, documents are sent from the server's memory.
        if !self.settings.is_encrypted() {
            put("sendfile", switch(sendfile));
        }
        put("access-log", switch(access_log));
        if self.settings.job == Job::CgiDb {
            let gateway = if self.settings.gateway == Gateway::Cgi { "CGI" } else { "FastCGI" };
            put("gateway", gateway.to_owned());
            put("visits-counted", driven.tally.all.to_string());
        }
        if self.settings.dynamic {
            put("pages", driven.tally.pages.to_string());
            put("posts-recorded", driven.tally.pages.posts.count.to_string());
        }
        if self.settings.is_encrypted() {
            put("tls-cipher", encryption::CIPHER.to_owned());
        }
        put("file-system", file_system(&cx.dir));
        // Only in a guest, where nothing else grows.
        if cx.images.contains_key(TREE) {
            put("memory-per-connection-bytes", (seen.memory_bytes / u64::from(connections)).to_string());
        }
        if let Some(server) = seen.other.server {
            let driver = driven.cpu.total.as_nanos() as f64;
            let all = driver + (server + seen.other.kernel) as f64;
            put("driver-share", format!("{:.1} % of all CPU time", 100.0 * driver / all.max(1.0)));
        }
        facts
    }
}

impl Running for Trial<'_> {
    fn run(&mut self, cx: &Context<'_>) -> Result<WorkloadResult> {
        (cx.progress)(Progress { step: "run", done: 0, of: 1 });
        let driven = self.drive(cx);
        span::cut();
        // While the server is still visible.
        let programs = symbols::running();
        // The connection reports only that it broke, and the processes of a server that lost its first one go on; the server may report why.
        let broke = driven.is_err();
        let is_wrong = driven.as_ref().is_err_and(|error| error.is::<WrongData>());
        let (driven, seen) = match (driven, self.server.complaint(broke)) {
            (Ok(_), Some(complaint)) => return Err(complaint.into()),
            (Err(error), Some(complaint)) if !is_wrong => return Err(error.context(complaint)),
            (driven, _) => driven?,
        };
        self.server.check(&driven.tally)?;
        Ok(WorkloadResult {
            values: metrics::values(self.settings, &driven, seen.other, seen.idle)?,
            facts: self.facts(cx, &driven, &seen),
            windows: vec![Window::of(metrics::primary(self.settings), driven.tally.requests, driven.window_ns)],
            programs,
        })
    }

    /// Every response was compared when it arrived.
    fn verify(self: Box<Self>, _: &Context<'_>) -> Result<()> {
        self.server.close().context(EndedBadly)
    }
}
