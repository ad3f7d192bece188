//! The kernel's and the server's counters, by name: read when the window opens, at its middle and when it closes.
//!
//! Invariant: every counter only grows while its subject lives, so that a difference covers the time in between; an unreadable
//! counter is omitted, never treated as 0.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use rustix::process::Pid;

use bigiron_sql::database::{Database, Dialect, SqlValue};
use bigiron_sys::cpu_clock::cpu_time;

/// CPU time of the server's processes, in nanoseconds.
pub const SERVER_CPU: &str = "server-cpu-ns";
/// CPU time of the kernel's own threads, in nanoseconds.
pub const KERNEL_CPU: &str = "kernel-cpu-ns";
/// Bytes that the engine read from files, from a device or the page cache.
pub const FILE_READ: &str = "file-read-bytes";
/// Bytes read from and written to storage on the engine's behalf.
pub const STORAGE_READ: &str = "storage-read-bytes";
pub const STORAGE_WRITTEN: &str = "storage-written-bytes";
/// Pages swapped in and out, for the whole machine.
pub const SWAPPED_IN: &str = "swapped-in-pages";
pub const SWAPPED_OUT: &str = "swapped-out-pages";
/// Context switches of the whole machine.
pub const SWITCHES: &str = "context-switches";

/// The parent of all kernel threads.
const KTHREADD: i32 = 2;

/// Counters by name.
pub type Counters = BTreeMap<String, u64>;

/// The processes whose work is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedProcesses {
    /// The server's process, which started all others of the server, if there are any.
    Server(i32),
    /// This process: an embedded engine.
    Own,
    /// No process is visible from here.
    Unseen,
}

/// Reads all available counters.
pub fn read(counted: CountedProcesses) -> Counters {
    let mut counters = Counters::new();
    processes(counted, &mut counters);
    machine(&mut counters);
    counters
}

/// The counts between two readings; a counter missing from one of them is omitted.
pub fn since(before: &Counters, after: &Counters) -> Counters {
    let difference = |(name, n): (&String, &u64)| Some((name.clone(), n.saturating_sub(*before.get(name)?)));
    after.iter().filter_map(difference).collect()
}

/// The process that started a server's backend, if the backend runs on this machine.
pub fn postmaster_of(backend: i32) -> CountedProcesses {
    let is_postgres =
        |pid: i32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|c| c.starts_with("postgres"));
    match fs::read_to_string(format!("/proc/{backend}/stat")).ok().as_deref().and_then(parse_stat) {
        Some(stat) if is_postgres(backend) && is_postgres(stat.parent) => CountedProcesses::Server(stat.parent),
        _ => CountedProcesses::Unseen,
    }
}

/// The children of a process, in the order of their numbers.
pub fn children(parent: i32) -> Vec<i32> {
    let pids =
        fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|e| e.file_name().to_str()?.parse().ok());
    let parent_of =
        |pid: i32| parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?).map(|stat| stat.parent);
    let mut children: Vec<i32> = pids.filter(|pid| parent_of(*pid) == Some(parent)).collect();
    children.sort_unstable();
    children
}

struct Stat {
    parent: i32,
    /// CPU time of reaped children, in clock ticks.
    children_ticks: u64,
}

/// A line of /proc/PID/stat; the name in parentheses may hold anything.
fn parse_stat(text: &str) -> Option<Stat> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    // Numbered as in proc(5), where the state is field 3.
    let field = |n: usize| fields.get(n - 3)?.parse::<i64>().ok();
    Some(Stat { parent: field(4)? as i32, children_ticks: (field(16)? + field(17)?).max(0) as u64 })
}

fn processes(counted: CountedProcesses, counters: &mut Counters) {
    let (mut server, mut kernel) = (Duration::ZERO, Duration::ZERO);
    let mut add_io = |pid: &str| {
        let Ok(text) = fs::read_to_string(format!("/proc/{pid}/io")) else { return };
        for (name, key) in [(FILE_READ, "rchar"), (STORAGE_READ, "read_bytes"), (STORAGE_WRITTEN, "write_bytes")] {
            if let Some(bytes) = labelled(&text, key) {
                *counters.entry(name.to_owned()).or_default() += bytes;
            }
        }
    };
    let cpu = |pid: i32| Pid::from_raw(pid).and_then(|pid| cpu_time(pid).ok()).unwrap_or_default();
    if counted == CountedProcesses::Own {
        add_io("self");
    }
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some((pid, name)) = name.to_str().and_then(|n| Some((n.parse::<i32>().ok()?, n))) else { continue };
        // A process may end while it is examined.
        let Some(stat) = fs::read_to_string(format!("/proc/{name}/stat")).ok().as_deref().and_then(parse_stat) else {
            continue;
        };
        if pid == KTHREADD || stat.parent == KTHREADD {
            kernel += cpu(pid);
        }
        if let CountedProcesses::Server(first) = counted
            && (pid == first || stat.parent == first)
        {
            server += cpu(pid);
            if pid == first {
                server += Duration::from_secs_f64(
                    stat.children_ticks as f64 / rustix::param::clock_ticks_per_second() as f64,
                );
            }
            add_io(name);
        }
    }
    counters.insert(KERNEL_CPU.to_owned(), kernel.as_nanos() as u64);
    if matches!(counted, CountedProcesses::Server(_)) {
        counters.insert(SERVER_CPU.to_owned(), server.as_nanos() as u64);
    }
}

fn machine(counters: &mut Counters) {
    let mut put = |name: String, value: Option<u64>| {
        if let Some(value) = value {
            counters.insert(name, value);
        }
    };
    let vmstat = fs::read_to_string("/proc/vmstat").unwrap_or_default();
    put(SWAPPED_IN.to_owned(), labelled(&vmstat, "pswpin"));
    put(SWAPPED_OUT.to_owned(), labelled(&vmstat, "pswpout"));
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    put(SWITCHES.to_owned(), labelled(&stat, "ctxt"));
    for resource in ["cpu", "io", "memory"] {
        let text = fs::read_to_string(format!("/proc/pressure/{resource}")).unwrap_or_default();
        for line in text.lines() {
            let kind = line.split_whitespace().next().unwrap_or("");
            let total = line.rsplit_once("total=").and_then(|(_, n)| n.trim().parse().ok());
            put(format!("pressure-{resource}-{kind}-us"), total);
        }
    }
}

/// The number after `label` at the start of a line, with or without a colon.
pub fn labelled(text: &str, label: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let rest = line.strip_prefix(label)?;
        let rest = rest.strip_prefix(':').or_else(|| rest.strip_prefix(' '))?;
        rest.split_whitespace().next()?.parse().ok()
    })
}

/// The views that [`statistics`] reads: the name after `pg_stat_`, and the query.
pub const VIEWS: [(&str, &str); 5] = [
    ("database", "SELECT * FROM pg_stat_database WHERE datname = current_database()"),
    ("bgwriter", "SELECT * FROM pg_stat_bgwriter"),
    ("checkpointer", "SELECT * FROM pg_stat_checkpointer"),
    ("wal", "SELECT * FROM pg_stat_wal"),
    (
        "io",
        "SELECT sum(reads) AS reads, sum(writes) AS writes, sum(extends) AS extends, sum(fsyncs) AS fsyncs FROM pg_stat_io",
    ),
];

/// MariaDB's counters that tell of its work: none of them is a state that can fall, and of the others most belong to features that no transaction uses.
const STATUS: [&str; 22] = [
    "Bytes_received",
    "Bytes_sent",
    "Com_commit",
    "Com_rollback",
    "Innodb_buffer_pool_pages_flushed",
    "Innodb_buffer_pool_read_requests",
    "Innodb_buffer_pool_reads",
    "Innodb_data_fsyncs",
    "Innodb_data_read",
    "Innodb_data_reads",
    "Innodb_data_writes",
    "Innodb_data_written",
    "Innodb_dblwr_pages_written",
    "Innodb_dblwr_writes",
    "Innodb_deadlocks",
    "Innodb_log_waits",
    "Innodb_log_write_requests",
    "Innodb_log_writes",
    "Innodb_os_log_written",
    "Innodb_row_lock_time",
    "Innodb_row_lock_waits",
    "Questions",
];

/// The server's own cumulative statistics under its own names, e.g. `wal.wal_bytes`, `database.blks_read`,
/// `bgwriter.buffers_clean`, `status.Innodb_data_fsyncs`. A server without such views has no such counters.
pub fn statistics(database: &mut dyn Database, counters: &mut Counters) {
    if database.dialect() == Dialect::MariaDb {
        for row in database.rows("SHOW GLOBAL STATUS").unwrap_or_default() {
            if let [SqlValue::Text(name), SqlValue::Text(value)] = &row[..]
                && STATUS.contains(&name.as_str())
                && let Ok(value) = value.parse()
            {
                counters.insert(format!("status.{name}"), value);
            }
        }
        return;
    }
    // A query of a missing view would put an error into the server's log.
    let there =
        database.rows("SELECT viewname FROM pg_catalog.pg_views WHERE schemaname = 'pg_catalog'").unwrap_or_default();
    let there = |name: &str| there.iter().any(|row| matches!(&row[..], [SqlValue::Text(view)] if view == name));
    for (prefix, view) in VIEWS.iter().filter(|(prefix, _)| there(&format!("pg_stat_{prefix}"))) {
        let sql = format!("SELECT key, value FROM ({view}) s, jsonb_each_text(to_jsonb(s)) WHERE value ~ '^[0-9]+$'");
        for row in database.rows(&sql).unwrap_or_default() {
            if let [SqlValue::Text(name), SqlValue::Text(value)] = &row[..]
                && !["datid", "numbackends"].contains(&name.as_str())
                && let Ok(value) = value.parse()
            {
                counters.insert(format!("{prefix}.{name}"), value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let line = "77 (post) gres: 1) S 12 77 77 0 -1 4194304 1 2 3 4 50 60 7 8 20 0 1 0 99 1 1";
        let stat = parse_stat(line).unwrap();
        assert_eq!((stat.parent, stat.children_ticks), (12, 15));
        assert!(parse_stat("").is_none());
    }

    #[test]
    fn labels_are_whole() {
        let text = "pswpin 3\npswpinx 4\nrchar: 77\n";
        assert_eq!(
            (labelled(text, "pswpin"), labelled(text, "rchar"), labelled(text, "pswp")),
            (Some(3), Some(77), None)
        );
    }

    #[test]
    fn this_process_and_this_machine_are_counted() {
        let before = read(CountedProcesses::Own);
        let bytes = std::fs::read("/proc/self/exe").unwrap().len() as u64;
        let after = read(CountedProcesses::Own);
        let grown = since(&before, &after);
        assert!(after.contains_key(KERNEL_CPU) && grown[SWITCHES] > 0);
        if let Some(read) = grown.get(FILE_READ) {
            assert!(*read >= bytes);
        }
        assert!(!after.contains_key(SERVER_CPU));
    }

    #[test]
    fn a_process_that_is_no_server_has_no_postmaster() {
        assert_eq!(postmaster_of(std::process::id() as i32), CountedProcesses::Unseen);
        assert_eq!(postmaster_of(0), CountedProcesses::Unseen);
    }
}
