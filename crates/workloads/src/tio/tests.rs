use bigiron_model::clock::Clock;

use super::*;
use bigiron_workload::testing;

fn with<T>(settings: &[(&str, &str)], home: &Path, work: impl FnOnce(&Settings, &Context<'_>) -> T) -> T {
    let base = [("size", "512K"), ("random", "50"), ("threads", "1,3")];
    let options = testing::options(&Tio, base.into_iter().chain(settings.iter().copied())).unwrap();
    let spec = Settings::parse(&options, Clock::Exact).unwrap();
    work(&spec, &testing::context(home))
}

#[test]
fn every_way_of_access_delivers_its_rows_and_leaves_what_was_written() {
    for settings in [
        &[][..],
        &[("access", "direct"), ("block", "8K")],
        &[("access", "mmap"), ("cache", "warm")],
        &[("writing", "sequential"), ("sync", "on")],
    ] {
        let home = tempfile::tempdir().unwrap();
        with(settings, home.path(), |mut spec, cx| {
            spec.prepare(cx).unwrap();
            let outcome = spec.run(cx).unwrap();
            let declared = spec.metrics();
            assert_eq!((declared.len(), outcome.values.len()), (17, 17));
            assert!(declared.iter().all(|def| def.kind.takes(outcome.values[&def.name])), "{settings:?}");
            assert!(outcome.facts["row.random-write-3t"].contains("MB/s per CPU"));
            Box::new(spec).verify(cx).unwrap();
        });
    }
}

#[test]
fn lost_and_misplaced_blocks_are_found() {
    let home = tempfile::tempdir().unwrap();
    with(&[], home.path(), |mut spec, cx| {
        spec.run(cx).unwrap();
        let path = file::path(&cx.dir, 2);
        let whole = std::fs::read(&path).unwrap();
        let says = |what: &str| {
            let error = Box::new(spec).verify(cx).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        };
        std::fs::write(&path, &whole[4096..]).unwrap();
        says("has 167936 bytes, 172032 were written");
        let mut moved = whole.clone();
        moved.rotate_left(4096);
        std::fs::write(&path, &moved).unwrap();
        says("holds the block of byte");
        // The last random write of a block undone: an older one remains.
        let mut stale = whole;
        Stamp::new(cx.seed).put(&mut stale, 2 << 48, 999);
        std::fs::write(&path, &stale).unwrap();
        says("holds write 0x3e7");
    });
}

#[test]
fn threads_that_write_in_turn_have_a_stage_each() {
    let options = testing::options(&Tio, [("writing", "sequential"), ("threads", "2")]).unwrap();
    let script = script(&Settings::parse(&options, Clock::Exact).unwrap());
    // Create the files, two turns of two phases, two phases together.
    assert_eq!(script.len(), 1 + 2 * 2 + 2);
    assert_eq!(script[2], Step::Phase { phase: Phase::Write, threads: 2, row: 0, turn: Some(1) });
}

#[test]
fn a_long_phase_is_no_hang() {
    let silences = |settings: &[(&str, &str)]| {
        with(settings, Path::new("/"), |spec, _| [spec.silence(), spec.guest_silence()].map(|time| time.as_secs()))
    };
    let large = ("size", "100000000000");
    // 24,414,062 blocks, and 50 random operations.
    assert_eq!(silences(&[large]), [600 + 10_000 + 1, 50_000 + 24_414]);
    assert_eq!(silences(&[large, ("access", "direct")])[0], 600 + 10_000 + 488_282);
}
