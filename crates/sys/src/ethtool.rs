//! Offloads of a network device, read and set by the ioctls of ethtool.

use std::io;
use std::os::fd::AsRawFd;

use super::net::named;

/// Work that a device, or the kernel on its behalf, takes over from the protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// TCP segmentation offload: the device splits TCP's data into packets.
    Tso,
    /// Generic segmentation offload: the kernel splits the data, as late as possible.
    Gso,
    /// Generic receive offload: packets of one stream are merged before the protocols see them.
    Gro,
}

impl Offload {
    /// Commands of linux/ethtool.h that read and set it.
    fn commands(self) -> (u32, u32) {
        match self {
            Offload::Tso => (0x1e, 0x1f),
            Offload::Gso => (0x23, 0x24),
            Offload::Gro => (0x2b, 0x2c),
        }
    }
}

/// Whether `offload` is on for `device` of the calling thread's namespace.
///
/// # Errors
/// Those of the ioctl, e.g. `ENODEV`.
pub fn is_on(device: &str, offload: Offload) -> io::Result<bool> {
    Ok(value(device, offload.commands().0, 0)? != 0)
}

/// Switches `offload`. The kernel may refuse or ignore an offload that the device lacks; the caller reads the state back. Needs CAP_NET_ADMIN.
///
/// # Errors
/// Those of the ioctl, e.g. `EOPNOTSUPP`.
pub fn set(device: &str, offload: Offload, on: bool) -> io::Result<()> {
    value(device, offload.commands().1, on.into()).map(drop)
}

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

fn value(device: &str, command: u32, data: u32) -> io::Result<u32> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
    let mut value = Value { command, data };
    let mut request = named(device);
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: the kernel reads the request and, through it, reads and writes the value; both are ours and outlive the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw const request) };
    if result == 0 { Ok(value.data) } else { Err(io::Error::last_os_error()) }
}
