//! Additions, multiplications and divisions of five kinds of numbers: chains of twelve operations, each of which depends on the
//! one before.
//!
//! Invariant: a round of a chain leaves its numbers unchanged, so that a wrong operation anywhere shows at the end.

use std::fmt::Debug;
use std::hint::black_box;
use std::ops::{Add, Div, Mul};

use super::UserContext;
use super::verdict::expect;
use bigiron_sys::register::{Division, Register};

/// Twelve operations on `a`, `x` and `y`: each in turn takes the next one in, once or twice.
///
/// A double operation is one expression, as in a C program: x + y + y of integers is a single instruction if the processor has
/// one. With addition, 0, v and -v return to their values; with multiplication 1, v and 1/v do.
#[inline(always)]
fn chain<T: Register>(rounds: u64, numbers: [T; 3], op: impl Fn(T, T) -> T) -> [T; 3] {
    let [mut a, mut x, mut y] = numbers.map(Register::opaque);
    let once = |left, right| op(left, right).opaque();
    let twice = |left, right| op(op(left, right), right).opaque();
    for _ in 0..rounds {
        a = once(a, x);
        x = twice(x, y);
        y = twice(y, a);
        a = twice(a, x);
        x = twice(x, y);
        y = twice(y, a);
        a = once(a, x);
    }
    [a, x, y]
}

fn verified<T: PartialEq + Debug>(what: &str, found: [T; 3], numbers: [T; 3]) -> anyhow::Result<()> {
    expect(what, found, numbers)
}

/// The result of a chain must equal its input.
macro_rules! chains {
    ($($name:ident: $number:ty, $rounds:literal, $numbers:expr, $op:expr, $what:literal);+ $(;)?) => {$(
        #[inline(never)]
        pub fn $name(place: &mut UserContext<'_>) -> anyhow::Result<()> {
            let numbers: [$number; 3] = black_box($numbers);
            verified($what, chain(place.times($rounds), numbers, $op), numbers)
        }
    )+};
}

// The float chains use numbers whose sums and products are exact.
chains! {
    add_double: f64, 1_500_000, [0.0, 3.25, -3.25], f64::add, "Additions of doubles";
    add_float: f32, 1_000_000, [0.0, 3.25, -3.25], f32::add, "Additions of floats";
    add_long: i64, 5_000_000, [0, 3, -3], i64::wrapping_add, "Additions of longs";
    add_int: i32, 5_000_000, [0, 3, -3], i32::wrapping_add, "Additions of ints";
    add_short: i16, 2_000_000, [0, 3, -3], i16::wrapping_add, "Additions of shorts";
    mul_double: f64, 1_000_000, [1.0, 4.0, 0.25], f64::mul, "Multiplications of doubles";
    mul_float: f32, 1_000_000, [1.0, 4.0, 0.25], f32::mul, "Multiplications of floats";
}

/// Twelve multiplications of `product` and of two ones, by the ones.
#[inline(always)]
fn products<T: Register>(rounds: u64, numbers: [T; 3], op: impl Fn(T, T) -> T) -> [T; 3] {
    let [mut product, mut x, mut y] = numbers.map(Register::opaque);
    let op = |left, right| op(left, right).opaque();
    for _ in 0..rounds {
        for _ in 0..2 {
            product = op(product, x);
            x = op(op(x, y), y);
            y = op(op(y, x), x);
            product = op(product, y);
        }
    }
    [product, x, y]
}

macro_rules! integer_products {
    ($($name:ident: $number:ty, $rounds:literal, $start:literal, $what:literal);+ $(;)?) => {$(
        #[inline(never)]
        pub fn $name(place: &mut UserContext<'_>) -> anyhow::Result<()> {
            let numbers: [$number; 3] = black_box([$start, 1, 1]);
            verified($what, products(place.times($rounds), numbers, <$number>::wrapping_mul), numbers)
        }
    )+};
}

integer_products! {
    mul_long: i64, 20_000, 12_345_678, "Multiplications of longs";
    mul_int: i32, 20_000, 12_345_678, "Multiplications of ints";
    mul_short: i16, 25_000, 1234, "Multiplications of shorts";
}

/// Twelve divisions of 1, v and 1/v, v a power of 2, so that each is exact.
#[inline(always)]
fn quotients<T: Register + Div<Output = T>>(rounds: u64, numbers: [T; 3]) -> [T; 3] {
    let [mut a, mut x, mut y] = numbers.map(Register::opaque);
    for _ in 0..rounds {
        for _ in 0..2 {
            a = (a / x).opaque();
            y = (y / a).opaque();
            x = (x / y).opaque();
            y = (y / x).opaque();
            a = (a / y).opaque();
            y = (y / a).opaque();
        }
    }
    [a, x, y]
}

macro_rules! float_quotients {
    ($($name:ident: $number:ty, $what:literal);+ $(;)?) => {$(
        #[inline(never)]
        pub fn $name(place: &mut UserContext<'_>) -> anyhow::Result<()> {
            let numbers: [$number; 3] = black_box([1.0, 4.0, 0.25]);
            verified($what, quotients(place.times(250_000), numbers), numbers)
        }
    )+};
}

float_quotients! {
    div_double: f64, "Divisions of doubles";
    div_float: f32, "Divisions of floats";
}

macro_rules! integer_quotients {
    ($($name:ident: $number:ty, $start:literal, $what:literal);+ $(;)?) => {$(
        pub fn $name(place: &mut UserContext<'_>) -> anyhow::Result<()> {
            let start: $number = black_box($start);
            verified($what, Division::chain(start, place.times(75_000)), [start, 1, 1])
        }
    )+};
}

integer_quotients! {
    div_long: i64, 1_234_578, "Divisions of longs";
    div_int: i32, 1_234_578, "Divisions of ints";
    div_short: i16, 1234, "Divisions of shorts";
}
