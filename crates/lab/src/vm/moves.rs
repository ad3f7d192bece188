//! Tests whether the plugin can drive the exact clock in this QEMU: a guest of a few instructions times repeated moves of known cost.
//!
//! Invariant: no kernel is needed, and nothing depends on how busy the host is.

use std::ffi::OsString;
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::process::cpu_seconds;
use super::profile::Plugin;
use super::qemu::{Qemu, WEIGHTS, prefixed};
use bigiron_model::clock::Clock;
use bigiron_sys as sys;

/// CPU seconds that the guest may use; it needs 0.1.
const CPU_LIMIT_S: f64 = 20.0;

/// Wall-clock limit, for a QEMU that hangs without using the CPU.
const LIMIT: Duration = Duration::from_secs(120);

/// QEMU's exit status when the guest ends it; after QEMU's own errors it is 1.
const DONE: i32 = 3;

/// Bytes of the moves that the guest times, each as `rep movsb`, `rep stosb`, and `rep movsd`.
const SIZES: [u16; 5] = [4, 64, 128, 4096, 16384];

/// Real-mode code that counts down long enough for the plugin to find the counter, times each move, and sends the nanoseconds to the debug console.
fn code() -> Vec<u8> {
    let mut code = vec![
        0x66, 0xb9, 0x80, 0x84, 0x1e, 0x00, // mov ecx, 2000000
        0x66, 0x49, // again: dec ecx
        0x75, 0xfc, // jnz again
        0x31, 0xc0, // xor ax, ax
        0x8e, 0xd8, // mov ds, ax
        0x8e, 0xc0, // mov es, ax
    ];
    for size in SIZES {
        for (repeated, count) in [(&[0xf3, 0xa4][..], size), (&[0xf3, 0xaa], size), (&[0xf3, 0x66, 0xa5], size / 4)] {
            code.extend([0x66, 0xbe, 0, 0x10, 0, 0]); // mov esi, 4096
            code.extend([0x66, 0xbf, 0, 0x80, 0, 0]); // mov edi, 32768
            code.extend([0x66, 0xb9]); // mov ecx, count
            code.extend(u32::from(count).to_le_bytes());
            code.extend([0x0f, 0x31]); // rdtsc
            code.extend([0x66, 0x89, 0xc3]); // mov ebx, eax
            code.extend(repeated);
            code.extend([0x0f, 0x31]); // rdtsc
            code.extend([0x66, 0x29, 0xd8]); // sub eax, ebx
            code.extend([0xba, 0xe9, 0x00]); // mov dx, 0xe9
            code.extend([0xb9, 0x04, 0x00]); // mov cx, 4
            code.push(0xee); // next: out dx, al
            code.extend([0x66, 0xc1, 0xe8, 0x08]); // shr eax, 8
            code.extend([0xe2, 0xf9]); // loop next
        }
    }
    code.extend([0xba, 0xf4, 0x00, 0xb0, 0x01, 0xee, 0xf4]); // mov dx, 0xf4; mov al, 1; out dx, al; hlt
    code
}

/// Tests whether `qemu` runs the exact clock here.
///
/// # Errors
/// Why it does not.
pub fn try_out(qemu: &Qemu) -> Result<(), String> {
    let plugin = Plugin::new().map_err(|e| format!("the plugin cannot be put into memory ({e})"))?;
    let times = run(qemu, &code(), &plugin.arguments(Some(&WEIGHTS), false, None))?;
    // The move, and the two instructions between the readings of the time.
    let right = SIZES.iter().flat_map(|size| [WEIGHTS.cycles(u64::from(*size)) + 2; 3]);
    if !times.iter().map(|ns| u64::from(*ns)).eq(right) {
        return Err(format!("moves of {SIZES:?} bytes were timed as {times:?} ns"));
    }
    Ok(())
}

/// The numbers that a guest with the firmware `code` sends.
fn run(qemu: &Qemu, code: &[u8], plugin: &[OsString]) -> Result<Vec<u32>, String> {
    let failed = |e: std::io::Error| format!("the guest that tests it cannot be prepared ({e})");
    let dir = tempfile::tempdir().map_err(failed)?;
    let (firmware, said, errors) = (dir.path().join("firmware"), dir.path().join("said"), dir.path().join("errors"));
    let mut image = vec![0; 64 << 10];
    image[..code.len()].copy_from_slice(code);
    // The first instruction of a CPU: jmp 0.
    image[0xfff0..0xfff3].copy_from_slice(&[0xe9, 0x0d, 0x00]);
    std::fs::write(&firmware, image).map_err(failed)?;
    let mut command = qemu.command();
    command
        .args(["-accel", "tcg", "-icount", "shift=0,sleep=off", "-machine", "pc", "-m", "16M", "-nodefaults"])
        .args(["-no-user-config", "-display", "none", "-monitor", "none", "-bios"])
        .arg(&firmware)
        .args(["-chardev".into(), prefixed("file,id=said,path=", &said)])
        .args(["-device", "isa-debugcon,iobase=0xe9,chardev=said"])
        .args(["-device", "isa-debug-exit,iobase=0xf4,iosize=0x04"])
        .args(plugin)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&errors).map_err(failed)?);
    let mut child =
        sys::child::die_with_parent(&mut command).spawn().map_err(|e| format!("QEMU cannot be started ({e})"))?;
    let begun = Instant::now();
    let status = loop {
        if let Ok(Some(status)) = child.try_wait() {
            break status;
        }
        if begun.elapsed() > LIMIT || cpu_seconds(child.id()).is_some_and(|used| used > CPU_LIMIT_S) {
            let _ = child.kill();
            let _ = child.wait();
            return Err("a guest of a few instructions does not end with the plugin".to_owned());
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    if status.code() != Some(DONE) {
        let errors = std::fs::read_to_string(&errors).unwrap_or_default();
        let why = errors.lines().last().map_or_else(|| format!("it ended with {status}"), str::to_owned);
        return Err(format!("QEMU with the plugin: {why}"));
    }
    let said = std::fs::read(&said).map_err(failed)?;
    Ok(said.chunks_exact(4).map(|ns| u32::from_le_bytes(ns.try_into().expect("four bytes"))).collect())
}

/// The refusal of the exact clock, with the alternative.
pub fn refusal(why: &str) -> String {
    format!(
        "QEMU cannot run the clock `{}` here: {why}; `--clock exact/1`, which counts each iteration of a `rep` string instruction, may work (`bigiron doc clocks`)",
        Clock::Exact
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_installed_qemu_times_moves_by_their_bytes() {
        let qemu = Qemu::find().expect("QEMU is installed");
        assert_eq!(try_out(&qemu), Ok(()));
    }

    #[test]
    fn without_the_plugin_iterations_count() {
        let qemu = Qemu::find().expect("QEMU is installed");
        let iterations = SIZES.iter().flat_map(|size| [*size, *size, size / 4]).map(|n| u32::from(n) + 1 + 2);
        assert_eq!(run(&qemu, &code(), &[]), Ok(iterations.collect()));
    }

    #[test]
    fn a_plugin_that_cannot_be_loaded_is_a_refusal() {
        let qemu = Qemu::find().expect("QEMU is installed");
        let why = run(&qemu, &code(), &["-plugin".into(), "file=/nowhere/plugin.so".into()]).unwrap_err();
        assert!(why.starts_with("QEMU with the plugin: ") && why.contains("/nowhere/plugin.so"), "{why}");
    }

    /// The firmware of protected.s, in which moves overlap, cross pages, and go backwards.
    #[test]
    fn iterations_at_once_leave_the_memory_and_the_time_of_single_ones() {
        const PROTECTED: &[u8] = include_bytes!("moves/protected.bin");
        let qemu = Qemu::find().expect("QEMU is installed");
        let plugin = Plugin::new().unwrap();
        let mut arguments = plugin.arguments(Some(&WEIGHTS), false, None);
        let without = run(&qemu, PROTECTED, &[]).unwrap();
        let at_once = run(&qemu, PROTECTED, &arguments).unwrap();
        arguments[1].push(",one-by-one=1");
        let single = run(&qemu, PROTECTED, &arguments).unwrap();
        assert_eq!(at_once, single);
        assert_eq!((at_once[2], at_once[3]), (without[2], without[3]), "memory and registers");
        // Five instructions around it.
        assert_eq!((u64::from(at_once[0]), without[0]), (WEIGHTS.cycles(20_000) + 5, 20_000 + 1 + 5));
    }
}
