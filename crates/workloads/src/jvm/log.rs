//! The JVM's own log of collections, safepoints and compilations.
//!
//! Invariant: a pause of the log counts once, with the log's own figure, and a compilation where it begins.

/// The pauses in a part of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pauses {
    /// Nanoseconds of each pause of a collection.
    pub collections: Vec<u64>,
    /// Nanoseconds until all threads had stopped, of all safepoints together.
    pub reaching: u64,
}

impl Pauses {
    /// Adds what a part of the log says: lines such as `GC(3) Pause Young (Allocation Failure) 15M->3M(47M) 2.345ms` and `Safepoint "…", Time since
    /// last: 9 ns, Reaching safepoint: 2834 ns, …`. Other lines, such as phases within a pause and compiled methods, are ignored.
    pub fn read(&mut self, text: &str) {
        for line in text.lines() {
            if let Some((_, rest)) = line.split_once("Reaching safepoint: ") {
                self.reaching += rest.split(' ').next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
            } else if line.split_once(") ").is_some_and(|(_, rest)| rest.starts_with("Pause ")) {
                self.collections.extend(line.rsplit(' ').next().and_then(nanoseconds));
            }
        }
    }

    /// The pause that is not exceeded by this share of all pauses; 0 if there was none.
    pub fn quantile(&self, share: f64) -> u64 {
        let mut sorted = self.collections.clone();
        sorted.sort_unstable();
        let rank = (share * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
    }
}

/// The methods whose compilation began in a part of the log: lines such as `383    b  4       java.lang.Long::valueOf (40 bytes)`. Lines about code
/// that the JVM discards end with a remark, and wrappers of native methods, which no compiler makes, have no size.
pub fn compilations(text: &str) -> usize {
    let starts = |line: &str| line.trim_start().starts_with(|first: char| first.is_ascii_digit());
    text.lines().filter(|line| line.ends_with(" bytes)") && starts(line)).count()
}

/// `2.345ms`, without a detour over floating point.
fn nanoseconds(text: &str) -> Option<u64> {
    let (whole, fraction) = text.strip_suffix("ms")?.split_once('.')?;
    let fraction = (fraction.len() <= 6).then(|| format!("{fraction:0<6}"))?;
    Some(whole.parse::<u64>().ok()? * 1_000_000 + fraction.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_of_each_collector_are_read() {
        let serial = "GC(1) Phase 1: Mark live objects 8.361ms\n\
            Safepoint \"GenCollectFull\", Time since last: 425036946 ns, Reaching safepoint: 3165 ns, Cleanup: 8553 ns, At safepoint: 2 ns, Total: 2 ns\n\
            GC(1) Pause Full (System.gc()) 18M->5M(247M) 23.085ms\n\
            GC(2) Pause Young (Allocation Failure) 15M->3M(47M) 2.345ms\n\
            Safepoint \"Cleanup\", Time since last: 1000235114 ns, Reaching safepoint: 5769 ns, Cleanup: 6 ns, At safepoint: 1 ns, Total: 8 ns\n";
        let mut pauses = Pauses::default();
        pauses.read(serial);
        assert_eq!(pauses, Pauses { collections: vec![23_085_000, 2_345_000], reaching: 8934 });
        let others = "GC(0) Pause Young (Normal) (G1 Evacuation Pause) 23M->1M(64M) 1.2ms\n\
            GC(0)   Evacuate Collection Set: 0.6ms\n\
            GC(1) Concurrent Mark Cycle 3.401ms\n\
            GC(1) Pause Remark 14M->14M(64M) 0.500ms\n\
            GC(2) Pause Mark Start 0.011ms\n\
            GC(2) Garbage Collection (Warmup) 10M(16%)->4M(6%)\n";
        let mut pauses = Pauses::default();
        pauses.read(others);
        assert_eq!(pauses.collections, [1_200_000, 500_000, 11_000]);
    }

    #[test]
    fn compilations_are_counted_and_are_no_pauses() {
        let log = " 383    b  4       java.lang.Long::valueOf (40 bytes)\n\
            \x20313       3       java.lang.Long::valueOf (40 bytes)   made not entrant\n\
            GC(4) Pause Young (Allocation Failure) 19M->6M(46M) 3.897ms\n\
            \x20412 %  b  4       bigiron.Point$Worker::work @ 11 (75 bytes)\n\
            \x20 25     n 0       java.lang.System::arraycopy (native)   (static)\n\
            1414  s!   4       bigiron.Terminal$$Lambda$21/0x00007fce41005068::apply (21 bytes)\n\
            \x20414   COMPILE SKIPPED: out of nodes (not retryable)\n\
            Compressed class space size: 1073741824 (1024 bytes)\n";
        assert_eq!(compilations(log), 3);
        let mut pauses = Pauses::default();
        pauses.read(log);
        assert_eq!(pauses, Pauses { collections: vec![3_897_000], reaching: 0 });
    }

    #[test]
    fn quantiles_are_pauses() {
        let pauses = |collections: &[u64]| Pauses { collections: collections.to_vec(), reaching: 0 };
        assert_eq!(pauses(&[]).quantile(0.5), 0);
        assert_eq!(pauses(&[7]).quantile(0.99), 7);
        let hundred: Vec<u64> = (1..=100).rev().collect();
        assert_eq!((pauses(&hundred).quantile(0.5), pauses(&hundred).quantile(0.99)), (50, 99));
    }
}
