//! Many foregrounds that change and check the same blocks: nothing is wrong, and nothing is reported wrong.

use super::*;

#[test]
fn sixty_four_writers_of_the_same_blocks_raise_no_false_alarm() {
    for io in ["sync", "libaio"] {
        // A cache of a fifth of the data: a process soon reads back from disk, and checks, the writes of another.
        let sizes =
            [("data", "40M"), ("cache", "8M"), ("journal", "4M"), ("processes", "64"), ("transactions", "3000")];
        let bench = Bench::new(&[&sizes[..], &[("write", "60"), ("io", io)]].concat());
        let outcome = bench.prepare().run().unwrap();
        assert!(count(&outcome, "block-reads") > 100.0 && count(&outcome, "block-writes") > 100.0);
        let verdict = bench.check(AckSource::Ledger);
        assert!(verdict.passed(), "{:?}", verdict.findings);
        assert!(verdict.facts["commits-in-log"] > 0 && verdict.facts["commits-in-doubt"] == 0);
        // All of them worked on the same blocks.
        let hottest = bench.ledger().blocks.iter().map(|b| b.committed).max().unwrap();
        assert!(hottest > 64, "{hottest}");
    }
}
