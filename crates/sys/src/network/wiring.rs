//! The network over which the TCP clients and servers of a run communicate.
//!
//! Invariant: only the run's processes can reach a listening server.

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use anyhow::{Context as _, Result, anyhow};

use super::{Network, Side, Traffic, VethPair};
use crate::net;

/// The network under TCP.
#[derive(Debug, Default)]
pub enum Wiring {
    /// A loopback that each process that forks clients and servers creates for them.
    #[default]
    Private,
    /// The machine's loopback, which nobody else uses: a guest's.
    Own,
    /// A pair of devices between two namespaces.
    Pair(VethPair),
}

impl Wiring {
    /// A pair if requested, otherwise a loopback; in the trial's network, if there is one.
    ///
    /// # Errors
    /// This machine does not support it.
    pub fn of(pair: bool, network: Option<&Network>) -> Result<Self> {
        let no_pair = "No network between clients and servers (`network = \"loopback\"` needs none)";
        match (pair, network) {
            (false, None) => Ok(Self::Private),
            // In the servers' namespace of a pair, a loopback is equally private.
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

    /// Moves this process, which has one thread, to the servers' network, in which it will fork servers.
    pub fn enter_servers(&self) -> Result<()> {
        match self {
            Self::Own => Ok(()),
            Self::Private => net::own_loopback().context("No loopback network for TCP clients"),
            Self::Pair(pair) => pair.servers.enter().context("Cannot enter the servers' network namespace"),
        }
    }

    /// Moves this process, a client, to the clients' network.
    pub fn enter_clients(&self) -> Result<()> {
        match self {
            Self::Pair(pair) => pair.clients.enter().context("Cannot enter the clients' network namespace"),
            _ => Ok(()),
        }
    }

    /// The traffic of the servers so far; nothing is counted without devices.
    pub fn traffic(&self) -> Result<(Traffic, Traffic)> {
        match self {
            Self::Pair(pair) => pair.servers.traffic().context("Cannot read the traffic of the devices"),
            _ => Ok(<_>::default()),
        }
    }

    /// The facts for the record; `before` is the traffic when the window opened.
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

/// Connects a client and a server, both ends in this process for now; returns the client's end and the server's. With a pair, the calling thread must
/// be in the servers' namespace.
///
/// # Errors
/// Those of the sockets.
pub fn connect(pair: Option<&VethPair>) -> io::Result<(TcpStream, TcpStream)> {
    // The kernel completes the connection before it is accepted, so one process can do both.
    let listener = TcpListener::bind((pair.map_or(Ipv4Addr::LOCALHOST, |_| Side::Servers.address()), 0))?;
    let to = listener.local_addr()?;
    // A socket belongs to the network in which it was created.
    let client = match pair {
        Some(pair) => pair.as_client(|| TcpStream::connect(to))?,
        None => TcpStream::connect(to)?,
    };
    let (server, _) = listener.accept()?;
    for end in [&client, &server] {
        // A request is one small message with a waiting sender: it must not be delayed to be merged with others.
        end.set_nodelay(true)?;
    }
    Ok((client, server))
}
