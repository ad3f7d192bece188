//! Signals that end a study in an orderly way.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Exit status after a second signal.
const INTERRUPTED: i32 = 1;

/// A flag that SIGINT, SIGTERM or SIGHUP sets; a second signal ends the process at once.
pub fn cancelled_by_signals() -> anyhow::Result<Arc<AtomicBool>> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let flag = Arc::new(AtomicBool::new(false));
    // nohup ignores SIGHUP.
    let ignored = is_ignored(SIGHUP);
    for signal in [SIGINT, SIGTERM].into_iter().chain((!ignored).then_some(SIGHUP)) {
        signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED, Arc::clone(&flag))?;
        signal_hook::flag::register(signal, Arc::clone(&flag))?;
    }
    Ok(flag)
}

/// Lets a write beyond the limit on a file's size (`ulimit -f`) fail, as on a full disk, instead of killing this process. Not ignored but handled:
/// programs that are started have the signal's default again.
pub fn survive_file_size_limit() -> anyhow::Result<()> {
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::new(AtomicBool::new(false)))?;
    Ok(())
}

/// Whether this process was started to ignore `signal`.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
