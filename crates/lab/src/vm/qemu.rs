//! The arguments of a VM.
//!
//! Invariant: every chardev is a file. Sockets and host-backed devices would let the host's time into the exact clock.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub use super::program::{PROGRAM, Qemu, QemuError, Version};
use crate::protocol::ACK_PORT;
use crate::vm::disk::Disk;
use crate::vm::profile::{self, Plugin};
use bigiron_model::clock::Clock;
use bigiron_profile::Weights;

/// The CPU of an exact-clock guest. A named model with SSE4.2 (without it table CRCs fake regressions), the mitigations of a real server, and ERMS and
/// FSRM, as later processors of the family and Intel's have them, so that kernels copy by the routines that they use there.
/// It has RDRAND, which QEMU's `-seed` feeds: so a boot's seed decides KASLR.
///
/// QEMU before 10 executes `rep movsb` without knowing the flag FSRM, and must be forced to show it; what else it does not know and could not execute is
/// taken from the model, so that all versions show the same CPU.
pub const EXACT_CPU: &str = "EPYC-Rome,erms=on,fsrm=on,x-force-features=on,rdseed=off,sha-ni=off,rdpid=off,fxsr-opt=off,misalignsse=off,\
                             3dnowprefetch=off,osvw=off,topoext=off,perfctr-core=off,clzero=off,xsaveerptr=off,wbnoinvd=off,ibpb=off,\
                             amd-stibp=off,nrip-save=off,xsavec=off,xsaves=off";

/// The CPU of guests for which each iteration of a `rep` string instruction is an instruction: without ERMS and FSRM.
pub const CPU_WITHOUT_REP: &str = "EPYC-Rome,erms=off,fsrm=off";

/// The first version whose round robin between vCPUs lets kernels before 6.12 boot with several CPUs under the exact clock.
pub const FAIR_ROUND_ROBIN: Version = Version(8, 1, 0);

/// What repeated moves of memory cost on [`Clock::Exact`]. Other weights are another version of that clock.
pub const WEIGHTS: Weights = Weights::ROME;

/// Nanoseconds by which a vCPU may be ahead of another on [`Clock::ExactParallel`]. Another number is another version of that clock. Locks that are held
/// for less are not contended as they should be; a smaller quantum has more turns, each of which costs the host time.
pub const QUANTUM_NS: u32 = 50;

/// How a guest's instructions are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    Kvm,
    /// KVM on a host that keeps `IA32_ARCH_CAPABILITIES` to itself, so that a guest with all of its CPU does not start.
    KvmWithoutCapabilities,
    Tcg,
}

impl Accelerator {
    pub fn name(self) -> &'static str {
        match self {
            Accelerator::Kvm | Accelerator::KvmWithoutCapabilities => "kvm",
            Accelerator::Tcg => "tcg",
        }
    }

    /// The CPU of a guest that is as fast as the host.
    pub fn host_cpu(self) -> &'static str {
        match self {
            Accelerator::KvmWithoutCapabilities => "host,arch-capabilities=off",
            Accelerator::Kvm | Accelerator::Tcg => "host",
        }
    }
}

/// Everything that decides what a VM is.
#[derive(Clone)]
pub struct Config<'a> {
    pub clock: Clock,
    pub accelerator: Accelerator,
    pub cpus: u32,
    pub memory_bytes: u64,
    /// NUMA nodes; with one there is no topology. CPUs are whole multiples of the nodes that have any.
    pub nodes: u32,
    /// CPUs of a core; a node's are whole multiples of them.
    pub threads: u32,
    /// Feeds QEMU's random source, and so the guest's RDRAND.
    pub seed: u64,
    pub kernel: &'a Path,
    pub initramfs: &'a Path,
    /// Words that levers put on the command line, after bigiron's own.
    pub cmdline: &'a [String],
    /// Files that QEMU writes: the guest's console and its events.
    pub console: &'a Path,
    pub events: &'a Path,
    /// Where acknowledgements go, of a guest that is going to lose its power.
    pub acks: Option<&'a Path>,
    pub disks: &'a [Disk],
    pub pmems: &'a [Pmem],
    /// What drives the exact clock and counts the guest's instructions; for [`Clock::Exact`] it is needed.
    pub plugin: Option<&'a Plugin>,
    /// What the plugin counts, if it does.
    pub counts: Option<profile::Counts<'a>>,
}

/// A file that the guest sees as persistent memory, in the slot of its place in the order given. What the guest writes there is its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pmem {
    pub path: PathBuf,
    /// Its length, a multiple of 2 MiB.
    pub bytes: u64,
}

/// The word that takes `rep_good` (bit 16 of word 3 of `asm/cpufeatures.h`) from a CPU whose `rep` string instructions are counted iteration by iteration:
/// kernels before 6.4 copy and clear with `rep movsq` where it is set, later ones look at FSRM and ERMS alone, so that the same copy would count for
/// a third of the instructions in the older kernel (docs/concepts/clocks.md).
pub const NO_REP: &str = "clearcpuid=112";

/// Words of the kernel's command line that are bigiron's own, in every boot.
pub const CMDLINE: &[&str] = &["console=ttyS0", "quiet", "rdinit=/init", "panic=-1", "no_timer_check"];

/// Words that spare a boot whose every instruction costs what no window measures: the tests that cryptographic algorithms run of themselves, and
/// a source of randomness that counts jitter, of which there is none.
pub const NO_SELF_TESTS: &str = "cryptomgr.notests initcall_blacklist=jent_mod_init";

/// The arguments of QEMU for `config`.
pub fn arguments(config: &Config<'_>) -> Vec<OsString> {
    let mut args = Vec::new();
    args.extend(clock_arguments(config.clock, config.accelerator, config.seed));
    args.extend(machine_arguments(config));
    args.extend(channel_arguments(config));
    args.extend(disk_arguments(config.disks));
    args.extend(pmem_arguments(config.pmems));
    args.extend(kernel_arguments(config));
    let weights = config.clock.charges_moves().then_some(&WEIGHTS);
    args.extend(
        config
            .plugin
            .iter()
            .flat_map(|plugin| plugin.arguments(weights, config.clock == Clock::ExactParallel, config.counts.as_ref())),
    );
    args
}

fn words<const N: usize>(words: [&str; N]) -> Vec<OsString> {
    words.into_iter().map(OsString::from).collect()
}

fn clock_arguments(clock: Clock, accelerator: Accelerator, seed: u64) -> Vec<OsString> {
    // -seed takes 64 bits, but older versions parse it as a signed number.
    let mut args = words(["-accel", accelerator.name(), "-seed", &(seed & 0x7fff_ffff).to_string()]);
    match clock {
        // One instruction is one nanosecond; an idle guest jumps to its next timer.
        Clock::Exact | Clock::ExactParallel | Clock::Exact1 => {
            let cpu = if clock.charges_moves() { EXACT_CPU } else { CPU_WITHOUT_REP };
            args.extend(words(["-icount", "shift=0,sleep=off", "-rtc", "base=2024-01-01T00:00:00,clock=vm"]));
            args.extend(words(["-cpu", cpu]));
        }
        Clock::Wall => args.extend(words(["-cpu", accelerator.host_cpu()])),
        Clock::None => args.extend(words(["-cpu", CPU_WITHOUT_REP])),
    }
    args
}

fn machine_arguments(config: &Config<'_>) -> Vec<OsString> {
    let mut memory = format!("{}M", config.memory_bytes >> 20);
    let mut machine = "pc".to_owned();
    if !config.pmems.is_empty() {
        machine += ",nvdimm=on";
        // Each may be laid at a whole GiB of its own.
        let most = config.pmems.iter().map(|p| p.bytes.next_multiple_of(1 << 30) + (1 << 30)).sum::<u64>();
        memory += &format!(",slots={},maxmem={}M", config.pmems.len(), (config.memory_bytes + most) >> 20);
    }
    let mut args = words(["-machine", &machine, "-m", &memory, "-smp", &smp(config)]);
    args.extend(node_arguments(config));
    args.extend(words(["-nodefaults", "-no-user-config", "-display", "none", "-monitor", "none", "-no-reboot"]));
    args
}

/// A socket for each node: kernels take CPUs of one socket on two nodes for a mistake of the firmware's.
fn smp(config: &Config<'_>) -> String {
    let Config { cpus, nodes, threads, .. } = *config;
    if nodes == 1 && threads == 1 {
        return cpus.to_string();
    }
    let sockets = nodes.min(cpus);
    format!("{cpus},sockets={sockets},cores={},threads={threads}", cpus / sockets / threads)
}

/// CPUs and memory dealt to nodes; the first ones get what does not divide, and those beyond the CPUs have memory alone.
fn node_arguments(config: &Config<'_>) -> Vec<OsString> {
    let (nodes, mib) = (u64::from(config.nodes), config.memory_bytes >> 20);
    let with_cpus = config.nodes.min(config.cpus);
    let each = config.cpus / with_cpus;
    let mut args = Vec::new();
    if nodes == 1 {
        return args;
    }
    for node in 0..config.nodes {
        let size = mib / nodes + u64::from(u64::from(node) < mib % nodes);
        args.extend(words(["-object", &format!("memory-backend-ram,id=node{node},size={size}M"), "-numa"]));
        let cpus = match node < with_cpus {
            true => format!(",cpus={}-{}", node * each, (node + 1) * each - 1),
            false => String::new(),
        };
        args.push(format!("node,nodeid={node},memdev=node{node}{cpus}").into());
    }
    args
}

fn channel_arguments(config: &Config<'_>) -> Vec<OsString> {
    let mut args = Vec::new();
    for (id, path) in [("console", config.console), ("events", config.events)] {
        args.push("-chardev".into());
        args.push(prefixed(&format!("file,id={id},path="), path));
    }
    args.extend(words(["-serial", "chardev:console"]));
    args.extend(words(["-device", "isa-debugcon,iobase=0xe9,chardev=events"]));
    if let Some(acks) = config.acks {
        args.push("-chardev".into());
        args.push(prefixed("file,id=acks,path=", acks));
        args.extend(words(["-device", &format!("isa-debugcon,iobase={ACK_PORT:#x},chardev=acks")]));
    }
    args.extend(words(["-device", "isa-debug-exit,iobase=0xf4,iosize=0x04"]));
    args
}

fn disk_arguments(disks: &[Disk]) -> Vec<OsString> {
    let mut args = Vec::new();
    for (n, disk) in disks.iter().enumerate() {
        args.push("-drive".into());
        args.push(match &disk.log {
            None => {
                let cache = disk.cache.name();
                prefixed(&format!("if=none,id=disk{n},format=raw,cache={cache},file="), &disk.path)
            }
            // The host keeps its power: what the guest's disk would have kept is worked out from the log.
            Some(log) => {
                let mut word = prefixed(
                    &format!(
                        "if=none,id=disk{n},driver=blklogwrites,file.driver=file,file.cache.no-flush=on,file.filename="
                    ),
                    &disk.path,
                );
                word.push(prefixed(",log.driver=file,log.cache.no-flush=on,log.filename=", log));
                word
            }
        });
        args.push("-device".into());
        args.push(format!("virtio-blk-pci,drive=disk{n},serial={}", disk.serial).into());
    }
    args
}

/// Mapped privately: every guest starts from the same bytes, and none of them is copied before it is written.
fn pmem_arguments(pmems: &[Pmem]) -> Vec<OsString> {
    let mut args = Vec::new();
    for (n, pmem) in pmems.iter().enumerate() {
        args.push("-object".into());
        let bytes = pmem.bytes;
        args.push(prefixed(&format!("memory-backend-file,id=pmem{n},share=off,size={bytes},mem-path="), &pmem.path));
        args.push("-device".into());
        args.push(format!("nvdimm,id=nvdimm{n},memdev=pmem{n},slot={n}").into());
    }
    args
}

/// The kernel's command line with the words of levers. Of `clearcpuid` a kernel takes the last, a lever's.
pub fn cmdline(clock: Clock, levers: &[String]) -> String {
    let without_rep = matches!(clock, Clock::Exact1 | Clock::None).then_some(NO_REP);
    let emulated = without_rep.into_iter().chain((clock != Clock::Wall).then_some(NO_SELF_TESTS));
    let words: Vec<&str> = CMDLINE.iter().copied().chain(emulated).chain(levers.iter().map(String::as_str)).collect();
    words.join(" ")
}

fn kernel_arguments(config: &Config<'_>) -> Vec<OsString> {
    vec![
        "-kernel".into(),
        config.kernel.into(),
        "-initrd".into(),
        config.initramfs.into(),
        "-append".into(),
        cmdline(config.clock, config.cmdline).into(),
    ]
}

/// `prefix` and a path, with the commas that QEMU would take for separators doubled.
pub(super) fn prefixed(prefix: &str, path: &Path) -> OsString {
    let mut word = OsString::from(prefix);
    for (n, piece) in path.as_os_str().as_bytes().split(|b| *b == b',').enumerate() {
        word.push(if n > 0 { ",," } else { "" });
        word.push(OsStr::from_bytes(piece));
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lever;

    #[test]
    fn a_disk_of_the_host_is_opened_as_it_says() {
        let disk =
            Disk { path: "a,b".into(), serial: "micro".to_owned(), cache: super::super::disk::Cache::None, log: None };
        let args: Vec<String> = disk_arguments(&[disk]).into_iter().map(|a| a.into_string().unwrap()).collect();
        let drive = "if=none,id=disk0,format=raw,cache=none,file=a,,b";
        assert_eq!(args, ["-drive", drive, "-device", "virtio-blk-pci,drive=disk0,serial=micro"]);
    }

    #[test]
    fn images_are_private_to_a_guest() {
        let pmem = Pmem { path: "a,b".into(), bytes: 3 << 30 };
        let args: Vec<String> =
            pmem_arguments(std::slice::from_ref(&pmem)).into_iter().map(|a| a.into_string().unwrap()).collect();
        let backend = "memory-backend-file,id=pmem0,share=off,size=3221225472,mem-path=a,,b";
        assert_eq!(args, ["-object", backend, "-device", "nvdimm,id=nvdimm0,memdev=pmem0,slot=0"]);
    }

    #[test]
    fn nodes_share_what_the_machine_has() {
        let config = |cpus, nodes, threads| Config {
            clock: Clock::Exact,
            accelerator: Accelerator::Tcg,
            cpus,
            memory_bytes: 1 << 30,
            nodes,
            threads,
            seed: 7,
            kernel: Path::new("k"),
            initramfs: Path::new("i"),
            cmdline: &[],
            console: Path::new("c"),
            events: Path::new("e"),
            acks: None,
            disks: &[],
            pmems: &[],
            plugin: None,
            counts: None,
        };
        let line_of = |cpus, nodes, threads| {
            let args = machine_arguments(&config(cpus, nodes, threads));
            args.into_iter().map(|a| a.into_string().unwrap()).collect::<Vec<_>>().join(" ")
        };
        let line = |cpus, nodes| line_of(cpus, nodes, 1);
        assert!(line_of(4, 1, 2).contains("-smp 4,sockets=1,cores=2,threads=2 "), "{}", line_of(4, 1, 2));
        assert!(line_of(8, 2, 2).contains("-smp 8,sockets=2,cores=2,threads=2 "), "{}", line_of(8, 2, 2));
        assert!(line(4, 1).contains("-smp 4 -nodefaults"), "{}", line(4, 1));
        let two = line(4, 2);
        assert!(two.contains("-smp 4,sockets=2,cores=2,threads=1"), "{two}");
        assert!(
            two.contains("-object memory-backend-ram,id=node1,size=512M -numa node,nodeid=1,memdev=node1,cpus=2-3")
        );
        let three = line(1, 3);
        assert!(three.contains("id=node0,size=342M -numa node,nodeid=0,memdev=node0,cpus=0-0"), "{three}");
        assert!(three.contains("id=node2,size=341M -numa node,nodeid=2,memdev=node2 -nodefaults"), "{three}");
    }

    #[test]
    fn the_longest_command_line_is_not_cut_off() {
        let longest = cmdline(Clock::Exact, &["x".repeat(lever::CMDLINE_LIMIT)]);
        assert!(longest.len() < 2048, "x86-64's COMMAND_LINE_SIZE, with the zero at the end: {}", longest.len());
    }

    #[test]
    fn the_exact_clock_has_no_device_of_the_host() {
        let config = Config {
            clock: Clock::Exact,
            accelerator: Accelerator::Tcg,
            cpus: 1,
            memory_bytes: 1 << 30,
            nodes: 1,
            threads: 1,
            seed: 7,
            kernel: Path::new("k"),
            initramfs: Path::new("i"),
            cmdline: &["mitigations=off".to_owned()],
            console: Path::new("a,b"),
            events: Path::new("e"),
            acks: None,
            disks: &[],
            pmems: &[],
            plugin: None,
            counts: None,
        };
        let args: Vec<String> = arguments(&config).into_iter().map(|a| a.into_string().unwrap()).collect();
        let line = args.join(" ");
        assert!(line.contains("-icount shift=0,sleep=off"), "{line}");
        assert!(line.contains("clock=vm") && line.contains("-m 1024M -smp 1"), "{line}");
        assert!(
            line.contains("-chardev file,id=console,path=a,,b ") && line.contains("-serial chardev:console"),
            "{line}"
        );
        let own = "no_timer_check cryptomgr.notests initcall_blacklist=jent_mod_init";
        assert!(args.last().unwrap().ends_with(&format!("{own} mitigations=off")), "{line}");
        assert!(line.contains(",erms=on,fsrm=on,"), "{line}");
        let before: Vec<_> = arguments(&Config { clock: Clock::Exact1, ..config });
        let line = before.join(std::ffi::OsStr::new(" ")).into_string().unwrap();
        let own = "no_timer_check clearcpuid=112 cryptomgr.notests initcall_blacklist=jent_mod_init";
        assert!(line.ends_with(&format!("{own} mitigations=off")) && line.contains("erms=off,fsrm=off"), "{line}");
        for device_of_the_host in ["socket", "virtio", "-netdev", "-drive"] {
            assert!(!line.contains(device_of_the_host), "{line}");
        }
    }
}
