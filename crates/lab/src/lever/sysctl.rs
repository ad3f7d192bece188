//! `sysctl.NAME=VALUE`: a file below /proc/sys.

use super::accepted_values::AcceptedValues;
use super::runtime::{Lever, LeverTarget, SideEffects};

pub const LEVERS: &[Lever] = &[Lever {
    name: "sysctl.NAME",
    place: LeverTarget::Named(path),
    takes: AcceptedValues::Text,
    touches: SideEffects::Nothing,
    since: None,
    summary: "a sysctl, such as `sysctl.vm.swappiness`",
}];

/// The file of a sysctl. As in sysctl(8), the first separator decides: after `net.ipv4.conf`, a `/` is a dot; after
/// `net/ipv4/conf`, a `.` is a dot.
fn path(name: &str) -> Result<String, String> {
    let path = if name.find('/').is_some_and(|slash| name.find('.').is_none_or(|dot| slash < dot)) {
        name.to_owned()
    } else {
        name.chars()
            .map(|c| {
                if c == '.' {
                    '/'
                } else if c == '/' {
                    '.'
                } else {
                    c
                }
            })
            .collect()
    };
    let usable = |part: &str| {
        !part.is_empty() && part != "." && part != ".." && part.chars().all(|c| c.is_ascii_graphic() && c != '*')
    };
    if path.split('/').all(usable) && path.contains('/') {
        Ok(format!("/proc/sys/{path}"))
    } else {
        Err("write a sysctl's name as in `sysctl.vm.swappiness`".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_and_slashes_are_those_of_sysctl() {
        for (name, want) in [
            ("vm.swappiness", "/proc/sys/vm/swappiness"),
            ("vm/swappiness", "/proc/sys/vm/swappiness"),
            ("net.ipv4.conf.eth0/100.forwarding", "/proc/sys/net/ipv4/conf/eth0.100/forwarding"),
            ("net/ipv4/conf/eth0.100/forwarding", "/proc/sys/net/ipv4/conf/eth0.100/forwarding"),
        ] {
            assert_eq!(path(name).unwrap(), want);
        }
        for name in ["swappiness", "vm.", "vm/../kernel", "vm.swap piness", "vm.*"] {
            assert!(path(name).is_err(), "{name}");
        }
    }
}
