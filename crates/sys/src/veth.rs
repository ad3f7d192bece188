//! Pairs of virtual Ethernet devices, made by rtnetlink.
//!
//! Invariant: one message makes both devices, each in its own namespace, or neither.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};

/// `NETLINK_ROUTE` is number 0, the default.
const ROUTE: Option<Protocol> = None;
/// Of linux/veth.h.
const VETH_INFO_PEER: u16 = 1;
/// Bytes of a message's header, and of an answer's that holds an error code.
const HEADER: usize = 16;

/// A device to be created.
#[derive(Clone, Copy, Debug)]
pub struct Device<'a> {
    /// Up to 15 bytes.
    pub name: &'a str,
    pub mac: [u8; 6],
}

/// Creates `here` in the calling thread's namespace and `there` in another, joined to each other. Needs CAP_NET_ADMIN in both.
///
/// # Errors
/// `EOPNOTSUPP` if the kernel has no veth, `EEXIST` if a device with that name exists, and others of rtnetlink.
pub fn create(here: Device<'_>, there: Device<'_>, namespace: BorrowedFd<'_>) -> io::Result<()> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, ROUTE)?;
    let message = message(here, there, namespace.as_raw_fd());
    sendto(&socket, &message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answer = [0; 4096];
    let (length, _) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
    outcome(&answer[..length])
}

/// The result in an answer of type `NLMSG_ERROR`.
fn outcome(answer: &[u8]) -> io::Result<()> {
    let kind = answer.get(4..6).and_then(|b| b.try_into().ok()).map(u16::from_ne_bytes);
    let code = answer.get(HEADER..HEADER + 4).and_then(|b| b.try_into().ok()).map(i32::from_ne_bytes);
    match (kind.map(i32::from), code) {
        (Some(libc::NLMSG_ERROR), Some(0)) => Ok(()),
        (Some(libc::NLMSG_ERROR), Some(code)) => Err(io::Error::from_raw_os_error(-code)),
        _ => Err(io::Error::other("rtnetlink sent an unexpected answer")),
    }
}

fn message(here: Device<'_>, there: Device<'_>, namespace: i32) -> Vec<u8> {
    let mut m = vec![0; HEADER];
    m.extend([0; size_of::<IfInfo>()]);
    named(&mut m, here);
    nested(&mut m, libc::IFLA_LINKINFO, |m| {
        attribute(m, libc::IFLA_INFO_KIND, b"veth");
        nested(m, libc::IFLA_INFO_DATA, |m| {
            nested(m, VETH_INFO_PEER, |m| {
                m.extend([0; size_of::<IfInfo>()]);
                named(m, there);
                attribute(m, libc::IFLA_NET_NS_FD, &namespace.to_ne_bytes());
            });
        });
    });
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
    let length = m.len() as u32;
    m[..4].copy_from_slice(&length.to_ne_bytes());
    m[4..6].copy_from_slice(&libc::RTM_NEWLINK.to_ne_bytes());
    m[6..8].copy_from_slice(&flags.to_ne_bytes());
    m
}

/// `struct ifinfomsg`: all zeros select any device, unchanged.
type IfInfo = [u32; 4];

fn named(m: &mut Vec<u8>, device: Device<'_>) {
    attribute(m, libc::IFLA_IFNAME, &[device.name.as_bytes(), &[0]].concat());
    attribute(m, libc::IFLA_ADDRESS, &device.mac);
}

fn attribute(m: &mut Vec<u8>, kind: u16, value: &[u8]) {
    nested(m, kind, |m| m.extend(value));
}

/// An attribute: its length, its kind, the bytes that `content` appends, and zeros up to a multiple of 4.
fn nested(m: &mut Vec<u8>, kind: u16, content: impl FnOnce(&mut Vec<u8>)) {
    let at = m.len();
    m.extend([0; 4]);
    content(m);
    let length = (m.len() - at) as u16;
    m[at..at + 2].copy_from_slice(&length.to_ne_bytes());
    m[at + 2..at + 4].copy_from_slice(&kind.to_ne_bytes());
    m.resize(m.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The attributes in a message or in another attribute: kind and value.
    fn attributes(mut m: &[u8]) -> Vec<(u16, &[u8])> {
        let mut all = Vec::new();
        while m.len() >= 4 {
            let length = u16::from_ne_bytes([m[0], m[1]]) as usize;
            all.push((u16::from_ne_bytes([m[2], m[3]]), &m[4..length]));
            m = &m[length.next_multiple_of(4).min(m.len())..];
        }
        all
    }

    #[test]
    fn the_message_says_both_devices() {
        let (here, there) = (Device { name: "a0", mac: [2; 6] }, Device { name: "longer1", mac: [3; 6] });
        let m = message(here, there, 77);
        assert_eq!(u32::from_ne_bytes(m[..4].try_into().unwrap()) as usize, m.len());
        let outer = attributes(&m[32..]);
        assert_eq!(outer[0], (libc::IFLA_IFNAME, &b"a0\0"[..]));
        assert_eq!(outer[1], (libc::IFLA_ADDRESS, &[2; 6][..]));
        let info = attributes(outer[2].1);
        assert_eq!((outer[2].0, info[0]), (libc::IFLA_LINKINFO, (libc::IFLA_INFO_KIND, &b"veth"[..])));
        let peer = attributes(info[1].1);
        assert_eq!((info[1].0, peer[0].0), (libc::IFLA_INFO_DATA, VETH_INFO_PEER));
        let inner = attributes(&peer[0].1[16..]);
        assert_eq!(inner[0], (libc::IFLA_IFNAME, &b"longer1\0"[..]));
        assert_eq!(inner[2], (libc::IFLA_NET_NS_FD, &77i32.to_ne_bytes()[..]));
    }

    #[test]
    fn an_answer_is_an_error_code() {
        let answer = |kind: i32, code: i32| {
            let mut a = vec![0; 36];
            a[4..6].copy_from_slice(&(kind as u16).to_ne_bytes());
            a[16..20].copy_from_slice(&code.to_ne_bytes());
            a
        };
        outcome(&answer(libc::NLMSG_ERROR, 0)).unwrap();
        let refused = outcome(&answer(libc::NLMSG_ERROR, -libc::EOPNOTSUPP)).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EOPNOTSUPP));
        assert!(outcome(&answer(libc::NLMSG_DONE, 0)).is_err());
        assert!(outcome(&[0; 8]).is_err());
    }
}
