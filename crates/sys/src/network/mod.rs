//! A network for a trial: servers and clients in two namespaces joined by a pair of virtual Ethernet devices (veth). Unlike over a loopback, their
//! traffic passes through the queues of a device, with its offloads and its polling.
//!
//! Invariant: nobody else can reach either namespace, and both disappear, with devices and settings, when the last process that holds or inhabits
//! them has ended, however it ended: nothing has to be undone.

mod attribute;
mod link;
mod wiring;

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::netns::Namespace;
use crate::{net, veth};

pub use crate::ethtool::Offload;
pub use attribute::Attribute;
pub use link::TrialLink;
pub use wiring::{Wiring, connect};

/// The kernel module for the devices.
pub const MODULE: &str = "veth";

/// A network that belongs to one trial, as paths for other processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// The namespace of all servers.
    pub servers: PathBuf,
    /// The namespace of the clients, if it is a separate one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<PathBuf>,
}

/// The side of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Servers,
    Clients,
}

impl Side {
    pub fn name(self) -> &'static str {
        match self {
            Side::Servers => "servers",
            Side::Clients => "clients",
        }
    }

    pub fn device(self) -> &'static str {
        match self {
            Side::Servers => "bigiron0",
            Side::Clients => "bigiron1",
        }
    }

    /// From a block reserved for documentation (RFC 5737), which no reachable machine uses.
    pub fn address(self) -> Ipv4Addr {
        match self {
            Side::Servers => Ipv4Addr::new(192, 0, 2, 1),
            Side::Clients => Ipv4Addr::new(192, 0, 2, 2),
        }
    }

    /// Locally administered addresses; addresses that the kernel draws would differ between runs.
    fn mac(self) -> [u8; 6] {
        match self {
            Side::Servers => [2, 0, 0, 0, 0, 1],
            Side::Clients => [2, 0, 0, 0, 0, 2],
        }
    }
}

/// Prefix length of the network of both addresses.
const BITS: u32 = 30;
/// How long the devices may take to come up.
const PATIENCE: Duration = Duration::from_secs(5);

/// One end of a pair.
#[derive(Debug)]
pub struct PairEnd {
    pub side: Side,
    namespace: Namespace,
    /// Whether the namespace is this process's own.
    own: bool,
}

/// Both ends of a pair, held open.
#[derive(Debug)]
pub struct VethPair {
    pub servers: PairEnd,
    pub clients: PairEnd,
}

/// The traffic of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pub packets: u64,
    pub bytes: u64,
}

impl Traffic {
    /// The traffic after `before`.
    pub fn since(self, before: Self) -> Self {
        Self { packets: self.packets - before.packets, bytes: self.bytes - before.bytes }
    }
}

impl VethPair {
    /// Makes both ends in new namespaces. Needs root.
    ///
    /// # Errors
    /// The reason why this machine cannot have a pair.
    pub fn make() -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err(
                "clients behind network devices need network namespaces, which only root may create; run bigiron as root"
                    .to_owned(),
            );
        }
        let servers = Namespace::new().map_err(|e| format!("cannot create a network namespace: {e}"))?;
        Self::join(servers, false)
    }

    /// [`VethPair::make`] with the servers in the network of this process, which nobody else shares: in a guest.
    ///
    /// # Errors
    /// The reason why this guest cannot have a pair.
    pub fn beside() -> Result<Self, String> {
        Self::join(Namespace::here().map_err(|e| format!("/proc shows no network namespace: {e}"))?, true)
    }

    fn join(servers: Namespace, own: bool) -> Result<Self, String> {
        let clients = Namespace::new().map_err(|e| format!("cannot create a network namespace: {e}"))?;
        let device = |side: Side| veth::Device { name: side.device(), mac: side.mac() };
        let made = servers
            .visit(|| veth::create(device(Side::Servers), device(Side::Clients), std::os::fd::AsFd::as_fd(&clients)));
        match made.and_then(|made| made) {
            Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                return Err(format!("this kernel has no veth devices (module `{MODULE}`)"));
            }
            other => other.map_err(|e| format!("cannot create a pair of veth devices: {e}"))?,
        }
        let pair = Self {
            servers: PairEnd { side: Side::Servers, namespace: servers, own },
            clients: PairEnd { side: Side::Clients, namespace: clients, own: false },
        };
        for end in pair.ends() {
            end.set_up().map_err(|e| format!("the device {} does not come up: {e}", end.side.device()))?;
        }
        for end in pair.ends() {
            end.wait_up()?;
        }
        Ok(pair)
    }

    /// The pair that another process holds.
    ///
    /// # Errors
    /// It no longer exists, or there is no namespace for clients.
    pub fn open(network: &Network) -> io::Result<Self> {
        let clients = network.clients.as_deref().ok_or(io::ErrorKind::NotFound)?;
        let end = |side, path: &Path| io::Result::Ok(PairEnd { side, namespace: Namespace::open(path)?, own: false });
        Ok(Self { servers: end(Side::Servers, &network.servers)?, clients: end(Side::Clients, clients)? })
    }

    /// The paths for other processes, valid as long as this one holds the pair.
    pub fn network(&self) -> Network {
        Network { servers: self.servers.namespace.path(), clients: Some(self.clients.namespace.path()) }
    }

    pub fn ends(&self) -> [&PairEnd; 2] {
        [&self.servers, &self.clients]
    }

    /// Does `work` in the clients' namespace, in this thread, which is in the servers' namespace before and after.
    ///
    /// # Errors
    /// Those of `setns`, and of `work`.
    pub fn as_client<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.clients.enter()?;
        let done = work();
        self.servers.enter()?;
        done
    }
}

impl Network {
    /// The network of a guest without a pair: its own.
    pub fn of_guest() -> Self {
        Self { servers: "/proc/1/ns/net".into(), clients: None }
    }
}

impl PairEnd {
    /// Moves this thread, and everything that it starts from then on, into the namespace.
    ///
    /// # Errors
    /// Those of `setns`.
    pub fn enter(&self) -> io::Result<()> {
        self.namespace.enter()
    }

    /// Whether it is the network of the process that made the pair.
    pub fn is_own(&self) -> bool {
        self.own
    }

    /// Does `work` in the namespace, with its /sys and /proc/sys/net.
    ///
    /// # Errors
    /// Those of `setns` and `mount`.
    pub fn visit<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        self.namespace.visit(work)
    }

    /// The traffic that its device has sent and received so far. A packet is what the device gets at once: with segmentation offload, up to 64 KiB.
    ///
    /// # Errors
    /// As [`PairEnd::visit`], or sysfs does not report it.
    pub fn traffic(&self) -> io::Result<(Traffic, Traffic)> {
        let device = self.side.device();
        self.visit(|| {
            let of = |way: &str| {
                io::Result::Ok(Traffic { packets: count(device, way, "packets")?, bytes: count(device, way, "bytes")? })
            };
            Ok((of("tx")?, of("rx")?))
        })?
    }

    fn set_up(&self) -> io::Result<()> {
        let (device, address, own) = (self.side.device(), self.side.address(), self.own);
        self.visit(|| {
            // Duplicate address detection and router solicitation would continue in the measured window.
            let quiet = format!("/proc/sys/net/ipv6/conf/{device}/disable_ipv6");
            match fs::write(quiet, "1") {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
            net::interface_address(device, address, BITS)?;
            if !own {
                net::interface_up("lo")?;
            }
            net::interface_up(device)
        })?
    }

    /// Waits until the device carries packets: earlier packets are lost, and TCP retries only a second later.
    fn wait_up(&self) -> Result<(), String> {
        let device = self.side.device();
        let said = self.visit(|| {
            let begun = Instant::now();
            loop {
                let state = fs::read_to_string(format!("/sys/class/net/{device}/operstate"))?;
                if state.trim() == "up" || begun.elapsed() > PATIENCE {
                    return io::Result::Ok(state.trim().to_owned());
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        match said.and_then(|said| said) {
            Ok(state) if state == "up" => Ok(()),
            Ok(state) => Err(format!("the device {device} is `{state}` after {} s", PATIENCE.as_secs())),
            Err(e) => Err(format!("sysfs does not show the device {device}: {e}")),
        }
    }
}

fn count(device: &str, way: &str, what: &str) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/sys/class/net/{device}/statistics/{way}_{what}"))?;
    text.trim().parse().map_err(io::Error::other)
}

#[cfg(test)]
mod tests;
