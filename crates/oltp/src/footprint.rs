//! The memory cost of users: for the machine, and for a session's server process.
//!
//! Invariant: shared memory is counted once, or for each process by its share; unreadable values are omitted, never treated as 0.

use std::fs;

use super::counters::{self, CountedProcesses};

/// Number of sessions examined: the time to read one grows with its mappings, and thousands are alike.
const SAMPLE: usize = 16;

/// Bytes of the machine's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Page tables of all processes.
    pub page_tables: Option<u64>,
    /// Available memory, by the kernel's estimate.
    pub available: Option<u64>,
    /// Number of processes killed by the kernel for lack of memory since boot (not bytes).
    pub killed: Option<u64>,
    /// The mean of one session.
    pub session: Option<SessionMemory>,
}

/// Bytes of a session's own memory in its server process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionMemory {
    /// Private memory, and its share of unmodified memory inherited from its parent.
    pub private: u64,
    pub page_tables: u64,
}

impl Footprint {
    /// The machine's memory.
    pub fn of_machine() -> Self {
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let vmstat = fs::read_to_string("/proc/vmstat").unwrap_or_default();
        let kib = |label| counters::labelled(&meminfo, label).map(|n| n * 1024);
        Self {
            page_tables: kib("PageTables"),
            available: kib("MemAvailable"),
            killed: counters::labelled(&vmstat, "oom_kill"),
            session: None,
        }
    }

    /// The same, with the server's sessions if visible.
    pub fn look(counted: CountedProcesses) -> Self {
        Self { session: session(counted), ..Self::of_machine() }
    }
}

/// The mean of a sample of sessions, evenly spread over their process numbers.
fn session(counted: CountedProcesses) -> Option<SessionMemory> {
    let CountedProcesses::Server(postmaster) = counted else { return None };
    let all: Vec<i32> = counters::children(postmaster).into_iter().filter(|pid| is_session(*pid)).collect();
    let step = all.len().div_ceil(SAMPLE).max(1);
    let seen: Vec<SessionMemory> = all.iter().step_by(step).filter_map(|pid| of_process(*pid)).collect();
    let count = u64::try_from(seen.len()).ok().filter(|n| *n > 0)?;
    let mean = |of: fn(&SessionMemory) -> u64| seen.iter().map(of).sum::<u64>() / count;
    Some(SessionMemory { private: mean(|s| s.private), page_tables: mean(|s| s.page_tables) })
}

/// Whether a server's process serves a client: its title is then `postgres: USER DATABASE CLIENT …`, where the client is
/// `[local]` or `ADDRESS(PORT)`.
fn is_session(pid: i32) -> bool {
    let title = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let client = title.strip_prefix("postgres: ").and_then(|rest| rest.split(' ').nth(2));
    client.is_some_and(|client| client == "[local]" || client.ends_with(')'))
}

fn of_process(pid: i32) -> Option<SessionMemory> {
    // `Pss_Anon` exists since Linux 5.4.
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some(SessionMemory {
        private: counters::labelled(&rollup, "Pss_Anon")? * 1024,
        page_tables: counters::labelled(&status, "VmPTE")? * 1024,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_and_this_process_have_memory() {
        let machine = Footprint::look(CountedProcesses::Own);
        assert!(machine.page_tables.unwrap() > 0 && machine.available.unwrap() > machine.page_tables.unwrap());
        assert_eq!(machine.session, None);
        let own = std::process::id() as i32;
        assert!(!is_session(own));
        let held = vec![1_u8; 8 << 20];
        let with = of_process(own).unwrap();
        assert!(with.private > 8 << 20 && with.page_tables > 0, "{with:?} {}", held.len());
    }
}
