//! Network interfaces and namespaces.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;

/// Sets the interface's UP flag (SIOCSIFFLAGS). Needs CAP_NET_ADMIN.
///
/// # Errors
/// Those of the ioctl, e.g. `ENODEV`.
pub fn interface_up(name: &str) -> io::Result<()> {
    let mut request = named(name);
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    ask(libc::SIOCSIFFLAGS as _, &request)
}

/// Gives the interface `address` in a network with a prefix of this many bits. Needs CAP_NET_ADMIN.
///
/// # Errors
/// Those of the ioctls, e.g. `ENODEV`.
pub fn interface_address(name: &str, address: Ipv4Addr, bits: u32) -> io::Result<()> {
    let mask = Ipv4Addr::from(u32::MAX.checked_shl(32 - bits).unwrap_or(0));
    for (number, value) in [(libc::SIOCSIFADDR, address), (libc::SIOCSIFNETMASK, mask)] {
        let internet = libc::sockaddr_in {
            sin_family: libc::AF_INET as libc::sa_family_t,
            sin_port: 0,
            sin_addr: libc::in_addr { s_addr: u32::from(value).to_be() },
            sin_zero: [0; 8],
        };
        let mut request = named(name);
        // SAFETY: both are plain data of 16 bytes, and the kernel takes the one for the other by its family.
        request.ifr_ifru.ifru_addr = unsafe { std::mem::transmute::<libc::sockaddr_in, libc::sockaddr>(internet) };
        ask(number as _, &request)?;
    }
    Ok(())
}

/// A request about the interface `name`.
pub(super) fn named(name: &str) -> libc::ifreq {
    // SAFETY: an all-zero ifreq is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(libc::IFNAMSIZ - 1)) {
        *to = from as libc::c_char;
    }
    request
}

fn ask(number: libc::Ioctl, request: &libc::ifreq) -> io::Result<()> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: the kernel reads one ifreq, which is ours and complete.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), number, &raw const *request) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Moves this process, which must be single-threaded, into a new network with only a loopback interface, up: only its later children can reach a
/// server there. Without CAP_SYS_ADMIN, it first becomes the owner of a user namespace.
///
/// # Errors
/// Those of `unshare`, e.g. `EPERM` where user namespaces are disabled, and of bringing the interface up.
pub fn own_loopback() -> io::Result<()> {
    use rustix::thread::UnshareFlags;
    // SAFETY: neither flag unshares the file table, on which the safety of file descriptors rests.
    let unshare = |flags| unsafe { rustix::thread::unshare_unsafe(flags) };
    match unshare(UnshareFlags::NEWNET) {
        Err(rustix::io::Errno::PERM) => unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNET)?,
        other => other?,
    }
    interface_up("lo")
}
