//! What those of a run who talk TCP talk over.
//!
//! Invariant: nothing listens where others than the run's processes could reach it.

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use anyhow::{Context as _, Result, anyhow};

use super::{Network, Side, Traffic, VethPair};
use crate::net;

/// What TCP goes over.
#[derive(Debug, Default)]
pub enum Wiring {
    /// A loopback that each process that forks clients and servers makes for them.
    #[default]
    Private,
    /// The loopback of the machine, on which nobody else is: a guest's.
    Own,
    /// A pair of devices between two namespaces.
    Pair(VethPair),
}

impl Wiring {
    /// A pair if one is asked for, else a loopback; in the network that was made for the trial, if one was.
    ///
    /// # Errors
    /// It is not available on this machine.
    pub fn of(pair: bool, network: Option<&Network>) -> Result<Self> {
        let no_pair = "No network between clients and servers (`network = \"loopback\"` does without)";
        match (pair, network) {
            (false, None) => Ok(Self::Private),
            // Among the servers of a pair a loopback is as private.
            (false, Some(Network { clients: None, .. })) => Ok(Self::Own),
            (false, Some(_)) => Ok(Self::Private),
            (true, Some(network @ Network { clients: Some(_), .. })) => {
                Ok(Self::Pair(VethPair::open(network).context(no_pair)?))
            }
            (true, _) => Ok(Self::Pair(VethPair::make().map_err(|why| anyhow!(why)).context(no_pair)?)),
        }
    }

    /// The pair, if it is one.
    pub fn pair(&self) -> Option<&VethPair> {
        if let Self::Pair(pair) = self { Some(pair) } else { None }
    }

    /// Moves this process, which has one thread, where the servers that it forks are to live.
    pub fn enter_servers(&self) -> Result<()> {
        match self {
            Self::Own => Ok(()),
            Self::Private => net::own_loopback().context("No loopback network for TCP clients"),
            Self::Pair(pair) => pair.servers.enter().context("The servers' network namespace does not take us"),
        }
    }

    /// Moves this process, a client, where clients live.
    pub fn enter_clients(&self) -> Result<()> {
        match self {
            Self::Pair(pair) => pair.clients.enter().context("The clients' network namespace does not take us"),
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

/// Connects a client and a server, both ends in this process for now: the client's and the server's. With a pair the calling thread lives
/// among the servers.
///
/// # Errors
/// Those of the sockets.
pub fn connect(pair: Option<&VethPair>) -> io::Result<(TcpStream, TcpStream)> {
    // The kernel completes the connection before anybody accepts it, so one process can do both.
    let listener = TcpListener::bind((pair.map_or(Ipv4Addr::LOCALHOST, |_| Side::Servers.address()), 0))?;
    let to = listener.local_addr()?;
    // A socket belongs to the network in which it was made.
    let client = match pair {
        Some(pair) => pair.as_client(|| TcpStream::connect(to))?,
        None => TcpStream::connect(to)?,
    };
    let (server, _) = listener.accept()?;
    for end in [&client, &server] {
        // A request is one small message that is waited for: it must not be held back for more.
        end.set_nodelay(true)?;
    }
    Ok((client, server))
}
