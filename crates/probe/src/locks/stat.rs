//! `/proc/lock_stat`, the kernel's own statistics of its locks, if it was built with CONFIG_LOCK_STAT (Documentation/locking/lockstat.rst).
//!
//! Invariant: a line that cannot be parsed is not a lock; the sums cover all parsed lines.

use bigiron_model::waits::{LockStat, StatLock};

/// The file, and the switch that turns it on.
pub const FILE: &str = "/proc/lock_stat";
pub const SWITCH: &str = "/proc/sys/kernel/lock_stat";

/// Locks kept of those waited for, and of those held.
const MOST: usize = 64;

/// Callers kept of each lock.
const CALLERS: usize = 4;

/// Resets the statistics and turns them on.
///
/// # Errors
/// The kernel refuses it.
pub fn begin() -> std::io::Result<()> {
    std::fs::write(SWITCH, "1")?;
    std::fs::write(FILE, "0")
}

/// Reads the statistics collected since [`begin`], over `ns`.
pub fn read(workload: &str, ns: u64) -> std::io::Result<LockStat> {
    let text = std::fs::read_to_string(FILE)?;
    std::fs::write(SWITCH, "0")?;
    Ok(parse(&text, workload, ns))
}

/// Parses the file's text.
pub fn parse(text: &str, workload: &str, ns: u64) -> LockStat {
    let mut locks: Vec<StatLock> = Vec::new();
    // A line of dashes precedes the waiters, and another precedes the holders that they waited for.
    let mut separators = 0;
    for line in text.lines() {
        let line = line.trim();
        if !line.is_empty() && line.bytes().all(|byte| byte == b'-') {
            separators += 1;
        } else if let Some(lock) = lock(line) {
            locks.push(lock);
            separators = 0;
        } else if let (Some(last), Some(caller), 1) = (locks.last_mut(), caller(line), separators) {
            last.callers.push(caller);
        }
    }
    let mut total = StatLock { lock: "*TOTAL*".to_owned(), ..StatLock::default() };
    for lock in &mut locks {
        total.contentions += lock.contentions;
        total.acquisitions += lock.acquisitions;
        total.wait_ns += lock.wait_ns;
        total.wait_max_ns = total.wait_max_ns.max(lock.wait_max_ns);
        total.hold_ns += lock.hold_ns;
        total.hold_max_ns = total.hold_max_ns.max(lock.hold_max_ns);
        lock.callers.sort_by(|(name_a, a), (name_b, b)| b.cmp(a).then_with(|| name_a.cmp(name_b)));
        lock.callers.truncate(CALLERS);
    }
    locks.retain(|lock| lock.acquisitions > 0);
    let by = |of: fn(&StatLock) -> f64| {
        move |x: &StatLock, y: &StatLock| of(y).total_cmp(&of(x)).then_with(|| x.lock.cmp(&y.lock))
    };
    locks.sort_by(by(|lock| lock.wait_ns));
    let mut held = locks.split_off(locks.len().min(MOST));
    held.sort_by(by(|lock| lock.hold_ns));
    held.truncate(MOST);
    locks.extend(held);
    LockStat { workload: workload.to_owned(), ns, locks, total }
}

/// `NAME: con-bounces contentions waittime-min max total avg acq-bounces acquisitions holdtime-min max total avg`, times in microseconds.
fn lock(line: &str) -> Option<StatLock> {
    let (name, numbers) = line.rsplit_once(": ").or_else(|| line.rsplit_once(":\t"))?;
    let numbers: Vec<f64> = numbers.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    let [_, contentions, _, wait_max, wait, _, _, acquisitions, _, hold_max, hold, _] = numbers[..] else {
        return None;
    };
    let ns = |us: f64| 1000.0 * us;
    Some(StatLock {
        lock: name.trim().to_owned(),
        contentions: contentions as u64,
        acquisitions: acquisitions as u64,
        wait_ns: ns(wait),
        wait_max_ns: ns(wait_max),
        hold_ns: ns(hold),
        hold_max_ns: ns(hold_max),
        callers: Vec::new(),
    })
}

/// `NAME COUNT [<address>] FUNCTION+OFFSET/SIZE`.
fn caller(line: &str) -> Option<(String, u64)> {
    let (before, after) = line.split_once("[<")?;
    let count = before.split_whitespace().next_back()?.parse().ok()?;
    let function = after.split_once(">]")?.1.trim().split('+').next()?;
    (!function.is_empty()).then(|| (crate::symbols::plain(function).to_owned(), count))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the kernel's documentation, shortened.
    const TEXT: &str = "lock_stat version 0.4\n\
-----------------------------------------------------------------------------------------------------\n\
                              class name    con-bounces    contentions   waittime-min   waittime-max waittime-total   waittime-avg    acq-bounces   acquisitions   holdtime-min   holdtime-max holdtime-total   holdtime-avg\n\
-----------------------------------------------------------------------------------------------------\n\
\n\
                         &mm->mmap_lock-W:            46             84           0.26         939.10       16371.53         194.90          47291        2922365           0.16     2220301.69 17464026916.32        5975.99\n\
                         &mm->mmap_lock-R:            37            100           1.31      299502.61      325629.52        3256.30         212344       34316685           0.10        7744.91    95016910.20           2.77\n\
                         ---------------\n\
                           &mm->mmap_lock              1          [<ffffffff811502a7>] khugepaged_scan_mm_slot+0x57/0x280\n\
                           &mm->mmap_lock             96          [<ffffffff815351c4>] __do_page_fault.isra.0+0x1d4/0x510\n\
                         ---------------\n\
                           &mm->mmap_lock             55          [<ffffffff81046fda>] dup_mm+0x21a/0x650\n\
\n\
                        &(&dentry->d_lockref.lock)->rlock:             0              0           0.00           0.00           0.00           0.00              0              0           0.00           0.00           0.00           0.00\n\
                                unix_table_lock:           110            112           0.21          49.24         163.91           1.46          21094          66312           0.12         624.42       31589.81           0.48\n";

    #[test]
    fn every_class_has_its_row_and_who_waited() {
        let stat = parse(TEXT, "dbsim", 2_000_000_000);
        let names: Vec<_> = stat.locks.iter().map(|l| l.lock.as_str()).collect();
        assert_eq!(names, ["&mm->mmap_lock-R", "&mm->mmap_lock-W", "unix_table_lock"]);
        let read = &stat.locks[0];
        assert_eq!((read.contentions, read.acquisitions), (100, 34_316_685));
        assert!((read.wait_ns - 325_629_520.0).abs() < 1.0 && (read.hold_max_ns - 7_744_910.0).abs() < 1.0);
        // The busiest caller first; holders of the lock are not among the callers.
        assert_eq!(read.callers, [("__do_page_fault".to_owned(), 96), ("khugepaged_scan_mm_slot".to_owned(), 1)]);
        assert_eq!((stat.total.contentions, stat.total.acquisitions), (296, 2_922_365 + 34_316_685 + 66_312));
        assert!((stat.total.wait_max_ns - 299_502_610.0).abs() < 1.0);
    }

    #[test]
    fn other_text_has_no_locks() {
        let stat = parse(
            "lock_stat version 0.4\n*WARNING* lock debugging disabled!! - possibly due to a lockdep warning\n",
            "w",
            1,
        );
        assert_eq!((stat.locks, stat.total.acquisitions), (Vec::new(), 0));
    }
}
