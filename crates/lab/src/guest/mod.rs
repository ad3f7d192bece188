//! The agent: this executable as PID 1 of a guest. It mounts file systems, loads modules, creates the devices, reads the levers
//! back, runs the workloads in a child process and reports by events.
//!
//! Invariant: inside a measured window only the workload runs: the agent waits in a read, and it acknowledges a workload's
//! reports between windows before the next window may begin.

pub mod block;
mod channel;
mod disks;
mod journal;
mod levers;
mod recording;
mod rotational;
pub mod runner;
mod settling;

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{MountFlags, mount};

use crate::lever::{Fault, boot, net};
use crate::protocol::{self, GuestEvent, GuestJob, Module, PROTOCOL};
use bigiron_model::clock::Clock;
use bigiron_model::record::{Failure, GuestIdentity};
use bigiron_probe::{dmesg, environment};
use bigiron_sys as sys;
use bigiron_sys::network::{Network, VethPair};
use bigiron_sys::this_machine;
use bigiron_workload::registry::Registry;

/// Complaints of each class kept per trial; a kernel that logs more has made its point.
pub(crate) const COMPLAINTS: usize = 20;

/// Runs as PID 1; never returns.
pub fn main(registry: Registry) -> ! {
    // Before /dev is mounted the only channel for an error is the console, which is the standard error.
    if let Err(e) = mounts() {
        eprintln!("bigiron: {e:#}");
    }
    if let Err(e) = work(registry) {
        report_log();
        channel::send(&trouble(&e));
    }
    channel::send(&GuestEvent::Done);
    channel::exit()
}

/// A fault of the kernel that stopped the agent: evidence, unlike a failure of bigiron itself.
#[derive(Debug, thiserror::Error)]
#[error("{1}")]
struct Finding(Failure, String);

/// The event for an agent that ended with an error.
fn trouble(error: &anyhow::Error) -> GuestEvent {
    let message = format!("{error:#}");
    match error.downcast_ref::<Finding>() {
        Some(Finding(failure, _)) => GuestEvent::Failed { failure: *failure, message },
        None => GuestEvent::Unfit { message },
    }
}

fn work(registry: Registry) -> anyhow::Result<()> {
    let job = fs::read(protocol::JOB_PATH).context("No job in the initramfs")?;
    let mut job: GuestJob = serde_json::from_slice(&job).context("The job is not readable")?;
    ensure!(job.protocol == PROTOCOL, "The job is of protocol {}, the agent of {PROTOCOL}", job.protocol);
    let workloads = runner::workloads(registry, &job)?;
    let guest = identity()?;
    channel::send(&GuestEvent::Hello { protocol: PROTOCOL, guest: guest.clone() });
    load(&job.modules)?;
    job.shape.verify(guest.cpus, &|path| fs::read_to_string(path).ok()).map_err(|why| anyhow!(why))?;
    read_back(&job, &guest)?;
    let (mounted, servers) = block::mount_all(&job)?;
    // They end with the guest. If they ended before it, what is still to be written would fail, and the kernel would report errors of a disk.
    std::mem::forget(servers);
    loopback_up().context("The loopback interface does not come up")?;
    // Programs that look up their own host name find it there.
    rustix::system::sethostname(b"localhost").context("The guest gets no name")?;
    // Exists as long as the guest, and its name spaces with it.
    let link = net::link(workloads.iter().any(|w| w.needs().has_network()), VethPair::beside)?;
    job.placement = levers::set(&job, &mounted, &link)?;
    job.placement.network = Some(link.network().unwrap_or_else(Network::of_guest));
    channel::send(&GuestEvent::Ready);
    settling::settle(&job)?;
    let clocksource = fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    channel::send(&GuestEvent::Quiet { clocksource: clocksource.unwrap_or_default().trim().to_owned() });
    let failure = runner::run(&workloads, &job, &guest, &mounted)?;
    report_log();
    if let Some((failure, message)) = failure {
        channel::send(&GuestEvent::Failed { failure, message });
    }
    if job.environment {
        // The windows are over, and the kernel's log has been reported.
        levers::mount_debugfs();
        channel::send(&GuestEvent::Environment { facts: environment::read(Path::new("/")) });
    }
    if job.fault == Some(Fault::KillInit) {
        // The kernel panics when PID 1 exits.
        std::process::exit(1);
    }
    Ok(())
}

fn load(modules: &[Module]) -> anyhow::Result<()> {
    for module in modules {
        let path = &module.path;
        let file = File::open(path).with_context(|| format!("No {path} in the initramfs"))?;
        let parameters = CString::new(module.parameters.as_str()).context("Module parameters")?;
        match sys::module::load(&file, &parameters) {
            Err(e) if !module.optional => {
                return Err(e).with_context(|| format!("The kernel refuses the module {path}"));
            }
            _ => {}
        }
    }
    Ok(())
}

fn mounts() -> anyhow::Result<()> {
    for (source, target, kind) in [
        ("proc", "/proc", "proc"),
        ("sysfs", "/sys", "sysfs"),
        ("devtmpfs", "/dev", "devtmpfs"),
        ("tmpfs", "/tmp", "tmpfs"),
        ("tmpfs", "/dev/shm", "tmpfs"),
    ] {
        fs::create_dir_all(target).with_context(|| target.to_owned())?;
        match mount(source, target, kind, MountFlags::empty(), None) {
            // CONFIG_DEVTMPFS_MOUNT does not apply to an initramfs, but a user's kernel may differ.
            Err(rustix::io::Errno::BUSY) => {}
            other => other.with_context(|| format!("Cannot mount {target}"))?,
        }
    }
    Ok(())
}

fn identity() -> anyhow::Result<GuestIdentity> {
    let uname = rustix::system::uname();
    Ok(GuestIdentity {
        release: uname.release().to_string_lossy().into_owned(),
        version: uname.version().to_string_lossy().into_owned(),
        cmdline: fs::read_to_string("/proc/cmdline").context("No /proc/cmdline")?.trim().to_owned(),
        cpus: this_machine::cpus(),
        memory_bytes: this_machine::memory_bytes(),
        // Not settled yet: the event `quiet` reports it.
        clocksource: String::new(),
    })
}

/// A lever whose value cannot be read back is an error before anything is measured.
fn read_back(job: &GuestJob, guest: &GuestIdentity) -> anyhow::Result<()> {
    if job.cmdline.is_empty() {
        return Ok(());
    }
    levers::debugfs(job)?;
    let log = kernel_log().context("The kernel's log cannot be read, so nothing shows that levers took")?.join("\n");
    let seen = boot::BootedCommandLine {
        cmdline: &guest.cmdline,
        log: &log,
        init_args: &std::env::args().skip(1).collect::<Vec<_>>(),
        init_environment: &std::env::vars().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>(),
        read: &|path| fs::read_to_string(path).ok(),
    };
    boot::verify(&job.cmdline, &seen).map_err(|why| anyhow!("Lever {why}"))
}

/// The lines of the kernel's log so far.
fn kernel_log() -> anyhow::Result<Vec<String>> {
    let fd = rustix::fs::openat(CWD, "/dev/kmsg", OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())?;
    let mut file = File::from(fd);
    let mut lines = Vec::new();
    let mut record = [0; 8192];
    loop {
        match file.read(&mut record) {
            Ok(0) => break,
            Ok(n) => lines.push(dmesg::kmsg_message(&String::from_utf8_lossy(&record[..n])).to_owned()),
            Err(e) if e.kind() == ErrorKind::WouldBlock => break,
            // The ring was overwritten meanwhile: the next read continues with the rest.
            Err(e) if e.kind() == ErrorKind::BrokenPipe => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(lines)
}

fn report_log() {
    match kernel_log() {
        Ok(lines) => {
            let lines = dmesg::complaints(lines.iter().map(String::as_str), COMPLAINTS);
            if !lines.is_empty() {
                channel::send(&GuestEvent::Complaints { lines });
            }
        }
        Err(e) => channel::send(&GuestEvent::Failed {
            failure: Failure::WorkloadError,
            message: format!("The kernel's log cannot be read: {e:#}"),
        }),
    }
}

/// Brings `lo` up: in a bare initramfs nothing else does.
fn loopback_up() -> anyhow::Result<()> {
    sys::net::interface_up("lo")?;
    Ok(())
}

/// Sleeps by the guest's clock: this costs nothing under the exact clock, where an idle guest jumps to its next timer.
fn sleep(seconds: u32) {
    std::thread::sleep(Duration::from_secs(u64::from(seconds)));
}

/// Rest of a newly made file system before work starts on it.
fn rest_after_prepare(clock: Clock) -> u32 {
    match clock {
        Clock::Exact | Clock::ExactParallel | Clock::Exact1 => 2,
        Clock::Wall => 1,
        Clock::None => 0,
    }
}
