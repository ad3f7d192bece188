//! Tests whether a guest runs under KVM here. `/dev/kvm` may exist and not work (nested, incomplete, forbidden), so a guest is
//! booted.
//!
//! Invariant: KVM counts as usable only after this kernel-and-QEMU pair of the host has run the agent to its orderly end. That it is not is
//! remembered only if QEMU itself said so of this host: a guest that does not come up, or that KVM cannot go on with, may have had a bad kernel,
//! and a host that lacked something may have been busy. Such a failure holds for an hour, so that each command does not wait for it again.

use std::fs::OpenOptions;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::agent;
use super::initramfs::Archive;
use super::process::Process;
use super::qemu::{Accelerator, Config, Qemu};
use super::watch::Watch;
use crate::protocol;
use crate::protocol::{GuestEvent, GuestJob};
use bigiron_model::clock::Clock;
use bigiron_sys::this_machine;

/// A guest under KVM is up in 2 s; one that takes longer than this is useless for measurements.
const LIMIT: Duration = Duration::from_secs(30);

/// What is known of KVM here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvmStatus {
    pub usable: bool,
    /// Why not, or what was seen to work.
    pub reason: String,
    /// Whether a guest must do without `IA32_ARCH_CAPABILITIES`.
    #[serde(default)]
    without_capabilities: bool,
    /// What the answer holds for: host kernel; QEMU's version, build and program; version of the probe.
    host: String,
    /// Until when a failure holds that may pass; `None`: as long as the host is the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<SinceBoot>,
}

/// A time of one run of the host's kernel, which no clock that can be set affects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SinceBoot {
    boot: String,
    seconds: u64,
}

impl SinceBoot {
    fn now() -> SinceBoot {
        let seconds = rustix::time::clock_gettime(rustix::time::ClockId::Boottime).tv_sec;
        SinceBoot { boot: this_machine::boot_id(), seconds: u64::try_from(seconds).unwrap_or(0) }
    }

    /// Whether this time is still to come.
    fn is_ahead_of(&self, now: &SinceBoot) -> bool {
        self.boot == now.boot && now.seconds < self.seconds
    }
}

/// Seconds for which a failure holds that may pass.
const HOUR: u64 = 3600;

impl KvmStatus {
    fn no(host: &str, reason: String) -> Self {
        Self { usable: false, reason, without_capabilities: false, host: host.to_owned(), until: None }
    }

    /// What guests run under if it is usable.
    pub fn accelerator(&self) -> Accelerator {
        if self.without_capabilities { Accelerator::KvmWithoutCapabilities } else { Accelerator::Kvm }
    }
}

/// How a boot under KVM ended.
#[derive(Debug, PartialEq)]
enum KvmBootEnd {
    /// In order, after so long.
    Up(Duration),
    /// QEMU gave up: what it said.
    Refused(String),
    /// Something else went wrong, of which KVM need not be the cause.
    Failed(String),
}

/// What QEMU and the kernel's KVM say when this host cannot run this guest, whatever its kernel.
const REFUSALS: &[&str] = &[
    "failed to initialize kvm",
    "failed to initialize KVM",
    "failed to set MSR",
    "KVM kernel module",
    "kvm_init_vcpu",
    "kvm_buf_set_msrs",
    "KVM_CREATE_VM",
    "requires KVM",
];

/// What KVM says when it cannot go on with a guest: this host's doing, or that of what the guest's kernel did.
const STOPS: &[&str] = &["KVM internal error", "KVM: entry failed"];

/// Errors of a host that may be over when the next study asks.
const PASSING: &[&str] = &[
    "Cannot allocate memory",
    "Device or resource busy",
    "Interrupted system call",
    "Resource temporarily unavailable",
    "Too many open files",
];

/// What QEMU says on a host that keeps `IA32_ARCH_CAPABILITIES` (MSR 0x10a) to itself.
const CAPABILITIES: &str = "failed to set MSR 0x10a";

/// Whether guests run under KVM, by booting `kernel` once; remembered in `cache` until the host's kernel or QEMU changes.
///
/// # Errors
/// The probe itself cannot be made (disk full, this executable unreadable): says nothing about KVM.
pub fn kvm(cache: &Path, qemu: &Qemu, kernel: &Path) -> anyhow::Result<KvmStatus> {
    if let Some(known) = without_boot(cache, qemu) {
        return Ok(known);
    }
    probe(cache, &host(qemu), &mut |accelerator| boot(qemu, kernel, accelerator))
}

/// Boots a guest, and again without what the host keeps to itself, and remembers what that shows.
fn probe(
    cache: &Path,
    host: &str,
    boot: &mut dyn FnMut(Accelerator) -> anyhow::Result<KvmBootEnd>,
) -> anyhow::Result<KvmStatus> {
    let mut without_capabilities = false;
    let mut booted = boot(Accelerator::Kvm)?;
    if matches!(&booted, KvmBootEnd::Refused(why) if why.contains(CAPABILITIES)) {
        without_capabilities = true;
        booted = boot(Accelerator::KvmWithoutCapabilities)?;
    }
    let no = |why: &str| KvmStatus::no(host, format!("/dev/kvm is there, but a guest does not boot under it: {why}"));
    let kvm = match booted {
        KvmBootEnd::Up(took) => {
            let less = if without_capabilities { " with arch-capabilities=off" } else { "" };
            let reason = format!("a guest booted under it{less} in {:.1} s", took.as_secs_f64());
            KvmStatus { usable: true, reason, without_capabilities, host: host.to_owned(), until: None }
        }
        KvmBootEnd::Refused(why) => no(&why),
        KvmBootEnd::Failed(why) => {
            let now = SinceBoot::now();
            let until = SinceBoot { seconds: now.seconds + HOUR, ..now };
            KvmStatus { until: Some(until), ..no(&format!("{why}; it is tried again in an hour")) }
        }
    };
    std::fs::create_dir_all(cache)?;
    std::fs::write(cache.join("kvm.toml"), toml::to_string(&kvm)?).context("Cannot remember what KVM can do")?;
    Ok(kvm)
}

/// What a VM that ended, or was out of time, has shown by what QEMU said.
fn judged(said: &str, otherwise: &str) -> KvmBootEnd {
    let line_with = |words: &[&str]| said.lines().find(|line| words.iter().any(|words| line.contains(words)));
    let first = said.lines().find(|line| !line.trim().is_empty()).unwrap_or("QEMU said nothing");
    match (line_with(PASSING).or(line_with(STOPS)), line_with(REFUSALS)) {
        (Some(line), _) => KvmBootEnd::Failed(line.to_owned()),
        (None, Some(line)) => KvmBootEnd::Refused(line.to_owned()),
        (None, None) => KvmBootEnd::Failed(format!("{otherwise} ({first})")),
    }
}

/// What is known of KVM without booting anything: that it cannot work, or what an earlier probe found.
pub fn without_boot(cache: &Path, qemu: &Qemu) -> Option<KvmStatus> {
    let host = host(qemu);
    impossible().map(|why| KvmStatus::no(&host, why)).or_else(|| remembered(cache, &host))
}

/// Why no QEMU can run a guest under KVM here; `None` if one may.
pub fn impossible() -> Option<String> {
    if !Path::new("/dev/kvm").exists() {
        return Some("there is no /dev/kvm".to_owned());
    }
    let opened = OpenOptions::new().read(true).write(true).open("/dev/kvm");
    opened.err().map(|e| format!("/dev/kvm cannot be opened ({e})"))
}

/// What an earlier probe on this host found, if it still holds.
fn remembered(cache: &Path, host: &str) -> Option<KvmStatus> {
    let known: KvmStatus = toml::from_str(&std::fs::read_to_string(cache.join("kvm.toml")).ok()?).ok()?;
    let holds = known.until.as_ref().is_none_or(|until| until.is_ahead_of(&SinceBoot::now()));
    (known.host == host && holds).then_some(known)
}

/// What an answer holds for.
fn host(qemu: &Qemu) -> String {
    let uname = rustix::system::uname();
    // Probes before the second remembered every failure.
    let (release, version) = (uname.release().to_string_lossy(), uname.version().to_string_lossy());
    // The pinned QEMU and an installed one can have the same version and differ in their build, which some do not name.
    let build = qemu.build.as_deref().unwrap_or("no build named");
    format!("{release} {version}, QEMU {} ({build}) at {}, probe 2", qemu.version, qemu.program.display())
}

fn boot(qemu: &Qemu, kernel: &Path, accelerator: Accelerator) -> anyhow::Result<KvmBootEnd> {
    let dir = tempfile::tempdir()?;
    let file = |name: &str| dir.path().join(name);
    let job = GuestJob::new(Clock::Wall, 0);
    let mut archive = Archive::new();
    archive
        .directory("/dev", 0o755)
        .character_device("/dev/console", 0o600, 5, 1)
        .file("/init", 0o755, &agent::executable().context("Cannot read this executable")?)
        .file(protocol::JOB_PATH, 0o644, &serde_json::to_vec(&job)?);
    std::fs::write(file("initramfs"), archive.finish())?;
    let config = Config {
        clock: Clock::Wall,
        accelerator,
        cpus: 1,
        memory_bytes: 512 << 20,
        nodes: 1,
        threads: 1,
        seed: 1,
        kernel,
        initramfs: &file("initramfs"),
        cmdline: &[],
        console: &file("console"),
        events: &file("events"),
        acks: None,
        disks: &[],
        pmems: &[],
        plugin: None,
        counts: None,
    };
    let begun = Instant::now();
    let mut process = Process::start(qemu, &config, None, &file("errors"))?;
    let mut watch = Watch::new(&file("events"), &file("console"), u32::MAX / 100);
    let mut done = false;
    loop {
        let ended = process.ended()?;
        done |= watch.read().is_ok_and(|said| said.contains(&Ok(GuestEvent::Done)));
        if ended.is_some_and(|s| done && s.code() == Some(protocol::EXIT_DONE_STATUS)) {
            return Ok(KvmBootEnd::Up(begun.elapsed()));
        }
        let errors = process.errors();
        if let Some(status) = ended {
            return Ok(judged(&errors, &format!("it ended with {status}")));
        }
        // It pauses there.
        if STOPS.iter().any(|words| errors.contains(words)) {
            return Ok(judged(&errors, ""));
        }
        if begun.elapsed() > LIMIT {
            return Ok(judged(&errors, &format!("no sign of life within {} s", LIMIT.as_secs())));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::qemu::Version;

    const MSR: &str =
        "qemu-system-x86_64: error: failed to set MSR 0x10a to 0x2000000000\nqemu: kvm_buf_set_msrs: Assertion failed";

    /// What comes of a probe whose boots end so, what is remembered, and what was booted.
    fn probed(mut ends: Vec<KvmBootEnd>) -> (KvmStatus, Option<KvmStatus>, Vec<Accelerator>) {
        let cache = tempfile::tempdir().unwrap();
        let mut tried = Vec::new();
        let kvm = probe(cache.path(), "here", &mut |accelerator| {
            tried.push(accelerator);
            Ok(ends.remove(0))
        });
        (kvm.unwrap(), remembered(cache.path(), "here"), tried)
    }

    #[test]
    fn what_works_and_what_qemu_refuses_is_remembered() {
        let (kvm, kept, tried) = probed(vec![KvmBootEnd::Up(Duration::from_secs(2))]);
        assert!(kvm.usable && kvm.accelerator() == Accelerator::Kvm, "{kvm:?}");
        assert_eq!((kept, tried), (Some(kvm), vec![Accelerator::Kvm]));
        let absent = "qemu-system-x86_64: failed to initialize kvm: No such device";
        let (kvm, kept, _) = probed(vec![judged(absent, "it ended with exit status: 1")]);
        assert!(!kvm.usable && kvm.reason.ends_with("failed to initialize kvm: No such device"), "{kvm:?}");
        assert_eq!(kept, Some(kvm));
    }

    #[test]
    fn what_a_kernel_or_a_busy_host_may_have_done_is_remembered_for_an_hour() {
        let ends = [
            judged("", "no sign of life within 30 s"),
            judged("oops", "it ended with exit status: 0"),
            judged("KVM internal error. Suberror: 1\nemulation failure\nRAX=0", ""),
            judged("KVM: entry failed, hardware error 0x80000021", ""),
            judged(
                "ioctl(KVM_CREATE_VM) failed: 16 Device or resource busy\nfailed to initialize kvm: Device or resource busy",
                "",
            ),
            judged("kvm_init_vcpu: kvm_get_vcpu failed (0): Cannot allocate memory", ""),
        ];
        for end in ends {
            let (kvm, kept, tried) = probed(vec![end]);
            assert!(!kvm.usable && kvm.reason.ends_with("it is tried again in an hour"), "{kvm:?}");
            assert_eq!((kept.as_ref(), tried.len()), (Some(&kvm), 1));
            let until = kvm.until.unwrap();
            let now = SinceBoot::now();
            assert!(until.is_ahead_of(&now) && until.seconds <= now.seconds + HOUR);
            assert!(!until.is_ahead_of(&SinceBoot { seconds: now.seconds + HOUR, ..now.clone() }), "an hour later");
            assert!(!until.is_ahead_of(&SinceBoot { boot: "another".to_owned(), ..now }), "after a reboot");
        }
    }

    #[test]
    fn an_answer_holds_for_one_build_and_one_program() {
        let host = |program: &str, build: Option<&str>| {
            let mut qemu = Qemu::named(program.into(), Version(7, 2, 22));
            qemu.build = build.map(str::to_owned);
            host(&qemu)
        };
        let (pinned, system) = ("/cache/qemu/bin/qemu", "/usr/bin/qemu");
        let (one, other) = (Some("Debian 1:7.2-b3"), Some("Debian 1:7.2-b4"));
        let hosts = [host(pinned, one), host(pinned, other), host(system, one), host(system, None)];
        for (i, one) in hosts.iter().enumerate() {
            assert!(!hosts[..i].contains(one), "{one}");
        }
        assert_eq!(host(system, one), hosts[2]);
    }

    #[test]
    fn a_host_that_keeps_its_capabilities_runs_guests_without_them() {
        let (kvm, kept, tried) = probed(vec![judged(MSR, "it ended"), KvmBootEnd::Up(Duration::from_secs(2))]);
        assert_eq!(tried, [Accelerator::Kvm, Accelerator::KvmWithoutCapabilities]);
        assert!(kvm.usable && kvm.reason.contains("arch-capabilities=off"), "{kvm:?}");
        assert_eq!(kvm.accelerator().host_cpu(), "host,arch-capabilities=off");
        assert_eq!(kept, Some(kvm));
        let (kvm, kept, _) = probed(vec![judged(MSR, "it ended"), judged("", "no sign of life")]);
        assert!(!kvm.usable && kept.unwrap().until.is_some());
    }
}
