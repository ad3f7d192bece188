//! The parsed options of `web`.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use bigiron_model::workload::Options;
use bigiron_service::apache::{Mpm, THREADS, shared};
use bigiron_service::httpd::{Gateway, Kind, TlsVersion};
use bigiron_workload::keys::form::{Word, words_of};
use bigiron_workload::network::over_devices;
use bigiron_workload::run_control::RunLength;
use bigiron_workload::{ByClock, OptionReader};

use crate::driver::Load;
use crate::options::OPTIONS;
use crate::url::Url;
use crate::web99;

const CONNECTIONS: RangeInclusive<u32> = 1..=10_000;
const PIPELINE: RangeInclusive<u32> = 1..=64;
const WORKERS: RangeInclusive<u32> = 1..=10_000;
/// Bits per second of a connection in `web99`.
const LINE_RATE: f64 = 400_000.0;
/// A connection of these has a worker of its own, and each is a process or a thread of the server.
const MOST_PREFORKED: u32 = 1_000;
/// Mean size of a document of `web99`, rounded up (SPECweb99: 14.7 KB).
const MEAN_BYTES: u32 = 16_000;
/// Files that a process opens besides its connections.
const FILES: u64 = 256;
/// Ramp and window on the exact clock, in requests, and on the wall clock. A handshake or a page from a database takes as long as ten requests,
/// a large document longer.
const REQUESTS: (u64, u64) = (500, 3_000);
const HANDSHAKES: (u64, u64) = (50, 300);
const TRANSFERS: (u64, u64) = (10, 60);
const TIMES: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(10));
const A_LENGTH: &str = "a number of requests such as `3000`, a time such as `30s`, or `auto`";

/// The server under test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebServer {
    Private {
        kind: Kind,
        /// `None`: nginx: one per CPU; Apache: enough for all connections.
        workers: Option<u32>,
    },
    Url(Url),
}

/// What is requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Job {
    #[default]
    StaticPage,
    /// SPECweb99's files and pages.
    Web99,
    /// A small document on a few busy connections beside thousands of idle ones.
    C10k,
    /// A page that reads and writes a database.
    CgiDb,
    /// With TLS: a small document on a new connection each time.
    Handshakes,
    /// With TLS: a large document on kept connections.
    Bulk,
}

impl Job {
    /// Whether a private server encrypts.
    pub fn is_encrypted(self) -> bool {
        matches!(self, Self::Handshakes | Self::Bulk)
    }

    /// Ramp and window on the exact clock.
    fn lengths(self) -> (RunLength, RunLength) {
        let (ramp, window) = match self {
            Self::StaticPage | Self::Web99 | Self::C10k => REQUESTS,
            Self::Handshakes | Self::CgiDb => HANDSHAKES,
            Self::Bulk => TRANSFERS,
        };
        (RunLength::Operations(ramp), RunLength::Operations(window))
    }
}

/// How long a connection is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeepAlive {
    /// For the whole run.
    #[default]
    Yes,
    /// For all documents of a page.
    Page,
    /// For one request.
    No,
}

/// The word of an option that is switched on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Switch(bool);

words_of!(KeepAlive: "yes" => Yes, "page" => Page, "no" => No);

impl Word for Switch {
    const ALL: &'static [(&'static str, Self)] = &[("yes", Self(true)), ("no", Self(false))];
}

/// The settings of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub server: WebServer,
    /// The series of a private server's versions.
    pub series: String,
    pub job: Job,
    /// Of `web99`.
    pub directories: usize,
    /// Whether a part of `web99` is pages that programs make.
    pub dynamic: bool,
    /// Bits per second to which each connection is limited.
    pub line_rate: Option<f64>,
    pub connections: u32,
    /// Connections of `c10k` that are not idle.
    pub busy: u32,
    /// `None`: one per CPU.
    pub threads: Option<u32>,
    pub keep_alive: KeepAlive,
    pub pipeline: u32,
    /// Whether server and driver are behind network devices.
    pub over_devices: bool,
    /// Requests per second of an open loop.
    pub rate: Option<f64>,
    pub sendfile: bool,
    pub access_log: bool,
    /// `None`: 1.3, or what an existing server takes.
    pub tls_version: Option<TlsVersion>,
    /// File with the authorities that are trusted; `None`: the system's.
    pub authorities: Option<PathBuf>,
    /// Of `cgi-db`.
    pub gateway: Gateway,
    pub warm_up: RunLength,
    pub length: RunLength,
}

impl Settings {
    /// Parses the options.
    ///
    /// # Errors
    /// The invalid option and its valid values.
    pub fn parse(options: &Options) -> Result<ByClock<Self>, String> {
        let read = OptionReader { workload: "web", definitions: OPTIONS, options };
        let auto = |name: &str, range: &RangeInclusive<u32>| match read.text(name) {
            "auto" => Ok(None),
            _ => number(&read, name, range).map(Some),
        };
        let threads = auto("threads", &(1..=256))?;
        let workers = auto("workers", &WORKERS)?;
        let server = server(&read, workers)?;
        let job = match (read.text("job"), read.text("tls-load")) {
            ("tls", "bulk") => Job::Bulk,
            ("tls", _) => Job::Handshakes,
            ("web99", _) => Job::Web99,
            ("c10k", _) => Job::C10k,
            ("cgi-db", _) => Job::CgiDb,
            _ => Job::StaticPage,
        };
        let usual = if job == Job::C10k { *CONNECTIONS.end() } else { 16 };
        let connections = auto("connections", &CONNECTIONS)?.unwrap_or(usual);
        let is_on = |name: &str| read.word(name).unwrap_or(Switch(true)).0;
        let rate = match read.text("rate") {
            "off" => None,
            text => Some(text.parse().ok().filter(|rate| *rate > 0.0 && *rate <= 1e7).ok_or_else(|| {
                read.wrong("rate", "`off`, or requests per second, more than 0 and at most 10000000")
            })?),
        };
        let directories = auto("directories", &(1..=10_000))?;
        let line_rate = match read.text("line-rate") {
            "auto" => (job == Job::Web99).then_some(LINE_RATE),
            "off" => None,
            text => Some(text.parse().ok().filter(|rate| *rate >= 1000.0 && *rate <= 1e12).ok_or_else(|| {
                read.wrong("line-rate", "bits per second from 1000 to 1000000000000, `off`, or `auto`")
            })?),
        };
        let length = |name: &str| RunLength::parse(read.text(name)).ok_or_else(|| read.wrong(name, A_LENGTH));
        let (warm_up, measured) = (length("warmup")?, length("length")?);
        if let Some(RunLength::Operations(0) | RunLength::Time(Duration::ZERO)) = measured {
            return Err(read.wrong("length", "1 request or more, or a time"));
        }
        let authorities = Some(read.text("authorities")).filter(|file| !file.is_empty()).map(PathBuf::from);
        let lengths = |(ramp, window): (RunLength, RunLength)| (warm_up.unwrap_or(ramp), measured.unwrap_or(window));
        let (ramp, window) = lengths(job.lengths());
        let other = Self {
            series: series(&read, &server)?,
            server,
            job,
            directories: directories.map_or_else(|| web99::directories(connections), |n| n as usize),
            dynamic: job == Job::Web99 && is_on("dynamic"),
            line_rate,
            connections,
            busy: number(&read, "busy", &CONNECTIONS)?,
            threads,
            keep_alive: match job {
                Job::Handshakes => KeepAlive::No,
                _ => read.word("keep-alive").unwrap_or_default(),
            },
            pipeline: number(&read, "pipeline", &PIPELINE)?,
            over_devices: over_devices(options),
            rate,
            sendfile: is_on("sendfile"),
            access_log: is_on("access-log"),
            tls_version: [TlsVersion::V12, TlsVersion::V13].into_iter().find(|v| v.name() == read.text("tls-version")),
            authorities,
            gateway: if read.text("gateway") == "cgi" { Gateway::Cgi } else { Gateway::FastCgi },
            warm_up: ramp,
            length: window,
        };
        other.check_effects(&read)?;
        other.check_workers(&read)?;
        let (warm_up, length) = lengths((RunLength::Time(TIMES.0), RunLength::Time(TIMES.1)));
        Ok(ByClock { wall: Self { warm_up, length, ..other.clone() }, other })
    }

    /// How the server runs the programs of dynamic pages.
    pub fn gateway(&self) -> Option<Gateway> {
        match self.job {
            Job::CgiDb => Some(self.gateway),
            Job::Web99 if self.dynamic => Some(Gateway::Both),
            _ => None,
        }
    }

    /// Whether connections are encrypted.
    pub fn is_encrypted(&self) -> bool {
        match &self.server {
            WebServer::Private { .. } => self.job.is_encrypted(),
            WebServer::Url(url) => url.is_secure,
        }
    }

    /// Refuses options that would have no effect.
    fn check_effects(&self, read: &OptionReader<'_>) -> Result<(), String> {
        let nginx = matches!(self.server, WebServer::Private { kind: Kind::Nginx { .. }, .. });
        let private = matches!(self.server, WebServer::Private { .. });
        let is_url = matches!(self.server, WebServer::Url(_));
        let encrypted = self.is_encrypted();
        for (name, has_effect, with) in [
            ("version", private, "server"),
            ("job", private, "server"),
            ("directories", self.job == Job::Web99, "job"),
            ("dynamic", self.job == Job::Web99, "job"),
            ("network", private, "server"),
            ("workers", private, "server"),
            ("sendfile", private, "server"),
            ("sendfile", self.job != Job::CgiDb && !self.job.is_encrypted(), "job"),
            ("gateway", self.job == Job::CgiDb, "job"),
            ("access-log", private, "server"),
            ("mpm", private && !nginx, "server"),
            ("reuseport", nginx, "server"),
            ("tls-load", self.job.is_encrypted(), "job"),
            ("tls-version", encrypted, if is_url { "url" } else { "job" }),
            ("authorities", encrypted && is_url, if is_url { "url" } else { "server" }),
            ("keep-alive", !self.job.is_encrypted() && self.job != Job::C10k, "job"),
            ("busy", self.job == Job::C10k, "job"),
            ("pipeline", self.job != Job::Handshakes, "tls-load"),
            ("pipeline", self.keep_alive != KeepAlive::No, "keep-alive"),
        ] {
            if !has_effect {
                read.has_no_effect(name, with)?;
            }
        }
        if self.rate.is_some() && self.pipeline > 1 {
            return Err("`web.pipeline` has no effect with `web.rate`, which sets when each request is sent; omit one"
                .to_owned());
        }
        if self.line_rate.is_some() && (self.rate.is_some() || self.pipeline > 1) {
            let other = if self.rate.is_some() { "rate" } else { "pipeline" };
            return Err(format!(
                "`web.{other}` has no effect with `web.line-rate`, which sets when a connection sends its next request; omit it, or set \
                 `web.line-rate` to `off`"
            ));
        }
        if self.rate.is_some() && self.keep_alive == KeepAlive::Page {
            return Err("`web.keep-alive` cannot be `page` with `web.rate`, whose requests belong to no page; set it to `yes` or `no`".to_owned());
        }
        let has_pages = private && matches!(self.job, Job::StaticPage | Job::Web99);
        if self.keep_alive == KeepAlive::Page && !has_pages {
            let with = if private { "`web.job` `cgi-db`" } else { "`web.server` `url`" };
            return Err(
                read.wrong("keep-alive", &format!("`yes` or `no` with {with}, whose requests belong to no page"))
            );
        }
        if nginx && self.gateway == Gateway::Cgi {
            return Err(
                read.wrong("gateway", "`fastcgi` with nginx, which starts no programs; `web.server` `apache` does")
            );
        }
        if self.job == Job::C10k && self.busy >= self.connections {
            return Err(read.wrong("busy", "fewer than the number of connections, the others of which are idle"));
        }
        if self.threads.is_some_and(|threads| threads > self.driven()) {
            return Err(read.wrong("threads", "at most the number of connections that are not idle, or `auto`"));
        }
        Ok(())
    }

    /// Refuses numbers of workers with which connections would wait for ever.
    fn check_workers(&self, read: &OptionReader<'_>) -> Result<(), String> {
        let WebServer::Private { kind: Kind::Apache { mpm }, workers } = &self.server else { return Ok(()) };
        if let (Mpm::Event | Mpm::Worker, Some(wanted)) = (mpm, *workers) {
            let (processes, threads) = shared(wanted, self.process_threads());
            if processes * threads != wanted {
                let (fewer, more) = (processes * (threads - 1), processes * threads);
                let right = format!("`auto`, {fewer} or {more}: {processes} processes with equally many threads");
                return Err(read.wrong("workers", &right));
            }
        }
        if *mpm == Mpm::Event {
            return Ok(());
        }
        let mpm = mpm.name();
        if self.connections > MOST_PREFORKED && read.text("connections") == "auto" {
            return Err(format!(
                "`web.job` `c10k` holds {} connections, which can be at most {MOST_PREFORKED} with `web.mpm` `{mpm}`; set the MPM to `event`, or set \
                 `web.connections`",
                self.connections
            ));
        }
        if self.connections > MOST_PREFORKED {
            return Err(read.wrong(
                "connections",
                &format!("at most {MOST_PREFORKED} with `web.mpm` `{mpm}`, which has a process or thread for each; `event` takes more"),
            ));
        }
        match workers {
            // A connection that ends makes room for another.
            Some(workers) if *workers < self.connections && self.keep_alive != KeepAlive::No => Err(read.wrong(
                "workers",
                &format!(
                    "`auto`, or at least {} with `web.mpm` `{mpm}`, which has a worker for each kept connection",
                    self.connections
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Threads of a process of Apache at most.
    pub fn process_threads(&self) -> u32 {
        if self.job == Job::C10k { THREADS.max(4 * self.busy) } else { THREADS }
    }

    /// The driver's threads on a machine with this many CPUs.
    pub fn threads_on(&self, cpus: u32) -> u32 {
        self.threads.unwrap_or(cpus).clamp(1, self.driven())
    }

    /// Connections that send requests in the window.
    pub fn driven(&self) -> u32 {
        if self.job == Job::C10k { self.busy } else { self.connections }
    }

    /// The load of its clients.
    pub fn load(&self) -> Load {
        Load {
            driven: self.driven(),
            idle: self.connections - self.driven(),
            files: self.files(),
            keep_alive: self.keep_alive,
            pipeline: self.pipeline,
            is_distant: false,
            rate: self.rate,
            line_rate: self.line_rate,
            warm_up: self.warm_up,
            length: self.length,
        }
    }

    /// Most files that a process of the trial has open: each of the server's processes may have all connections, and documents open for some of them.
    pub fn files(&self) -> u64 {
        u64::from(self.connections) * 3 / 2 + FILES
    }

    /// The longest time without progress, if a request takes up to `request`, and `second` for a second of a window of time.
    pub fn longest(&self, request: Duration, second: u32) -> Duration {
        // All connections together send at this rate, or as fast as they are answered.
        let each = self.rate.map_or(request, |rate| request.max(Duration::from_secs_f64(1.0 / rate)));
        let at_line_rate = self
            .line_rate
            .map_or(Duration::ZERO, |bits| Duration::from_secs_f64(f64::from(MEAN_BYTES) * 8.0 / bits) / self.driven());
        let part = |length| match length {
            RunLength::Operations(n) => each.max(at_line_rate).saturating_mul(u32::try_from(n).unwrap_or(u32::MAX)),
            RunLength::Time(time) => time.saturating_mul(second),
        };
        part(self.warm_up).saturating_add(part(self.length))
    }

    /// Requests of the whole run at most: as many as a fast machine answers in the time.
    pub fn requests(&self) -> u64 {
        let part = |length| match length {
            RunLength::Operations(n) => n,
            RunLength::Time(time) => (time.as_secs_f64() * self.rate.unwrap_or(100_000.0)) as u64,
        };
        part(self.warm_up).saturating_add(part(self.length))
    }
}

fn number(read: &OptionReader<'_>, name: &str, range: &RangeInclusive<u32>) -> Result<u32, String> {
    let number = read.text(name).parse().ok().filter(|n| range.contains(n));
    let auto = if read.definitions.iter().any(|o| o.name == name && o.default == "auto") { ", or `auto`" } else { "" };
    number.ok_or_else(|| read.wrong(name, &format!("{} to {}{auto}", range.start(), range.end())))
}

fn server(read: &OptionReader<'_>, workers: Option<u32>) -> Result<WebServer, String> {
    let (named, url) = (read.text("server"), read.text("url"));
    if named != "url" && !url.is_empty() {
        return Err(format!(
            "`web.url` has no effect with `web.server` `{named}`; set the server to `url`, or omit the URL"
        ));
    }
    Ok(match named {
        "url" if url.is_empty() => {
            return Err("`web.server` `url` needs `web.url`, such as `http://127.0.0.1:8080/index.html`".to_owned());
        }
        "url" => WebServer::Url(url.parse().map_err(|right| read.wrong("url", right))?),
        "apache" => {
            let mpm = [Mpm::Event, Mpm::Worker, Mpm::Prefork].into_iter().find(|mpm| mpm.name() == read.text("mpm"));
            WebServer::Private { kind: Kind::Apache { mpm: mpm.unwrap_or_default() }, workers }
        }
        _ => {
            let reuseport = read.word("reuseport") == Some(Switch(true));
            WebServer::Private { kind: Kind::Nginx { reuseport }, workers }
        }
    })
}

fn series(read: &OptionReader<'_>, server: &WebServer) -> Result<String, String> {
    let text = read.text("version");
    if text == "auto" {
        return Ok(match server {
            WebServer::Private { kind: Kind::Nginx { .. }, .. } => "1.22",
            WebServer::Private { kind: Kind::Apache { .. }, .. } => "2.4",
            WebServer::Url(_) => "",
        }
        .to_owned());
    }
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let valid = text.split_once('.').is_some_and(|(major, minor)| is_number(major) && is_number(minor));
    if valid { Ok(text.to_owned()) } else { Err(read.wrong("version", "two numbers such as `1.26`, or `auto`")) }
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
