//! Starts the process that runs a reader, and finds out which input ended or stopped it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::{Limits, Target, corpus};

/// The file in which the worker writes the number of its input (8 bytes), its length (8 bytes), and the input.
const STATE: &str = "BIGIRON_FUZZ_STATE";
/// The number that a worker writes at its end.
pub(super) const FINISHED: u64 = u64::MAX;
/// What the line begins with that a worker prints at the end of a long run.
pub(super) const SUMMARY: &str = "fuzz ";

/// An input without an end may wait instead of using CPU time; wall time for each second of CPU time that it may use.
const WAITING: u32 = 60;
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Bytes of the worker's last words that are shown.
const SHOWN: usize = 2000;

/// The worker's state, in a process that is one.
pub(super) fn state_of_worker() -> Option<PathBuf> {
    std::env::var_os(STATE).map(PathBuf::from)
}

pub(super) fn write_state(state: &File, number: u64, input: &[u8]) -> io::Result<()> {
    let header = [number.to_le_bytes(), (input.len() as u64).to_le_bytes()].concat();
    state.write_all_at(&[&header, input].concat(), 0)
}

fn read_state(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    let (len, rest) = rest.split_first_chunk()?;
    Some((u64::from_le_bytes(*number), rest.get(..u64::from_le_bytes(*len) as usize)?))
}

/// Runs the target in another process; the error names the input that failed and says how to repeat it.
pub(super) fn watch(target: &Target, limits: Limits) -> Result<(), String> {
    let dir = tempfile::tempdir().map_err(|e| format!("Cannot make a temporary folder: {e}"))?;
    let (state, output) = (dir.path().join("state"), dir.path().join("output"));
    let ended = start(target, &state, &output)
        .and_then(|child| wait(child, &state, limits))
        .map_err(|e| format!("Cannot run `{}` in a process of its own: {e}", target.test))?;
    let said = fs::read(&output).unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    let bytes = fs::read(&state).unwrap_or_default();
    let (number, input) = read_state(&bytes).unwrap_or_default();
    let why = match ended {
        End::Exited(status) if status.success() && number == FINISHED => {
            said.lines().filter(|line| line.starts_with(SUMMARY)).for_each(|line| println!("\n{line}"));
            return Ok(());
        }
        End::Exited(status) => format!("ended the reader ({status})"),
        End::Stuck(why) => why,
    };
    let from = said.floor_char_boundary(said.len().saturating_sub(SHOWN));
    if number == 0 {
        return Err(format!("`{}` ended before its first input ({why}):\n{}", target.test, &said[from..]));
    }
    let kept = match corpus::keep(&target.corpus, input) {
        Ok(path) => format!("it is now {}", path.display()),
        Err(e) => format!("it could not be written into {}: {e}", target.corpus.display()),
    };
    Err(format!(
        "An input of {} bytes {why}; {kept}. `cargo test -p {} {}` reads it before it changes anything.\n{}",
        input.len(),
        target.package,
        target.test,
        &said[from..]
    ))
}

fn start(target: &Target, state: &Path, output: &Path) -> io::Result<Child> {
    File::create(state)?;
    let output = File::create(output)?;
    Command::new(std::env::current_exe()?)
        .args([target.test, "--exact", "--nocapture", "--test-threads=1"])
        .env(STATE, state)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()
}

enum End {
    Exited(ExitStatus),
    Stuck(String),
}

/// Waits for the worker's end, and kills it if one input takes too long.
fn wait(mut child: Child, state: &Path, limits: Limits) -> io::Result<End> {
    let state = File::open(state)?;
    let mut last = (0, Duration::ZERO, Instant::now());
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(End::Exited(status));
        }
        std::thread::sleep(LOOK_EVERY);
        let mut number = [0; 8];
        let number = state.read_at(&mut number, 0).map_or(0, |_| u64::from_le_bytes(number));
        // It may have ended.
        let Some(cpu) = cpu_time(child.id()) else { continue };
        if number != last.0 {
            last = (number, cpu, Instant::now());
            continue;
        }
        let (used, passed) = (cpu.saturating_sub(last.1), last.2.elapsed());
        if used > limits.cpu || passed > WAITING * limits.cpu {
            child.kill()?;
            child.wait()?;
            return Ok(End::Stuck(format!(
                "took more than {:.0} s of CPU time in {:.0} s",
                used.as_secs_f64(),
                passed.as_secs_f64()
            )));
        }
    }
}

/// User and system time of a process, in clock ticks (proc(5)).
fn cpu_time(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may contain blanks.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let ticks = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    Some(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}
