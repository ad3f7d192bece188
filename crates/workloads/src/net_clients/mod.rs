//! `net-clients`: the network traffic between a file server and its clients, without the files.
//!
//! Invariant: a client's packets depend only on the loadfile and the length; every packet is received completely and checked.

mod exchange;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};

use self::exchange::Caller;
use super::loadfile::replay::{Service, replay};
use super::loadfile::settings::{CLIENTS_OPTION, LENGTH, LOADFILE, REQUESTS_OPTION, SEED, WARM_UP, WORK};
use super::loadfile::{Packets, RequestKind, Settings, metrics};
use bigiron_model::metric::MetricDef;
use bigiron_model::workload::Options;
use bigiron_sys::network::Wiring;
use bigiron_workload::network::{NETWORK, modules, over_devices};
use bigiron_workload::{
    ByClock, Configured, Context, Needs, OptionDef, OptionReader, Progress, Running, RunsOn, Workload, WorkloadResult,
};

/// The workload `net-clients`.
pub struct NetClients;

const NAME: &str = "net-clients";

const OPTIONS: &[OptionDef] = &[CLIENTS_OPTION, LOADFILE, REQUESTS_OPTION, SEED, WORK, WARM_UP, LENGTH, NETWORK];

impl Workload for NetClients {
    fn name(&self) -> &'static str {
        NAME
    }

    fn summary(&self) -> &'static str {
        "A file server's clients on the network: each sends the packets of a loadfile over TCP and waits for the replies"
    }

    fn options(&self) -> &'static [OptionDef] {
        OPTIONS
    }

    fn embed(&self, name: &str, value: &str, _: RunsOn) -> Result<String, String> {
        if name == LOADFILE.name { super::loadfile::embed(value) } else { Ok(value.to_owned()) }
    }

    fn parse(&self, options: &Options) -> Result<Box<dyn Configured>, String> {
        let over_devices = over_devices(options);
        let replays = Settings::parse(&OptionReader { workload: NAME, definitions: OPTIONS, options })?;
        let of = |settings| Replay { settings: without_files(settings), over_devices };
        Ok(Box::new(ByClock { wall: of(replays.wall), other: of(replays.other) }))
    }
}

/// A replay and its network.
struct Replay {
    settings: Settings,
    over_devices: bool,
}

impl Configured for Replay {
    fn needs(&self) -> Needs {
        let settings = &self.settings;
        let clients = settings.clients as u64;
        Needs {
            storage_bytes: None,
            // One loadfile for all; for each client and its server the pages and the sockets' buffers.
            memory_bytes: (32 << 20) + settings.file.requests.len() as u64 * 64 + clients * (4 << 20),
            modules: modules(self.over_devices),
        }
    }

    fn metrics(&self) -> Vec<MetricDef> {
        metrics::of(&self.settings)
    }

    fn lays_out(&self) -> bool {
        false
    }

    fn silence(&self) -> Duration {
        self.settings.silence()
    }

    fn guest_silence(&self) -> Duration {
        self.settings.guest_silence()
    }

    fn prepare(&self, _cx: &Context<'_>) -> Result<Box<dyn Running + '_>> {
        Ok(Box::new(self))
    }
}

impl Running for &Replay {
    fn run(&mut self, cx: &Context<'_>) -> Result<WorkloadResult> {
        let settings = &self.settings;
        let of = 2;
        (cx.progress)(Progress { step: "warm-up", done: 0, of });
        let wiring = Wiring::of(self.over_devices, cx.network)?;
        let service = Connections { settings, wiring: &wiring };
        let mut before = Ok(<_>::default());
        let between = || {
            before = wiring.traffic();
            (cx.progress)(Progress { step: "window", done: 1, of });
        };
        let replayed = replay(settings, &service, between)?;
        let mut outcome = metrics::outcome(settings, &replayed)?;
        outcome.facts.extend(wiring.facts(before?)?);
        let sizes = settings.file.requests.iter().filter_map(|r| Packets::of(&settings.file, r));
        let (sent, received) = sizes.fold((0, 0), |(s, r), p| (s + p.request, r + p.answer));
        let fact = |name: &str, value: String| (name.to_owned(), value);
        outcome.facts.extend([
            fact(
                "network",
                if self.over_devices { "veth between two network namespaces" } else { "loopback" }.to_owned(),
            ),
            fact("sent-per-pass-bytes", sent.to_string()),
            fact("received-per-pass-bytes", received.to_string()),
        ]);
        Ok(outcome)
    }

    /// Each packet was checked on arrival; nothing is left to check.
    fn verify(self: Box<Self>, _cx: &Context<'_>) -> Result<()> {
        Ok(())
    }
}

/// The settings without those that only a file system needs.
fn without_files(mut settings: Settings) -> Settings {
    if settings.file.count(RequestKind::Deltree) > 0 {
        Arc::make_mut(&mut settings.file).requests.retain(|r| r.action.kind() != RequestKind::Deltree);
    }
    settings
}

/// A connection for each client.
struct Connections<'a> {
    settings: &'a Settings,
    wiring: &'a Wiring,
}

impl<'a> Service for Connections<'a> {
    type Server = Caller<'a>;

    fn prepare_head(&self) -> Result<()> {
        self.wiring.enter_servers()
    }

    fn open(&self, client: usize) -> Result<Caller<'a>> {
        Caller::connect(&self.settings.file, self.wiring, client).context("No server")
    }
}

#[cfg(test)]
mod tests;
