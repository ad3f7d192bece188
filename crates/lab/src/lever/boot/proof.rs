//! Where a running kernel shows the effect of a word of its command line.
//!
//! Invariant: a proof is an effect in the kernel, never the command line itself; a parameter without a proof here is judged by
//! the kernel's complaints alone.

use super::super::same_value;
use super::BootedCommandLine;
use crate::undo::chosen;
use bigiron_model::size;
use bigiron_sys::cpu_list;

const CPUS: &str = "/sys/devices/system/cpu";

/// Whether the kernel shows that `name=value` took effect; `None` if it shows nothing about this parameter. `words` is the whole
/// command line, in order.
pub(super) fn prove(
    name: &str,
    value: Option<&str>,
    words: &[&str],
    seen: &BootedCommandLine<'_>,
) -> Option<Result<(), String>> {
    let text = value.unwrap_or("");
    match name {
        "transparent_hugepage" => Some(shown("/sys/kernel/mm/transparent_hugepage/enabled", text, seen)),
        "preempt" => preempt(text, seen),
        "mitigations" => mitigations(text, seen),
        "pti" | "nopti" => pti(if name == "nopti" { "off" } else { text }, seen),
        "hugepages" => Some(hugepages(text, words, seen)),
        "hugepagesz" | "default_hugepagesz" => Some(hugepagesz(name, text, seen)),
        "numa" => text.strip_prefix("fake=").map(|fake| nodes(fake, seen)),
        "isolcpus" => isolated(text, seen),
        "nohz_full" => cpu_list::parse(text).map(|cpus| listed(&format!("{CPUS}/nohz_full"), &cpus, seen)),
        "maxcpus" | "nr_cpus" => text.parse().ok().map(|n| online(n, seen)),
        "mem" => size::parse_bytes(text).ok().map(|bytes| memory(bytes, seen)),
        "elevator" => elevator(seen),
        _ => None,
    }
}

/// The text of a file that must exist.
fn read(path: &str, seen: &BootedCommandLine<'_>) -> Result<String, String> {
    (seen.read)(path).map(|text| text.trim().to_owned()).ok_or_else(|| unreadable(path))
}

pub(super) fn unreadable(path: &str) -> String {
    format!("`{path}` cannot be read, so nothing shows that it took")
}

pub(super) fn shown(path: &str, want: &str, seen: &BootedCommandLine<'_>) -> Result<(), String> {
    let text = read(path, seen)?;
    let got = chosen(&text);
    if same_value(got, want) { Ok(()) } else { Err(format!("`{path}` says `{got}`")) }
}

fn preempt(want: &str, seen: &BootedCommandLine<'_>) -> Option<Result<(), String>> {
    // A kernel without debugfs shows it nowhere; one that cannot choose does not know the parameter, which is detected elsewhere.
    let path = "/sys/kernel/debug/sched/preempt";
    let text = (seen.read)(path)?;
    let offered: Vec<&str> = text.split_whitespace().map(|w| w.trim_matches(['(', ')'])).collect();
    if !offered.contains(&want) {
        return Some(Err(format!("the kernel offers {} (`{path}`)", offered.join(", "))));
    }
    Some(shown(path, want, seen))
}

/// Every x86 CPU is subject to Spectre v1, so its state shows whether mitigations are on.
fn mitigations(want: &str, seen: &BootedCommandLine<'_>) -> Option<Result<(), String>> {
    let path = "/sys/devices/system/cpu/vulnerabilities/spectre_v1";
    let text = (seen.read)(path)?;
    let text = text.trim();
    let mitigated = text.starts_with("Mitigation");
    if !mitigated && !text.starts_with("Vulnerable") {
        return None;
    }
    let wanted = want != "off";
    Some(if mitigated == wanted { Ok(()) } else { Err(format!("`{path}` says `{text}`")) })
}

fn pti(want: &str, seen: &BootedCommandLine<'_>) -> Option<Result<(), String>> {
    let is_on = seen.log.contains("Kernel/User page tables isolation: enabled");
    match (want, is_on) {
        ("on", false) => Some(Err("the kernel's log does not report isolated page tables".to_owned())),
        ("off", true) => Some(Err("the kernel logged `Kernel/User page tables isolation: enabled`".to_owned())),
        ("on" | "off", _) => Some(Ok(())),
        _ => None,
    }
}

/// KiB of a huge-page size as written on the command line.
fn kib(text: &str) -> Option<u64> {
    size::parse_bytes(text).ok().map(|bytes| bytes >> 10)
}

/// The pages have the size of the last `hugepagesz` before them, else the default size.
fn hugepages(want: &str, words: &[&str], seen: &BootedCommandLine<'_>) -> Result<(), String> {
    let at = words.iter().position(|w| *w == format!("hugepages={want}")).unwrap_or(words.len());
    let size = words[..at].iter().rev().find_map(|w| w.strip_prefix("hugepagesz=")).and_then(kib);
    let path = match size {
        Some(kib) => format!("/sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages"),
        None => "/proc/sys/vm/nr_hugepages".to_owned(),
    };
    // On several nodes: `0:4,1:4`.
    let pages = |part: &str| part.rsplit(':').next().and_then(|n| n.parse::<u64>().ok());
    let wanted = want.split(',').map(pages).sum::<Option<u64>>().ok_or("it is not a number of pages")?;
    let got = read(&path, seen)?;
    if got.parse() == Ok(wanted) { Ok(()) } else { Err(format!("`{path}` says `{got}`")) }
}

fn hugepagesz(name: &str, want: &str, seen: &BootedCommandLine<'_>) -> Result<(), String> {
    let kib = kib(want).ok_or("it is not a size of huge pages")?;
    if name == "default_hugepagesz" {
        let meminfo = read("/proc/meminfo", seen)?;
        let got = field(&meminfo, "Hugepagesize:").ok_or("/proc/meminfo shows no `Hugepagesize`")?;
        return if got == kib { Ok(()) } else { Err(format!("/proc/meminfo says `Hugepagesize: {got} kB`")) };
    }
    let path = format!("/sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages");
    read(&path, seen).map(drop).map_err(|_| format!("there is no `{path}`: the CPU has no pages of that size"))
}

/// A field of /proc/meminfo, in KiB.
fn field(meminfo: &str, name: &str) -> Option<u64> {
    meminfo.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB")?.parse().ok())
}

fn nodes(fake: &str, seen: &BootedCommandLine<'_>) -> Result<(), String> {
    let path = "/sys/devices/system/node/online";
    let got = read(path, seen)?;
    let nodes = cpu_list::parse(&got).map_or(0, |nodes| nodes.len());
    let enough = fake.parse().map_or(nodes > 1, |want: usize| nodes == want);
    if enough {
        return Ok(());
    }
    Err(format!(
        "`{path}` says `{got}`: this kernel was built without CONFIG_NUMA_EMU, or has too little memory to split"
    ))
}

fn isolated(want: &str, seen: &BootedCommandLine<'_>) -> Option<Result<(), String>> {
    let is_flag = |word: &&str| word.starts_with(|c: char| c.is_ascii_alphabetic());
    let (flags, lists): (Vec<&str>, Vec<&str>) = want.split(',').partition(is_flag);
    // Only CPUs without a scheduling domain count.
    if !flags.is_empty() && !flags.contains(&"domain") {
        return None;
    }
    let cpus = cpu_list::parse(&lists.join(","))?;
    Some(listed(&format!("{CPUS}/isolated"), &cpus, seen))
}

/// Whether a file lists exactly the possible CPUs among `want`, at least one.
fn listed(path: &str, want: &[u32], seen: &BootedCommandLine<'_>) -> Result<(), String> {
    let possible = cpu_list::parse(&read(&format!("{CPUS}/possible"), seen)?).unwrap_or_default();
    let want: Vec<u32> = want.iter().copied().filter(|cpu| possible.contains(cpu)).collect();
    let got = read(path, seen)?;
    if !want.is_empty() && cpu_list::parse(&got).unwrap_or_default() == want {
        Ok(())
    } else {
        Err(format!("`{path}` says `{got}`"))
    }
}

fn online(most: usize, seen: &BootedCommandLine<'_>) -> Result<(), String> {
    let count =
        |file: &str| Ok::<_, String>(cpu_list::parse(&read(&format!("{CPUS}/{file}"), seen)?).map_or(0, |c| c.len()));
    let (online, present) = (count("online")?, count("present")?);
    if online == most.min(present).max(1) { Ok(()) } else { Err(format!("{online} of {present} CPUs are online")) }
}

fn memory(bytes: u64, seen: &BootedCommandLine<'_>) -> Result<(), String> {
    let meminfo = read("/proc/meminfo", seen)?;
    let total = field(&meminfo, "MemTotal:").ok_or("/proc/meminfo shows no `MemTotal`")?;
    if total << 10 <= bytes { Ok(()) } else { Err(format!("/proc/meminfo says `MemTotal: {total} kB`")) }
}

/// Since Linux 5.4 the parameter is known but has no effect.
fn elevator(seen: &BootedCommandLine<'_>) -> Option<Result<(), String>> {
    let line = seen.log.lines().find(|line| line.contains("elevator= does not have any effect"))?;
    Some(Err(format!("the kernel logged `{line}`; the lever `block.scheduler` sets it")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proved(word: &str, cmdline: &str, log: &str, files: &[(&str, &str)]) -> Option<Result<(), String>> {
        let read = |path: &str| files.iter().find(|(p, _)| *p == path).map(|(_, text)| (*text).to_owned());
        let seen = BootedCommandLine { cmdline, log, init_args: &[], init_environment: &[], read: &read };
        let words: Vec<&str> = cmdline.split_ascii_whitespace().collect();
        let (name, value) = word.split_once('=').map_or((word, None), |(n, v)| (n, Some(v)));
        prove(name, value, &words, &seen)
    }

    #[test]
    fn what_the_kernel_shows_decides() {
        const TWO: (&str, &str) = ("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "64\n");
        const ONE: (&str, &str) = ("/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "1\n");
        const POSSIBLE: (&str, &str) = ("/sys/devices/system/cpu/possible", "0-3\n");
        const PREEMPT: (&str, &str) = ("/sys/kernel/debug/sched/preempt", "none voluntary (full) \n");
        const SPECTRE: &str = "/sys/devices/system/cpu/vulnerabilities/spectre_v1";
        const PTI: &str = "Kernel/User page tables isolation: enabled";
        // (word, command line, log, files, whether it took effect)
        type Case<'a> = (&'a str, &'a str, &'a str, &'a [(&'a str, &'a str)], bool);
        let cases: &[Case<'_>] = &[
            ("preempt=full", "", "", &[PREEMPT], true),
            ("preempt=none", "", "", &[PREEMPT], false),
            ("preempt=lazy", "", "", &[PREEMPT], false),
            ("mitigations=off", "", "", &[(SPECTRE, "Vulnerable: __user pointer sanitization\n")], true),
            ("mitigations=off", "", "", &[(SPECTRE, "Mitigation: usercopy/swapgs barriers\n")], false),
            ("mitigations=auto,nosmt", "", "", &[(SPECTRE, "Mitigation: usercopy/swapgs barriers\n")], true),
            ("pti=on", "", PTI, &[], true),
            ("pti=on", "", "", &[], false),
            ("nopti", "", PTI, &[], false),
            ("pti=off", "", "", &[], true),
            ("hugepages=64", "hugepagesz=2M hugepages=64", "", &[TWO, ONE], true),
            ("hugepages=2", "hugepagesz=1G hugepages=2 hugepagesz=2M hugepages=64", "", &[TWO, ONE], false),
            ("hugepages=64", "hugepages=64", "", &[("/proc/sys/vm/nr_hugepages", "37\n")], false),
            ("hugepages=0:32,1:32", "hugepages=0:32,1:32", "", &[("/proc/sys/vm/nr_hugepages", "64\n")], true),
            ("hugepagesz=1G", "", "", &[TWO], false),
            ("default_hugepagesz=1G", "", "", &[("/proc/meminfo", "Hugepagesize:    1048576 kB\n")], true),
            ("numa=fake=4", "", "", &[("/sys/devices/system/node/online", "0-3\n")], true),
            ("numa=fake=4", "", "", &[("/sys/devices/system/node/online", "0\n")], false),
            ("isolcpus=1-3", "", "", &[POSSIBLE, ("/sys/devices/system/cpu/isolated", "1-3\n")], true),
            ("isolcpus=domain,managed_irq,1", "", "", &[POSSIBLE, ("/sys/devices/system/cpu/isolated", "1\n")], true),
            ("isolcpus=7", "", "", &[POSSIBLE, ("/sys/devices/system/cpu/isolated", "\n")], false),
            ("nohz_full=1-3", "", "", &[POSSIBLE, ("/sys/devices/system/cpu/nohz_full", "(null)\n")], false),
            ("nohz_full=1-3", "", "", &[POSSIBLE, ("/sys/devices/system/cpu/nohz_full", "1-3\n")], true),
            (
                "maxcpus=1",
                "",
                "",
                &[("/sys/devices/system/cpu/online", "0\n"), ("/sys/devices/system/cpu/present", "0-3\n")],
                true,
            ),
            (
                "maxcpus=2",
                "",
                "",
                &[("/sys/devices/system/cpu/online", "0-3\n"), ("/sys/devices/system/cpu/present", "0-3\n")],
                false,
            ),
            ("mem=512M", "", "", &[("/proc/meminfo", "MemTotal:  480000 kB\n")], true),
            ("mem=512M", "", "", &[("/proc/meminfo", "MemTotal: 1000000 kB\n")], false),
            ("elevator=bfq", "", "Kernel parameter elevator= does not have any effect anymore.", &[], false),
        ];
        for (word, cmdline, log, files, takes) in cases {
            let proof = proved(word, cmdline, log, files).unwrap_or_else(|| panic!("{word}: nothing is shown"));
            assert_eq!(proof.is_ok(), *takes, "{word}: {proof:?}");
        }
    }

    #[test]
    fn what_is_shown_nowhere_is_left_to_the_kernels_complaints() {
        for word in ["preempt=full", "mitigations=off", "isolcpus=managed_irq,1", "nosmt", "elevator=noop", "quiet"] {
            assert_eq!(proved(word, "", "", &[]), None, "{word}");
        }
    }
}
