//! Function calls through a pointer, with 0, 1, 2 and 15 arguments.
//!
//! Invariant: each call increments a thread-local count, so that none can be optimized away.

use std::cell::Cell;
use std::hint::black_box;

use super::UserContext;
use super::verdict::expect;

/// Calls of one round.
const CALLS: i64 = 512;
/// Rounds at full scale.
const ROUNDS: u64 = 1000;

thread_local! {
    static COUNT: Cell<i64> = const { Cell::new(0) };
    static STEP: Cell<i32> = const { Cell::new(1) };
}

fn add(step: i32) -> i32 {
    let count = COUNT.get() + i64::from(step);
    COUNT.set(count);
    count as i32
}

extern "C" fn none() -> i32 {
    add(STEP.get())
}

extern "C" fn one(a: i32) -> i32 {
    add(a)
}

extern "C" fn two(a: i32, b: i32) -> i32 {
    add(a.wrapping_add(b))
}

extern "C" fn fifteen(
    _: i32,
    _: i32,
    _: i32,
    _: i32,
    _: i32,
    _: i32,
    _: i32,
    h: i32,
    _: i32,
    _: i32,
    _: i32,
    _: i32,
    _: i32,
    _: i32,
    o: i32,
) -> i32 {
    add(h.wrapping_add(o))
}

/// Calls `call` with the round's number, [`CALLS`] times per round; the count of each must grow as `adds` says.
#[inline(always)]
fn rounds(place: &UserContext<'_>, call: impl Fn(i32), adds: impl Fn(i64) -> i64) -> anyhow::Result<()> {
    COUNT.set(0);
    let rounds = place.times(ROUNDS);
    for round in 0..rounds {
        for _ in 0..CALLS / 16 {
            let n = round as i32;
            call(n);
            call(n);
            call(n);
            call(n);
            call(n);
            call(n);
            call(n);
            call(n);
            call(n);
            call(n);
            call(n);
            call(n);
            call(n);
            call(n);
            call(n);
            call(n);
        }
    }
    expect("Function calls", COUNT.get(), (0..rounds as i64).map(|round| CALLS * adds(round)).sum())
}

pub fn no_argument(place: &mut UserContext<'_>) -> anyhow::Result<()> {
    let call = black_box(none as extern "C" fn() -> i32);
    rounds(place, |_| _ = call(), |_| 1)
}

pub fn one_argument(place: &mut UserContext<'_>) -> anyhow::Result<()> {
    let call = black_box(one as extern "C" fn(i32) -> i32);
    rounds(place, |n| _ = call(n), |round| round)
}

pub fn two_arguments(place: &mut UserContext<'_>) -> anyhow::Result<()> {
    let call = black_box(two as extern "C" fn(i32, i32) -> i32);
    rounds(place, |n| _ = call(n, 1), |round| round + 1)
}

pub fn fifteen_arguments(place: &mut UserContext<'_>) -> anyhow::Result<()> {
    let call = black_box(
        fifteen as extern "C" fn(i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32) -> i32,
    );
    rounds(place, |n| _ = call(n, n, n, n, n, n, n, n, n, n, n, n, n, n, n), |round| 2 * round)
}
