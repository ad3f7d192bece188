//! A network for a trial: servers and clients in two namespaces that are joined by a pair of virtual Ethernet devices (veth), so that what
//! passes between them goes through the queues of a device, with its offloads and its polling, as it does not over a loopback.
//!
//! Invariant: nobody else reaches either namespace, and both are gone, with devices and settings, when the last process that holds or
//! inhabits them has ended, however it ended: there is nothing to be taken back.

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

/// The kernel's module for the devices.
pub const MODULE: &str = "veth";

/// A network that belongs to a trial alone, as other processes find it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// The namespace of all who serve.
    pub servers: PathBuf,
    /// The namespace of the clients, if that is another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<PathBuf>,
}

/// Who lives at an end of the pair.
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

    /// Of a block that is for documentation (RFC 5737): no machine that anybody wants to reach has it.
    pub fn address(self) -> Ipv4Addr {
        match self {
            Side::Servers => Ipv4Addr::new(192, 0, 2, 1),
            Side::Clients => Ipv4Addr::new(192, 0, 2, 2),
        }
    }

    /// Administered locally; drawn by the kernel they would differ from run to run.
    fn mac(self) -> [u8; 6] {
        match self {
            Side::Servers => [2, 0, 0, 0, 0, 1],
            Side::Clients => [2, 0, 0, 0, 0, 2],
        }
    }
}

/// Bits of the network that both addresses are in.
const BITS: u32 = 30;
/// How long the devices may take to come up.
const PATIENCE: Duration = Duration::from_secs(5);

/// One end.
#[derive(Debug)]
pub struct PairEnd {
    pub side: Side,
    namespace: Namespace,
    /// Whether the namespace is that of this process.
    own: bool,
}

/// Both ends, held.
#[derive(Debug)]
pub struct VethPair {
    pub servers: PairEnd,
    pub clients: PairEnd,
}

/// What a device has passed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pub packets: u64,
    pub bytes: u64,
}

impl Traffic {
    /// What came after `before`.
    pub fn since(self, before: Self) -> Self {
        Self { packets: self.packets - before.packets, bytes: self.bytes - before.bytes }
    }
}

impl VethPair {
    /// Makes both ends in new namespaces. Needs root.
    ///
    /// # Errors
    /// What speaks against it on this machine.
    pub fn make() -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err(
                "clients behind network devices take network namespaces, which root alone may make; run bigiron as root"
                    .to_owned(),
            );
        }
        let servers = Namespace::new().map_err(|e| format!("this machine gives us no network namespace: {e}"))?;
        Self::join(servers, false)
    }

    /// The same with the servers in the network of this process, of which nobody else is part: in a guest.
    ///
    /// # Errors
    /// What speaks against it in this guest.
    pub fn beside() -> Result<Self, String> {
        Self::join(Namespace::here().map_err(|e| format!("/proc shows no network namespace: {e}"))?, true)
    }

    fn join(servers: Namespace, own: bool) -> Result<Self, String> {
        let clients = Namespace::new().map_err(|e| format!("the kernel gives us no network namespace: {e}"))?;
        let device = |side: Side| veth::Device { name: side.device(), mac: side.mac() };
        let made = servers
            .visit(|| veth::create(device(Side::Servers), device(Side::Clients), std::os::fd::AsFd::as_fd(&clients)));
        match made.and_then(|made| made) {
            Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                return Err(format!("this kernel has no veth devices (module `{MODULE}`)"));
            }
            other => other.map_err(|e| format!("the kernel makes no pair of veth devices: {e}"))?,
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
    /// It is not there any more; there is no namespace for clients.
    pub fn open(network: &Network) -> io::Result<Self> {
        let clients = network.clients.as_deref().ok_or(io::ErrorKind::NotFound)?;
        let end = |side, path: &Path| io::Result::Ok(PairEnd { side, namespace: Namespace::open(path)?, own: false });
        Ok(Self { servers: end(Side::Servers, &network.servers)?, clients: end(Side::Clients, clients)? })
    }

    /// Where other processes find it, as long as this one holds it.
    pub fn network(&self) -> Network {
        Network { servers: self.servers.namespace.path(), clients: Some(self.clients.namespace.path()) }
    }

    pub fn ends(&self) -> [&PairEnd; 2] {
        [&self.servers, &self.clients]
    }

    /// Does `work` among the clients, in this thread, which is among the servers before and after.
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
    /// Moves this thread there, and what it starts from then on.
    ///
    /// # Errors
    /// Those of `setns`.
    pub fn enter(&self) -> io::Result<()> {
        self.namespace.enter()
    }

    /// Whether it is the network that this process was in when it made the pair.
    pub fn is_own(&self) -> bool {
        self.own
    }

    /// Does `work` there, with /sys and /proc/sys/net as they are there.
    ///
    /// # Errors
    /// Those of `setns` and `mount`.
    pub fn visit<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        self.namespace.visit(work)
    }

    /// What its device has sent and received so far. A packet is what the device is given at once: with segmentation offload up to 64 KiB.
    ///
    /// # Errors
    /// As [`PairEnd::visit`], or sysfs does not say.
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
            // Duplicate address detection and router solicitation would go on in the measured window.
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

    /// Waits until it carries packets: what is sent before is lost, and TCP tries again only a second later.
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
