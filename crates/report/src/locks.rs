//! What the lines that differ waited for, as rows and sentences for every format: lockmeter's table for each arm, and the changes.
//!
//! Invariant: a column whose value cannot be known says `n/a`, once.

use super::table::{Line, table, wrap};
use super::why::{by, ns, share, signed};
use bigiron_judge::line::Line as Judged;
use bigiron_judge::locks::{Contended, HowTraced, Lock, Locks, NamedCost, WaitCost};
use bigiron_model::waits::{LockStat, StatLock};

/// Locks shown of one line in text and in HTML, and callers shown of each lock.
pub const LOCKS: usize = 6;
pub const MOST: usize = 40;
const CALLERS: usize = 3;

/// A change of waiting below this share of the line's difference gets no sentence.
const TELLING: f64 = 0.05;

/// Most sentences about changes.
const SENTENCES: usize = 3;

/// The names of lockmeter's columns.
pub const COLUMNS: [&str; 9] =
    ["UTIL", "CON", "HOLD MEAN(MAX)", "WAIT MEAN(MAX)(% CPU)", "TOTAL", "NOWAIT", "SPIN", "REJECT", "NAME"];

/// `mmap_lock (rwsem:W)`, or the class alone.
pub fn name(lock: &Lock) -> String {
    match &lock.name {
        Some(name) if name.ends_with(&lock.class) => name.clone(),
        Some(name) => format!("{name} ({})", lock.class),
        None => lock.class.clone(),
    }
}

/// `micro fork-exit: waits for locks 60.0 → 125.0 ns per operation, +65.0`.
pub fn head(line: &Contended) -> String {
    let total = &line.total;
    format!(
        "{} {}{}: waits for locks {} → {} ns per operation, {}",
        line.workload,
        line.metric,
        by(&line.metric, &line.window),
        ns(total.a.ns),
        ns(total.b.ns),
        signed(total.delta)
    )
}

/// The largest changes, in words.
pub fn sentences(line: &Contended) -> Vec<String> {
    let told = |delta: f64| {
        let share_of = line.share(delta).filter(|share| share.abs() >= TELLING)?;
        Some(format!("{} ns per operation, {} of the difference.", signed(delta), share(share_of)))
    };
    let of_lock = |lock: &Lock| {
        let told = told(lock.cost.delta)?;
        let delta = lock.cost.delta;
        let same = |caller: &&NamedCost| caller.cost.delta * delta > 0.0;
        let callers: Vec<&str> = lock.callers.iter().filter(same).map(|c| c.name.as_str()).take(CALLERS).collect();
        let a = if lock.name.is_none() { "a " } else { "" };
        Some(format!("Waits for {a}{} in {}: {told}", name(lock), super::sentence::join(&callers)))
    };
    let mut all: Vec<String> = line.locks.iter().filter_map(of_lock).take(SENTENCES).collect();
    if all.is_empty() {
        all.push("No lock's waits changed by 5 % of the difference or more.".to_owned());
    }
    let of_futexes = |f: &NamedCost| Some(format!("Waits for futexes in `{}`: {}", f.name, told(f.cost.delta)?));
    all.extend(line.futexes.iter().filter_map(of_futexes).take(SENTENCES));
    all
}

/// Rows of the changes: change, A, B, waits of A and B, and the lock.
pub fn changes(line: &Contended, most: usize) -> Vec<[String; 6]> {
    let row = |cost: &bigiron_judge::locks::CostPair, name: String| {
        let (a, b) = (&cost.a, &cost.b);
        [signed(cost.delta), ns(a.ns), ns(b.ns), count(a.waits), count(b.waits), name]
    };
    let mut rows = Vec::new();
    for lock in line.locks.iter().take(most) {
        rows.push(row(&lock.cost, name(lock)));
        rows.extend(lock.callers.iter().take(CALLERS).map(|c| row(&c.cost, format!("  {}", c.name))));
    }
    rows.extend(line.futexes.iter().take(CALLERS).map(|f| row(&f.cost, format!("futexes of {}", f.name))));
    rows
}

/// lockmeter's table of one arm: the baseline's, or the other arm's.
pub fn lockmeter(line: &Contended, baseline: bool, cpus: u32, most: usize) -> Vec<[String; 9]> {
    if let Some(stat) = &line.stat {
        return accounts(if baseline { &stat.a } else { &stat.b }, cpus, most);
    }
    let side = |pair: &bigiron_judge::locks::CostPair| if baseline { pair.a } else { pair.b };
    let row = |cost: WaitCost, name: String, unknown: &str| {
        let wait = format!("{}({})({:.2})", time(cost.mean_ns), time(cost.max_ns), 100.0 * cost.cpu);
        let spin = format!("{:.0} %", 100.0 * cost.spun / cost.waits.max(f64::MIN_POSITIVE));
        let n = || unknown.to_owned();
        [n(), count(cost.waits), n(), wait, n(), n(), spin, n(), name]
    };
    let mut rows = vec![row(side(&line.total), "*TOTAL*".to_owned(), "n/a")];
    for lock in line.locks.iter().filter(|lock| side(&lock.cost).waits > 0.0).take(most) {
        rows.push(row(side(&lock.cost), name(lock), ""));
        let callers = lock.callers.iter().filter(|caller| side(&caller.cost).waits > 0.0).take(CALLERS);
        rows.extend(callers.map(|caller| row(side(&caller.cost), format!("  {}", caller.name), "")));
    }
    rows
}

/// The same table from the kernel's own lock statistics.
fn accounts(stat: &LockStat, cpus: u32, most: usize) -> Vec<[String; 9]> {
    let elapsed = stat.ns.max(1) as f64;
    let mean = |sum: f64, n: u64| if n == 0 { 0.0 } else { sum / n as f64 };
    let percent = |part: f64| format!("{:.1} %", 100.0 * part);
    let row = |lock: &StatLock| {
        let contended = mean(lock.contentions as f64, lock.acquisitions);
        [
            // Several locks can be held at the same time.
            if lock.lock == stat.total.lock { String::new() } else { percent(lock.hold_ns / elapsed) },
            percent(contended),
            format!("{}({})", time(mean(lock.hold_ns, lock.acquisitions)), time(lock.hold_max_ns)),
            format!(
                "{}({})({:.2})",
                time(mean(lock.wait_ns, lock.contentions)),
                time(lock.wait_max_ns),
                100.0 * lock.wait_ns / elapsed / f64::from(cpus.max(1))
            ),
            lock.acquisitions.to_string(),
            percent(1.0 - contended),
            percent(contended),
            "n/a".to_owned(),
            lock.lock.clone(),
        ]
    };
    let mut rows = vec![row(&stat.total)];
    for lock in stat.locks.iter().take(most) {
        rows.push(row(lock));
        rows.extend(lock.callers.iter().take(CALLERS).map(|(caller, waits)| {
            let mut cells: [String; 9] = std::array::from_fn(|_| String::new());
            (cells[1], cells[8]) = (waits.to_string(), format!("  {caller}"));
            cells
        }));
    }
    rows
}

/// A number of waits per operation.
fn count(n: f64) -> String {
    match n {
        0.0 => "0".to_owned(),
        n if n < 0.0005 => "<0.001".to_owned(),
        n if n < 10.0 => format!("{n:.3}"),
        n => ns(n),
    }
}

/// `812ns`, `5.2us`, `14.1ms`.
fn time(ns: f64) -> String {
    match ns {
        n if n < 999.5 => format!("{n:.0}ns"),
        n if n < 999_950.0 => format!("{:.1}us", n / 1e3),
        n if n < 999_950_000.0 => format!("{:.1}ms", n / 1e6),
        n => format!("{:.1}s", n / 1e9),
    }
}

/// How the waits were recorded.
pub fn method(locks: &Locks) -> Option<String> {
    let HowTraced { trials, slow_down, events, lost, unpaired, others } = locks.traced.as_ref()?;
    let grouped = |n: u64| super::why::grouped(n as i64);
    let pairs = locks.lines.iter().map(|l| l.pairs).max().unwrap_or(0);
    let mut text = format!(
        "Every wait for a kernel lock or a futex recorded on all CPUs in {} of {}: {} events, {}",
        if *trials == 1 { "1 rerun".to_owned() } else { format!("{trials} reruns") },
        if pairs == 1 { "1 pair".to_owned() } else { format!("{pairs} pairs") },
        grouped(*events),
        if *lost == 0 { "none lost".to_owned() } else { format!("{} lost", grouped(*lost)) },
    );
    if *unpaired > 0 {
        text.push_str(&format!(", {} unpaired", grouped(*unpaired)));
    }
    if *others > 0 {
        text.push_str(&format!("; {} waits of other processes are not counted", grouped(*others)));
    }
    if let Some(slow_down) = slow_down {
        text.push_str(&format!("; these trials were {slow_down:.2} times as slow as the judged ones"));
    }
    text.push_str(". Waiting is summed over all waiters, so it may be longer than an operation");
    let accounted = locks.lines.iter().any(|line| line.stat.is_some());
    let tabled = locks.lines.iter().any(|line| line.total.a.waits + line.total.b.waits > 0.0);
    if accounted {
        text.push_str(
            ". The tables come from /proc/lock_stat and cover the workload's whole run: REJECT is n/a, because lock_stat does not count failed attempts, \
             and a wait that sleeps counts as CPU time there",
        );
    } else if tabled {
        text.push_str(
            ". CON is waits per operation, SPIN the share of them that never slept, % CPU the share of all CPUs' time spent spinning. A kernel without \
             CONFIG_LOCK_STAT does not count uncontended locks and does not time held ones: UTIL, HOLD, TOTAL, NOWAIT and REJECT are n/a",
        );
    }
    Some(text)
}

/// Whether a line is shown with its tables: primaries are; other lines are shown in sentences.
pub fn is_primary(line: &Contended, lines: &[Judged]) -> bool {
    lines.iter().any(|l| l.metric.primary && l.workload == line.workload && l.metric.name == line.metric)
}

/// One line's section in text; `arms` are A's name and B's.
pub fn text(line: &Contended, arms: (&str, &str), cpus: u32, with_tables: bool) -> String {
    let mut out = wrap(&head(line), "  ", "    ");
    if with_tables && !line.locks.is_empty() {
        let cells = |cells: &[String]| Line::Cells(cells.to_vec());
        let mut lines = vec![cells(&["    change, ns", "A", "B", "waits, A", "B", "for"].map(str::to_owned))];
        lines.extend(changes(line, LOCKS).into_iter().map(|[change, a, b, waits_a, waits_b, name]| {
            cells(&[format!("    {change:>10}"), a, b, waits_a, waits_b, name])
        }));
        out.push_str(&table(&[false, true, true, true, true, false], &lines));
    }
    for sentence in sentences(line) {
        out.push_str(&wrap(&sentence, "    ", "    "));
    }
    if with_tables && !line.locks.is_empty() {
        for (letter, arm, baseline) in [('A', arms.0, true), ('B', arms.1, false)] {
            let mut lines = vec![Line::Heading(format!("    {letter} = {arm}"))];
            let heads = COLUMNS.map(|column| column.replace("WAIT MEAN(MAX)(% CPU)", "WAIT(MAX)(% CPU)"));
            let heads = heads.map(|column| column.replace("HOLD MEAN(MAX)", "HOLD"));
            let rows = lockmeter(line, baseline, cpus, LOCKS);
            lines.extend([heads].into_iter().chain(rows).map(|mut cells| {
                cells[0] = format!("    {:>4}", cells[0]);
                Line::Cells(cells.to_vec())
            }));
            out.push_str(&table(&[false, true, true, true, true, true, true, true, false], &lines));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use bigiron_judge::fixture::contended;
    use bigiron_judge::judge;
    use bigiron_judge::locks::Accounts;

    fn found() -> Locks {
        let (plan, records, waiting) = contended();
        Locks::new(&plan, &records, &judge(&plan, &records), &waiting)
    }

    #[test]
    fn what_changed_is_a_sentence_with_its_share() {
        let line = &found().lines[0];
        assert_eq!(head(line), "micro fork-exit: waits for locks 60.0 → 125.0 ns per operation, +65.0");
        assert_eq!(
            sentences(line),
            [
                "Waits for mmap_lock (rwsem:W) in vm_mmap_pgoff and do_madvise: +70.0 ns per operation, 70 % of the difference.",
                "Waits for a spinlock in do_<&>: -10.0 ns per operation, -10 % of the difference.",
                "Waits for pipe mutex in pipe_write: +5.0 ns per operation, 5 % of the difference.",
                "Waits for futexes in `init`: +50.0 ns per operation, 50 % of the difference.",
            ]
        );
    }

    #[test]
    fn lockmeters_table_says_once_what_is_not_known() {
        let found = found();
        let rows = lockmeter(&found.lines[0], true, 2, 6);
        assert_eq!(rows[0], ["n/a", "1.500", "n/a", "40ns(200ns)(0.50)", "n/a", "n/a", "67 %", "n/a", "*TOTAL*"]);
        assert_eq!(rows[1], ["", "0.500", "", "100ns(200ns)(0.00)", "", "", "0 %", "", "mmap_lock (rwsem:W)"]);
        assert_eq!(rows[2][8], "  vm_mmap_pgoff");
        // A has no waits for a pipe, nor any in do_madvise.
        assert_eq!(rows.len(), 5, "{rows:?}");
        let text = text(&found.lines[0], ("debian:6.1", "debian:6.12"), 2, true);
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert!(text.contains("A = debian:6.1\n") && text.contains("*TOTAL*"), "{text}");
        let method = method(&found).unwrap();
        assert!(
            method.contains("200 events, 1 lost") && method.contains("UTIL, HOLD, TOTAL, NOWAIT and REJECT are n/a")
        );
    }

    #[test]
    fn the_kernels_own_account_fills_the_columns() {
        let mut line = found().lines.remove(0);
        let lock = |lock: &str| StatLock {
            lock: lock.to_owned(),
            contentions: 20,
            acquisitions: 1000,
            wait_ns: 40_000.0,
            wait_max_ns: 9_000.0,
            hold_ns: 500_000.0,
            hold_max_ns: 12_000.0,
            callers: vec![("do_fork".to_owned(), 15)],
        };
        let stat = LockStat {
            workload: "micro".to_owned(),
            ns: 1_000_000,
            locks: vec![lock("tasklist_lock-W")],
            total: StatLock { callers: Vec::new(), ..lock("*TOTAL*") },
        };
        line.stat = Some(Box::new(Accounts { a: stat.clone(), b: stat }));
        let rows = lockmeter(&line, false, 2, 6);
        assert_eq!(
            rows[1],
            [
                "50.0 %",
                "2.0 %",
                "500ns(12.0us)",
                "2.0us(9.0us)(2.00)",
                "1000",
                "98.0 %",
                "2.0 %",
                "n/a",
                "tasklist_lock-W"
            ]
        );
        assert_eq!((rows[0][0].as_str(), rows[2][1].as_str(), rows[2][8].as_str()), ("", "15", "  do_fork"));
    }

    #[test]
    fn figures_are_short() {
        for (n, is) in [(0.0, "0"), (0.0001, "<0.001"), (0.25, "0.250"), (12.34, "12.3"), (1234.0, "1,234")] {
            assert_eq!(count(n), is);
        }
        for (n, is) in [(12.0, "12ns"), (5200.0, "5.2us"), (14_100_000.0, "14.1ms"), (2.5e9, "2.5s")] {
            assert_eq!(time(n), is);
        }
    }
}
