//! `net.*`: the devices between clients and servers.
//!
//! Invariant: a setting is made at both ends and read back at both; a setting that could only be without effect is refused.

use super::accepted_values::AcceptedValues;
use super::runtime::{Lever, LeverTarget, SideEffects};
use bigiron_model::record::FileChange;
use bigiron_sys::network::{Attribute, Offload, PairEnd, TrialLink, VethPair};

/// The error for a study without network devices.
pub const NOBODY: &str = "no workload of this study has clients behind network devices; web has with `web.network=veth`, \
                          net-clients with `net-clients.network=veth`, and dbsim with `dbsim.run.network=veth` and clients whose `transport` \
                          is `tcp`";

/// The link of a trial, created if `wanted`.
///
/// # Errors
/// If it cannot be created.
pub fn link(wanted: bool, make: fn() -> Result<VethPair, String>) -> anyhow::Result<TrialLink> {
    if !wanted {
        return Ok(TrialLink::none(NOBODY));
    }
    make().map(TrialLink::of).map_err(|why| anyhow::anyhow!("No network between clients and servers: {why}"))
}

/// The first kernel whose veth devices have NAPI, and with it GRO, for ordinary traffic.
const NAPI_SINCE: (u32, u32) = (5, 13);

const fn device(name: &'static str, attribute: Attribute, takes: AcceptedValues, summary: &'static str) -> Lever {
    Lever { name, place: LeverTarget::Link(attribute), takes, touches: SideEffects::Nothing, since: None, summary }
}

const fn offload(name: &'static str, offload: Offload, summary: &'static str) -> Lever {
    device(name, Attribute::Offload(offload), AcceptedValues::Switch { on: "on", off: "off" }, summary)
}

const COUNT: AcceptedValues = AcceptedValues::Number { least: 0, most: i32::MAX as i64 };

pub const LEVERS: &[Lever] = &[
    offload("net.tso", Offload::Tso, "TCP hands the device up to 64 KiB at once and lets it split them into packets"),
    offload("net.gso", Offload::Gso, "the same split, done by the kernel just before the device"),
    offload("net.gro", Offload::Gro, "merges packets of a stream on arrival; enables NAPI for veth"),
    device(
        "net.mtu",
        Attribute::File("mtu"),
        AcceptedValues::Number { least: 576, most: 65_535 },
        "maximum bytes of a packet",
    ),
    device(
        "net.napi-threaded",
        Attribute::File("threaded"),
        AcceptedValues::Switch { on: "1", off: "0" },
        "receives packets in a kernel thread instead of in softirqs",
    ),
    device(
        "net.napi-defer-hard-irqs",
        Attribute::File("napi_defer_hard_irqs"),
        COUNT,
        "polling rounds without a packet before interrupts are enabled again",
    ),
    device(
        "net.gro-flush-timeout-ns",
        Attribute::File("gro_flush_timeout"),
        COUNT,
        "nanoseconds between such rounds, and the longest wait of packets for others of their stream",
    ),
];

/// Whether a lever takes effect only with polling.
fn polls(name: &str) -> bool {
    matches!(name, "net.gro" | "net.napi-threaded" | "net.napi-defer-hard-irqs" | "net.gro-flush-timeout-ns")
}

/// Refuses settings that this kernel lacks.
pub(super) fn available(pair: &VethPair, lever: &Lever, text: &str, attribute: Attribute) -> Result<(), String> {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    if polls(lever.name) && !is_off(text) && is_older(&release, NAPI_SINCE) {
        let (major, minor) = NAPI_SINCE;
        return Err(format!(
            "veth devices have no NAPI in {release}; Linux {major}.{minor} is the first where they can"
        ));
    }
    for end in pair.ends() {
        end.read(attribute).map_err(|e| format!("this kernel has no {}: {e}", end.called(attribute)))?;
    }
    Ok(())
}

/// Whether `release` is of a series before `first`; an unparsable release counts as new.
fn is_older(release: &str, first: (u32, u32)) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    matches!((numbers.next(), numbers.next()), (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < first)
}

/// Sets `attribute` at both ends and reads it back.
pub(super) fn apply(
    pair: &VethPair,
    lever: &Lever,
    attribute: Attribute,
    text: &str,
) -> Result<Vec<FileChange>, String> {
    let mut changes = Vec::new();
    for end in pair.ends() {
        let called = end.called(attribute);
        let read = || end.read(attribute).map_err(|e| format!("{called} cannot be read back: {e}"));
        let before = read()?;
        // GRO is set before everything that depends on it.
        if polls(lever.name) && lever.name != "net.gro" && !is_off(text) && !has_gro(end)? {
            let device = end.side.device();
            return Err(format!("{device} polls (NAPI) only while it has GRO; set `net.gro=on` with it"));
        }
        end.write(attribute, text)
            .map_err(|e| format!("the kernel refuses `{text}` for {called}, which is `{before}`: {e}"))?;
        let after = read()?;
        if !lever.takes.is_taken(text, &after) {
            return Err(format!("{called} is `{after}` after `{text}` was set"));
        }
        changes.push(FileChange { path: called, before, after });
    }
    Ok(changes)
}

fn is_off(text: &str) -> bool {
    matches!(text, "0" | "off")
}

fn has_gro(end: &PairEnd) -> Result<bool, String> {
    let read = end.read(Attribute::Offload(Offload::Gro));
    read.map(|value| value == "on").map_err(|e| format!("the kernel does not say whether there is GRO: {e}"))
}

/// The value of `attribute` at each end.
pub fn shown(pair: &VethPair, attribute: Attribute) -> Vec<(String, Result<String, String>)> {
    let read = |end: &PairEnd| (end.called(attribute), end.read(attribute).map_err(|e| e.to_string()));
    pair.ends().into_iter().map(read).collect()
}

/// Sets a sysctl in the pair's other network namespaces, if they have one of that name: such a sysctl exists once per network.
pub(super) fn sysctl(
    pair: &VethPair,
    path: &std::path::Path,
    text: &str,
    takes: AcceptedValues,
) -> Result<Vec<FileChange>, String> {
    use bigiron_sys::kernel_file::{read, write};
    let mut changes = Vec::new();
    for end in pair.ends().into_iter().filter(|end| !end.is_own()) {
        let shown = format!("{} ({})", path.display(), end.side.name());
        let change = end.visit(|| {
            if !path.exists() {
                return Ok(None);
            }
            let say = |e: std::io::Error| format!("`{shown}`: {e}");
            let before = read(path).map_err(say)?.trim().to_owned();
            write(path, text).map_err(say)?;
            let after = read(path).map_err(say)?.trim().to_owned();
            match takes.is_taken(text, &after) {
                true => Ok(Some(FileChange { path: shown.clone(), before, after })),
                false => Err(format!("`{shown}` says `{after}` after `{text}` was written")),
            }
        });
        changes.extend(change.map_err(|e| format!("the namespace of the {} is not available: {e}", end.side.name()))??);
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::path::Path;

    use super::*;
    use crate::lever;
    use crate::lever::apply;
    use crate::lever::site::Site;
    use crate::undo::NoLedger;
    use bigiron_model::setting::Setting;

    fn set(link: &TrialLink, texts: &[&str]) -> Result<Vec<FileChange>, String> {
        let settings: Vec<Setting> = texts.iter().map(|text| lever::parse(text).unwrap()).collect();
        let site = Site { root: Path::new("/"), disks: Err("no disk".to_owned()), link };
        apply::apply(&settings, &site, &mut NoLedger).map(|applied| applied.changes)
    }

    /// A pair for the tests, if they run as root on a kernel with NAPI.
    fn made() -> Option<TrialLink> {
        let pair = VethPair::make().and_then(|pair| {
            available(&pair, &LEVERS[2], "on", Attribute::Offload(Offload::Gro)).map(|()| TrialLink::of(pair))
        });
        // Not by `eprintln!`, which the harness shows only for failed tests.
        let skipped = |why| drop(writeln!(std::io::stderr(), "SKIPPED levers of network devices: {why}"));
        pair.map_err(skipped).ok()
    }

    #[test]
    fn each_is_set_at_both_ends_and_read_back() {
        let Some(link) = made() else { return };
        // Polling is switched on first, whatever the order of settings.
        let changes = set(
            &link,
            &[
                "net.napi-threaded=on",
                "net.gro-flush-timeout-ns=20000",
                "net.napi-defer-hard-irqs=2",
                "net.gro=on",
                "net.tso=off",
                "net.gso=off",
                "net.mtu=9000",
            ],
        )
        .unwrap();
        let lines: Vec<String> = changes.iter().map(|c| format!("{}: {} → {}", c.path, c.before, c.after)).collect();
        assert_eq!(lines[..2], ["gro of bigiron0 (servers): off → on", "gro of bigiron1 (clients): off → on"]);
        assert_eq!(lines[2], "/sys/class/net/bigiron0/threaded (servers): 0 → 1");
        assert_eq!(lines.len(), 14, "{lines:#?}");
        for name in ["net.tso", "net.gso"] {
            assert!(lines.contains(&format!("{} of bigiron1 (clients): on → off", &name[4..])), "{lines:#?}");
        }
        // None of it is on this machine itself.
        assert!(!Path::new("/sys/class/net/bigiron0").exists());
    }

    #[test]
    fn what_would_do_nothing_is_refused() {
        let Some(link) = made() else { return };
        for text in ["net.napi-threaded=on", "net.napi-defer-hard-irqs=2", "net.gro-flush-timeout-ns=20000"] {
            let why = set(&link, &[text]).unwrap_err();
            assert!(
                why.starts_with(&format!("Lever `{text}` did not take")) && why.ends_with("`net.gro=on` with it"),
                "{why}"
            );
        }
    }

    #[test]
    fn a_sysctl_of_each_network_is_set_in_both_and_one_of_the_machine_in_none() {
        let Some(link) = made() else { return };
        let pair = link.get().unwrap();
        let set = |name: &str, text| {
            sysctl(pair, &Path::new("/proc/sys/net").join(name), text, AcceptedValues::Text).unwrap()
        };
        let changes = set("ipv4/tcp_syncookies", "0");
        let whose: Vec<(&str, &str)> = changes.iter().map(|c| (c.path.as_str(), c.after.as_str())).collect();
        assert_eq!(
            whose,
            [
                ("/proc/sys/net/ipv4/tcp_syncookies (servers)", "0"),
                ("/proc/sys/net/ipv4/tcp_syncookies (clients)", "0")
            ]
        );
        assert_eq!(set("core/netdev_budget", "1"), []);
    }

    #[test]
    fn a_release_is_held_against_the_first_series() {
        for (release, older) in [
            ("5.10.0-46-cloud-amd64", true),
            ("5.12.19", true),
            ("5.13.0-rc1", false),
            ("6.1.0-56-cloud-amd64", false),
            ("4.18.0-553.el8", true),
            ("next", false),
        ] {
            assert_eq!(is_older(release, NAPI_SINCE), older, "{release}");
        }
    }
}
