//! Every test by the name a workfile has for it.
//!
//! Invariant: names are unique, groups are together, and a call at full scale does what the credited operations say.

use super::{Credit, Group, Place, Test, arithmetic};

/// All tests, group by group.
pub fn catalogue() -> &'static [Test] {
    TESTS
}

/// The test of that name.
pub fn find(name: &str) -> Option<&'static Test> {
    TESTS.iter().find(|t| t.name == name)
}

type Run = fn(&mut Place<'_>) -> anyhow::Result<()>;

/// A test of which a call is credited with `operations` where its loop runs `of` times.
const fn loops(
    group: Group,
    name: &'static str,
    (operations, of): (u64, u64),
    unit: &'static str,
    run: Run,
    summary: &'static str,
) -> Test {
    Test { name, credit: Credit::Loops { operations, of }, unit, group, run, summary }
}

use Group::Cpu;

static TESTS: &[Test] = &[
    loops(
        Cpu,
        "add_double",
        (18_000, 1_500_000),
        "thousand additions",
        arithmetic::add_double,
        "12 additions of 64-bit floats a round",
    ),
    loops(
        Cpu,
        "add_float",
        (12_000, 1_000_000),
        "thousand additions",
        arithmetic::add_float,
        "12 additions of 32-bit floats a round",
    ),
    loops(
        Cpu,
        "add_long",
        (60_000, 5_000_000),
        "thousand additions",
        arithmetic::add_long,
        "12 additions of 64-bit integers a round",
    ),
    loops(
        Cpu,
        "add_int",
        (60_000, 5_000_000),
        "thousand additions",
        arithmetic::add_int,
        "12 additions of 32-bit integers a round",
    ),
    loops(
        Cpu,
        "add_short",
        (24_000, 2_000_000),
        "thousand additions",
        arithmetic::add_short,
        "12 additions of 16-bit integers a round",
    ),
    loops(
        Cpu,
        "mul_double",
        (12_000, 1_000_000),
        "thousand multiplications",
        arithmetic::mul_double,
        "12 multiplications of 64-bit floats a round",
    ),
    loops(
        Cpu,
        "mul_float",
        (12_000, 1_000_000),
        "thousand multiplications",
        arithmetic::mul_float,
        "12 multiplications of 32-bit floats a round",
    ),
    loops(
        Cpu,
        "mul_long",
        (240, 20_000),
        "thousand multiplications",
        arithmetic::mul_long,
        "12 multiplications of 64-bit integers a round",
    ),
    loops(
        Cpu,
        "mul_int",
        (240, 20_000),
        "thousand multiplications",
        arithmetic::mul_int,
        "12 multiplications of 32-bit integers a round",
    ),
    loops(
        Cpu,
        "mul_short",
        (300, 25_000),
        "thousand multiplications",
        arithmetic::mul_short,
        "12 multiplications of 16-bit integers a round",
    ),
    loops(
        Cpu,
        "div_double",
        (3_000, 250_000),
        "thousand divisions",
        arithmetic::div_double,
        "12 divisions of 64-bit floats a round",
    ),
    loops(
        Cpu,
        "div_float",
        (3_000, 250_000),
        "thousand divisions",
        arithmetic::div_float,
        "12 divisions of 32-bit floats a round",
    ),
    loops(
        Cpu,
        "div_long",
        (900, 75_000),
        "thousand divisions",
        arithmetic::div_long,
        "12 divisions of 64-bit integers a round",
    ),
    loops(
        Cpu,
        "div_int",
        (900, 75_000),
        "thousand divisions",
        arithmetic::div_int,
        "12 divisions of 32-bit integers a round",
    ),
    loops(
        Cpu,
        "div_short",
        (900, 75_000),
        "thousand divisions",
        arithmetic::div_short,
        "12 divisions of 16-bit integers a round",
    ),
];
