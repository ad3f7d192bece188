//! The options of `app` as read.

use std::ops::RangeInclusive;
use std::time::Duration;

use bigiron_model::clock::Clock;
use bigiron_model::host::HostName;
use bigiron_model::size::parse_bytes;
use bigiron_model::workload::Options;
use bigiron_sql::engine::EngineKind;
use bigiron_web::driver::Load;
use bigiron_web::settings::KeepAlive;
use bigiron_workload::run_control::RunLength;
use bigiron_workload::{ByClock, OptionReader};
use serde::{Deserialize, Serialize};

use crate::calls::REQUESTS_PER_DEALER;
use crate::options::{NAME, OPTIONS};

const A_WARM_UP: &str = "a number of requests such as `3000`, a time such as `30s`, or `auto`";
/// A window of fewer requests could lack one of the operations by chance: `account` is 2 of 80.
const FEWEST: u64 = 400;
const A_WINDOW: &str = "a number of requests from `400`, a time such as `30s`, or `auto`";
const MIB: u64 = 1 << 20;
/// Files that a process has open besides its connections.
const FILES: u64 = 256;

/// How much is injected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// As much as the clients' connections take.
    Off,
    /// Dealers' operations per second.
    Fixed(f64),
    /// The highest rate that conforms.
    Search,
}

/// Where a tier runs.
#[derive(Clone, Debug, PartialEq)]
pub enum TierHost {
    /// On the machine of the trial.
    Here,
    /// On the machine of this name, as OpenSSH knows it.
    Machine(String),
}

impl TierHost {
    /// As typed: `here` or `ssh:NAME`.
    fn parse(text: &str) -> Option<Self> {
        if text == "here" {
            return Some(Self::Here);
        }
        let host: HostName = text.parse().ok()?;
        match &host.targets[..] {
            [name] => Some(Self::Machine(name.clone())),
            _ => None,
        }
    }

    /// The other machine's name.
    pub fn machine(&self) -> Option<&str> {
        match self {
            Self::Here => None,
            Self::Machine(name) => Some(name),
        }
    }
}

/// The settings of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub servers: ServerSettings,
    pub tomcat_on: TierHost,
    pub database_on: TierHost,
    pub rate: Rate,
    pub clients: u32,
    pub warm_up: RunLength,
    pub length: RunLength,
}

/// The settings of Tomcat and the database.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerSettings {
    pub database: EngineKind,
    pub threads: u32,
    pub pool: u32,
    pub session_bytes: u64,
    pub dealers: u32,
    pub heap_bytes: u64,
    /// Whether the quick compiler is the only one.
    pub quick_compiler: bool,
    /// Whether code is compiled beside the threads that need it: where time is instructions, these wait for it.
    pub background: bool,
}

impl Settings {
    /// Reads complete options.
    ///
    /// # Errors
    /// The invalid option and its valid values.
    pub fn parse(options: &Options) -> Result<ByClock<Self>, String> {
        ByClock::read(|clock| Self::on(options, clock == Clock::Wall))
    }

    fn on(options: &Options, wall: bool) -> Result<Self, String> {
        let read = OptionReader { workload: NAME, definitions: OPTIONS, options };
        let number = |name: &str, range: RangeInclusive<u32>, auto: u32| {
            let automatic = OPTIONS.iter().any(|option| option.name == name && option.default == "auto");
            match read.text(name) {
                "auto" if automatic => Ok(auto),
                text => text.parse().ok().filter(|n| range.contains(n)).ok_or_else(|| {
                    let or_auto = if automatic { ", or `auto`" } else { "" };
                    read.wrong(name, &format!("{} to {}{or_auto}", range.start(), range.end()))
                }),
            }
        };
        let database = read.word("database").filter(|engine| *engine != EngineKind::Sqlite);
        let database = database.ok_or_else(|| read.wrong("database", "`postgres` or `mariadb`"))?;
        let rate = match read.text("rate") {
            "auto" if wall => Rate::Search,
            "auto" | "off" => Rate::Off,
            "search" => Rate::Search,
            text => match text.parse() {
                Ok(rate) if (0.1..=1e6).contains(&rate) => Rate::Fixed(rate),
                _ => {
                    return Err(read.wrong(
                        "rate",
                        "dealers' operations per second from 0.1 to 1000000, `search`, `off`, or `auto`",
                    ));
                }
            },
        };
        let length = |name: &str, wanted: &str, time: u64, requests: u64| match RunLength::parse(read.text(name)) {
            Some(None) if wall => Ok(RunLength::Time(Duration::from_secs(time))),
            Some(None) => Ok(RunLength::Operations(requests)),
            Some(Some(length)) => Ok(length),
            None => Err(read.wrong(name, wanted)),
        };
        let bytes = |name: &str| parse_bytes(read.text(name)).ok();
        let session_bytes = bytes("session").filter(|n| *n <= 16 * MIB);
        let session_bytes = session_bytes.ok_or_else(|| read.wrong("session", "an amount from `0` to `16M`"))?;
        let dealers = number("dealers", 10..=1_000_000, 0)?;
        let heap_bytes = match read.text("heap") {
            "auto" => 96 * MIB + 2 * u64::from(dealers) * session_bytes,
            _ => bytes("heap")
                .filter(|n| (16 * MIB..=1 << 40).contains(n))
                .ok_or_else(|| read.wrong("heap", "an amount from `16M` to `1T`, or `auto`"))?,
        };
        let quick_compiler = match read.text("compilers") {
            "auto" => !wall,
            "both" => false,
            "c1" => true,
            _ => return Err(read.wrong("compilers", "`both`, `c1`, or `auto`")),
        };
        let threads = number("threads", 1..=1000, if wall { 50 } else { 10 })?;
        let host = |name: &str| {
            let host = TierHost::parse(read.text(name));
            host.ok_or_else(|| read.wrong(name, "`here`, or `ssh:NAME` with the machine's name for OpenSSH"))
        };
        let settings = Self {
            servers: ServerSettings {
                database,
                threads,
                pool: number("pool", 1..=1000, 2 * threads)?,
                session_bytes,
                dealers,
                heap_bytes,
                quick_compiler,
                background: wall,
            },
            tomcat_on: host("tomcat-on")?,
            database_on: host("database-on")?,
            rate,
            clients: number("clients", 1..=10_000, 2 * threads)?,
            warm_up: length("warmup", A_WARM_UP, 10, 600)?,
            length: length("length", A_WINDOW, 20, 800)?,
        };
        match settings.length {
            RunLength::Operations(..FEWEST) | RunLength::Time(Duration::ZERO) => Err(read.wrong("length", A_WINDOW)),
            RunLength::Operations(_) if settings.rate == Rate::Search && read.text("rate") == "search" => Err(read
                .wrong(
                    "rate",
                    "a number of dealers' operations per second, or `off`: `search` needs `app.length` as a time",
                )),
            RunLength::Operations(_) if settings.rate == Rate::Search => Ok(Self { rate: Rate::Off, ..settings }),
            _ => Ok(settings),
        }
    }

    /// The load with these dealers' operations per second, or without a rate.
    pub fn load(&self, rate: Option<f64>) -> Load {
        Load {
            driven: self.clients,
            idle: 0,
            files: u64::from(self.clients) + u64::from(self.servers.pool) + FILES,
            keep_alive: KeepAlive::Yes,
            pipeline: 1,
            is_distant: self.tomcat_on != TierHost::Here,
            rate: rate.map(|rate| rate * REQUESTS_PER_DEALER),
            line_rate: None,
            warm_up: self.warm_up,
            length: self.length,
        }
    }

    /// The warm-up and the window, which pass without progress, if a request takes `request` without a rate and a second of a time `second` seconds.
    pub fn longest(&self, request: Duration, second: u32) -> Duration {
        let request = match self.rate {
            Rate::Fixed(rate) => request.max(Duration::from_secs_f64(1.0 / (rate * REQUESTS_PER_DEALER))),
            Rate::Off | Rate::Search => request,
        };
        let part = |length| match length {
            RunLength::Operations(n) => Duration::from_micros(n.saturating_mul(request.as_micros() as u64)),
            RunLength::Time(time) => time.saturating_mul(second),
        };
        part(self.warm_up).saturating_add(part(self.length))
    }
}
