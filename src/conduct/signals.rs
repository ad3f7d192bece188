//! Signals that end a study in an orderly way.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};

/// The last signal that asked this process to end; 0 before.
static RECEIVED: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

/// The signal that asked this process to end, if one did.
pub fn received() -> Option<i32> {
    Some(RECEIVED.load(Ordering::SeqCst) as i32).filter(|signal| *signal != 0)
}

/// The exit status of a process that ended because of `signal`, as shells show it.
pub fn status(signal: i32) -> u8 {
    128 + signal as u8
}

/// A flag that SIGINT, SIGTERM or SIGHUP sets; a second signal ends the process at once.
pub fn cancelled_by_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    // nohup ignores SIGHUP.
    let ignored = is_ignored(SIGHUP);
    for signal in [SIGINT, SIGTERM].into_iter().chain((!ignored).then_some(SIGHUP)) {
        signal_hook::flag::register_conditional_shutdown(signal, status(signal).into(), Arc::clone(&flag))?;
        signal_hook::flag::register_usize(signal, Arc::clone(&RECEIVED), signal as usize)?;
        signal_hook::flag::register(signal, Arc::clone(&flag))?;
    }
    Ok(flag)
}

/// Lets a write beyond the limit on a file's size (`ulimit -f`) fail, as on a full disk, instead of killing this process. Not ignored but handled:
/// programs that are started have the signal's default again.
pub fn survive_file_size_limit() -> anyhow::Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)))?;
    Ok(())
}

/// Whether this process was started to ignore `signal`.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
