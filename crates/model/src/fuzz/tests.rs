//! The engine finds the faults that it is there for.

use std::collections::BTreeSet;
use std::hint::black_box;
use std::time::Duration;

use super::mutator::Mutator;
use super::{Limits, Outcome, Target};

/// Runs a reader of words in which `marked` inputs are faulty; returns the message and the input that was kept.
fn fault(test: &'static str, read: impl Fn(&[u8]) -> Outcome) -> (String, Vec<u8>) {
    let corpus = tempfile::tempdir().unwrap();
    let target = Target {
        test,
        package: "bigiron-model",
        corpus: corpus.path().to_owned(),
        seeds: vec![b"one two three".to_vec()],
        words: &["fault"],
    };
    let limits = Limits {
        changes: 10_000,
        time: Duration::from_secs(60),
        long: false,
        cpu: Duration::from_secs(1),
        bytes: 256 << 20,
    };
    let why = target.try_run(limits, read).expect_err("a fault");
    let kept = super::corpus::load(corpus.path()).unwrap();
    assert_eq!(kept.len(), 1, "{why}");
    (why, kept.into_iter().next().unwrap())
}

fn is_faulty(bytes: &[u8]) -> bool {
    bytes.windows(5).any(|w| w == b"fault")
}

#[test]
fn a_panic_is_found_and_its_input_kept() {
    let (why, input) = fault("fuzz::tests::a_panic_is_found_and_its_input_kept", |bytes| {
        assert!(!is_faulty(bytes), "what a reader says");
        Ok(String::new())
    });
    assert!(
        why.contains("what a reader says") && why.contains("cargo test -p bigiron-model fuzz::tests::a_panic"),
        "{why}"
    );
    assert!(is_faulty(&input));
}

#[test]
fn an_endless_loop_is_found() {
    let (why, input) = fault("fuzz::tests::an_endless_loop_is_found", |bytes| {
        while is_faulty(black_box(bytes)) {}
        Ok(String::new())
    });
    assert!(why.contains("of CPU time"), "{why}");
    assert!(is_faulty(&input));
}

#[test]
fn an_unbounded_allocation_is_found() {
    let (why, input) = fault("fuzz::tests::an_unbounded_allocation_is_found", |bytes| {
        let wanted = if is_faulty(bytes) { 1 << 30 } else { 1 << 20 };
        Ok(black_box(Vec::<u8>::with_capacity(wanted)).len().to_string())
    });
    assert!(why.contains("memory allocation of 1073741824 bytes failed"), "{why}");
    assert!(is_faulty(&input));
}

#[test]
fn an_overflowing_stack_is_found() {
    fn depth(bytes: &[u8]) -> usize {
        let here = black_box([1_u8; 1024]);
        if is_faulty(bytes) { depth(bytes) + usize::from(here[0]) } else { 0 }
    }
    let (why, input) = fault("fuzz::tests::an_overflowing_stack_is_found", |bytes| Ok(depth(bytes).to_string()));
    assert!(why.contains("stack") && why.contains("signal"), "{why}");
    assert!(is_faulty(&input));
}

#[test]
fn the_same_seed_makes_the_same_inputs_and_they_differ() {
    let pool = [b"a = 1\nb = [2, 3]\n".to_vec(), Vec::new(), b"\x7fELF\x02\x01\x01".to_vec()];
    let inputs = |seed| {
        let mut mutator = Mutator::new(seed, &["word"]);
        (0..2000).map(|_| mutator.change(&pool)).collect::<Vec<_>>()
    };
    let first = inputs(1);
    assert_eq!(first, inputs(1));
    assert!(first.iter().collect::<BTreeSet<_>>().len() > 1000);
    assert!(first.iter().any(|i| i.windows(10).any(|w| w == b"4294967295")), "numbers at their edges");
    assert!(first.iter().any(|i| i.len() > 10_000), "long lists");
}
