//! What those of a run who talk TCP talk over.
//!
//! Invariant: nothing listens where others than the run's processes could reach it.

use anyhow::{Context as _, Result, anyhow};

use crate::network::{Network, Pair, Traffic};
use crate::sys::net;

use super::job::{Job, Transport, Wire};

/// What TCP goes over.
#[derive(Debug, Default)]
pub enum Wiring {
    /// A loopback that every warden makes for its processes.
    #[default]
    Private,
    /// The loopback of the machine, on which nobody else is: a guest's.
    Own,
    /// A pair of devices between two namespaces.
    Pair(Pair),
}

impl Wiring {
    /// What `job` asks for, in the network that was made for it, if one was.
    ///
    /// # Errors
    /// It cannot be had on this machine.
    pub fn of(job: &Job, network: Option<&Network>) -> Result<Self> {
        let no_pair = "No network between clients and servers (`network = \"loopback\"` does without)";
        match (job.run.network, network) {
            (Wire::Loopback, None) => Ok(Self::Private),
            // Among the servers of a pair a loopback is as private.
            (Wire::Loopback, Some(Network { clients: None, .. })) => Ok(Self::Own),
            (Wire::Loopback, Some(_)) => Ok(Self::Private),
            (Wire::Veth, Some(network @ Network { clients: Some(_), .. })) => {
                Ok(Self::Pair(Pair::open(network).context(no_pair)?))
            }
            (Wire::Veth, _) => Ok(Self::Pair(Pair::make().map_err(|why| anyhow!(why)).context(no_pair)?)),
        }
    }

    /// The pair, if it is one.
    pub fn pair(&self) -> Option<&Pair> {
        if let Self::Pair(pair) = self { Some(pair) } else { None }
    }

    /// Moves this process, a warden, which has one thread, where its servers are to live.
    pub fn settle(&self) -> Result<()> {
        match self {
            Self::Own => Ok(()),
            Self::Private => {
                net::own_loopback().context("No loopback network for TCP clients (the transport `socket` does without)")
            }
            Self::Pair(pair) => pair.servers.enter().context("The servers' network namespace does not take us"),
        }
    }

    /// Moves this process, a client, where clients live whose transport is that.
    pub fn follow(&self, transport: Transport) -> Result<()> {
        match self {
            Self::Pair(pair) if transport == Transport::Tcp => {
                pair.clients.enter().context("The clients' network namespace does not take us")
            }
            _ => Ok(()),
        }
    }

    /// What servers have sent and received so far; nothing is counted where there are no devices.
    pub fn traffic(&self) -> Result<(Traffic, Traffic)> {
        match self {
            Self::Pair(pair) => pair.servers.traffic().context("The devices do not say what they have passed on"),
            _ => Ok(<_>::default()),
        }
    }

    /// What the record says of it; `before` is the traffic when the window opened.
    pub fn facts(&self, before: (Traffic, Traffic)) -> Result<Vec<(String, String)>> {
        let Self::Pair(_) = self else { return Ok(Vec::new()) };
        let after = self.traffic()?;
        let text = |t: Traffic| format!("{} packets, {} B each on average", t.packets, t.bytes / t.packets.max(1));
        Ok(vec![
            ("network".to_owned(), "veth between two network namespaces".to_owned()),
            ("network.servers-sent".to_owned(), text(after.0.since(before.0))),
            ("network.servers-received".to_owned(), text(after.1.since(before.1))),
        ])
    }
}
