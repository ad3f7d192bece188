//! Lockstep: under the exact clock QEMU is started with a library (crates/lockstep, LD_PRELOAD) that makes its main loop and its
//! vCPU thread take turns. Without it, QEMU's virtual clock sometimes gains some nanoseconds, more often on a busy host.
//!
//! Invariant: a QEMU counts as in lockstep only if its vCPU thread was observed to have the name that the library gives it when
//! it works.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bigiron_lockstep::{ONE_VCPU, QUANTUM, THREAD_NAME};
use bigiron_model::clock::Clock;
use object::read::elf::{ElfFile64, ProgramHeader as _};

use super::memory_file::MemoryFile;
use super::qemu::{QUANTUM_NS, Qemu};
use bigiron_sys as sys;

const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/lockstep.so"));

/// The dynamic loader of glibc, to which the library is fitted.
const LOADER: &[u8] = b"/ld-linux-x86-64.so.2";

/// A machine without a kernel waits for a timer 0.25 s after its start; on a host that is overloaded, later.
const LIMIT: Duration = Duration::from_secs(120);

/// The library, as a file that only this process has.
pub struct Library {
    file: MemoryFile,
}

impl Library {
    /// # Errors
    /// No memory.
    pub fn new() -> io::Result<Self> {
        Ok(Self { file: MemoryFile::new("bigiron-lockstep", LIBRARY)? })
    }

    /// The library for `qemu`, or why it cannot have it.
    pub fn of(qemu: &Qemu) -> Result<Self, String> {
        fits(&qemu.program)?;
        Self::new().map_err(|e| format!("the library cannot be put into memory ({e})"))
    }

    /// Makes `command`, a QEMU whose guest has this many vCPUs and this clock, load the library, before those that the user asks for. It is read while this
    /// process and the library live.
    pub fn preload(&self, command: &mut Command, cpus: u32, clock: Clock) {
        // The loader splits at blanks and colons, so that a path of the user's could not be told; this one has neither.
        let mut list = OsString::from(self.file.path());
        if let Some(users) = std::env::var_os("LD_PRELOAD").filter(|l| !l.is_empty()) {
            list.push(":");
            list.push(users);
        }
        command.env("LD_PRELOAD", list);
        let alone = OsStr::from_bytes(ONE_VCPU.to_bytes());
        if cpus == 1 {
            command.env(alone, "1");
        } else {
            command.env_remove(alone);
        }
        let quantum = OsStr::from_bytes(QUANTUM.to_bytes());
        if clock == Clock::ExactParallel {
            command.env(quantum, QUANTUM_NS.to_string());
        } else {
            command.env_remove(quantum);
        }
    }
}

/// Whether the library can be loaded into `program`: one for another libc would refuse to start.
fn fits(program: &Path) -> Result<(), String> {
    let name = program.display();
    let bytes = std::fs::read(program).map_err(|e| format!("`{name}` cannot be read ({e})"))?;
    let elf = ElfFile64::<object::Endianness>::parse(&*bytes).map_err(|_| {
        format!("`{name}` is not a program for x86-64 but a script or such, and what it starts is not known")
    })?;
    let mut interpreters = elf.elf_program_headers().iter();
    match interpreters.find_map(|h| h.interpreter(elf.endian(), &*bytes).ok().flatten()) {
        Some(loader) if loader.ends_with(LOADER) => Ok(()),
        Some(loader) => {
            Err(format!("`{name}` is not linked to glibc but loaded by {}", String::from_utf8_lossy(loader)))
        }
        None => Err(format!("`{name}` is linked statically")),
    }
}

/// Whether the process `pid` is a QEMU in lockstep. It is not before its guest has first waited for a timer.
pub fn has(pid: u32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks
        .filter_map(|t| std::fs::read_to_string(t.path().join("comm")).ok())
        .any(|name| name.trim_end().as_bytes() == THREAD_NAME.to_bytes())
}

/// Whether `qemu` runs in lockstep here, by starting one without a kernel; or why not.
pub fn try_out(qemu: &Qemu) -> Result<(), String> {
    start(qemu, 1, Clock::Exact)
}

/// The same for a guest with several CPUs in parallel virtual time.
pub fn try_parallel(qemu: &Qemu) -> Result<(), String> {
    start(qemu, 2, Clock::ExactParallel)
}

/// The refusal of several CPUs on the exact clock, with the alternative.
pub fn refusal(why: &str) -> String {
    format!(
        "QEMU cannot run the clock `{}` of guests with several CPUs here: {why}; it needs the QEMU that `--qemu pinned` is (`bigiron doc clocks`)",
        Clock::ExactParallel
    )
}

fn start(qemu: &Qemu, cpus: u32, clock: Clock) -> Result<(), String> {
    let library = Library::of(qemu)?;
    let mut command = qemu.command();
    command
        .args(["-accel", "tcg", "-icount", "shift=0,sleep=off", "-machine", "pc", "-m", "16M", "-nodefaults"])
        .args(["-no-user-config", "-display", "none", "-monitor", "none", "-smp", &cpus.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    library.preload(&mut command, cpus, clock);
    let mut child =
        sys::child::die_with_parent(&mut command).spawn().map_err(|e| format!("QEMU cannot be started ({e})"))?;
    let begun = Instant::now();
    let found = loop {
        if has(child.id()) {
            break Ok(());
        }
        if let Ok(Some(status)) = child.try_wait() {
            break Err(format!("QEMU with the library ended with {status}"));
        }
        if begun.elapsed() > LIMIT {
            break Err(format!("QEMU did not show that the library works within {} s", LIMIT.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let _ = child.kill();
    let _ = child.wait();
    found
}

#[cfg(test)]
mod tests {
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

    use super::*;
    use crate::vm::process::cpu_seconds;
    use crate::vm::qemu::Version;

    fn qemu(program: &Path) -> Qemu {
        Qemu::named(program.to_owned(), Version(7, 2, 0))
    }

    #[test]
    fn a_qemu_gets_in_step() {
        let qemu = Qemu::find().expect("QEMU is installed");
        assert_eq!(try_out(&qemu), Ok(()));
        assert_eq!(try_parallel(&qemu), Ok(()));
    }

    #[test]
    fn a_program_without_the_library_is_not_in_step() {
        assert!(!has(std::process::id()));
    }

    #[test]
    fn a_program_that_could_not_load_it_is_left_alone() {
        let this = std::env::current_exe().unwrap();
        let why = Library::of(&qemu(&this)).err().expect("tests are static");
        assert!(why.ends_with("is linked statically"), "{why}");
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("qemu");
        std::fs::write(&script, "#!/bin/sh\nexec qemu\n").unwrap();
        let why = Library::of(&qemu(&script)).err().unwrap();
        assert!(why.contains("a script or such"), "{why}");
        assert!(Library::of(&qemu(&dir.path().join("none"))).is_err());
    }

    /// Executes 3 million PAUSEs, says by the debug console how many nanoseconds of the guest they took, and ends the VM.
    const PAUSES: &[u8] = &[
        0x66, 0xb9, 0xc0, 0xc6, 0x2d, 0x00, // mov ecx, 3000000
        0x0f, 0x31, // rdtsc
        0x66, 0x89, 0xc6, // mov esi, eax
        0xf3, 0x90, // again: pause
        0x66, 0x49, // dec ecx
        0x75, 0xfa, // jnz again
        0x0f, 0x31, // rdtsc
        0x66, 0x29, 0xf0, // sub eax, esi
        0xba, 0xe9, 0x00, // mov dx, 0xe9
        0xb9, 0x04, 0x00, // mov cx, 4
        0xee, // next: out dx, al
        0x66, 0xc1, 0xe8, 0x08, // shr eax, 8
        0xe2, 0xf9, // loop next
        0xba, 0xf4, 0x00, // mov dx, 0xf4
        0xee, // out dx, al
        0xf4, // hlt
    ];

    /// What a guest with one vCPU said of [`PAUSES`], where the library takes it for one with `cpus`, and the seconds of CPU time that it took.
    fn pauses(qemu: &Qemu, cpus: u32) -> (u32, f64) {
        let dir = tempfile::tempdir().unwrap();
        let (bios, said) = (dir.path().join("bios"), dir.path().join("said"));
        let mut image = vec![0; 64 << 10];
        image[..PAUSES.len()].copy_from_slice(PAUSES);
        // The first instruction of a CPU: jmp 0.
        image[0xfff0..0xfff3].copy_from_slice(&[0xe9, 0x0d, 0x00]);
        std::fs::write(&bios, image).unwrap();
        let mut command = qemu.command();
        command
            .args(["-accel", "tcg", "-icount", "shift=0,sleep=off", "-machine", "pc", "-m", "16M", "-nodefaults"])
            .args(["-no-user-config", "-display", "none", "-monitor", "none", "-bios"])
            .arg(&bios)
            .args(["-chardev", &format!("file,id=said,path={}", said.display())])
            .args(["-device", "isa-debugcon,iobase=0xe9,chardev=said"])
            .args(["-device", "isa-debug-exit,iobase=0xf4,iosize=0x04"])
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        let library = Library::of(qemu).unwrap();
        library.preload(&mut command, cpus, Clock::Exact);
        let mut child = command.spawn().unwrap();
        // When it has ended and is not reaped yet: all of its time is there, however late this thread looks.
        waitid(WaitId::Pid(Pid::from_child(&child)), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
        let used = cpu_seconds(child.id()).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(1));
        let said = std::fs::read(said).unwrap();
        (u32::from_le_bytes(said.try_into().unwrap()), used)
    }

    #[test]
    fn one_vcpu_pauses_at_the_same_virtual_time_for_less() {
        let qemu = Qemu::find().expect("QEMU is installed");
        let ((alone_ns, mut alone_s), (ns, s)) = (pauses(&qemu, 1), pauses(&qemu, 2));
        // Three instructions each, and that before the first.
        assert_eq!(alone_ns, 9_000_002);
        assert_eq!(ns, alone_ns);
        // What a busy machine does to a process only adds to its time: the least of several is the nearest to its own.
        for _ in 0..10 {
            if alone_s < s / 2.0 {
                break;
            }
            alone_s = alone_s.min(pauses(&qemu, 1).1);
        }
        // A seventh, measured.
        assert!(alone_s < s / 2.0, "{alone_s} s, and {s} s with a loop that is left at each");
    }

    #[test]
    fn the_library_asks_for_no_version_of_libc() {
        use object::{Object as _, ObjectSymbol as _};
        let elf = ElfFile64::<object::Endianness>::parse(LIBRARY).unwrap();
        let hooks: Vec<&str> =
            elf.dynamic_symbols().filter(|s| s.is_definition()).filter_map(|s| s.name().ok()).collect();
        for hook in
            ["pthread_mutex_lock", "pthread_cond_wait", "pthread_cond_broadcast", "pthread_cond_signal", "ppoll"]
        {
            assert!(hooks.contains(&hook), "{hook} in {hooks:?}");
        }
        assert!(elf.section_by_name(".gnu.version_r").is_none(), "versions are needed");
        let missing: Vec<&str> =
            elf.dynamic_symbols().filter(|s| s.is_undefined()).filter_map(|s| s.name().ok()).collect();
        // The compiler calls some for slices and names. Every libc has all of these.
        let known = ["abort", "bcmp", "dlvsym", "memcpy", "memmove", "memset", "strlen"];
        let unknown: Vec<_> = missing.into_iter().filter(|name| !name.is_empty() && !known.contains(name)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}
