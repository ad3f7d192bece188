//! Numbers: primes, zeros, logarithms and powers, angles, a series.
//!
//! Invariant: every result is compared with another way to compute it, or with a bound.

use std::f64::consts::FRAC_PI_2;
use std::hint::black_box;

use super::UserContext;
use super::values::Walk;
use super::verdict::{expect, wrong};

/// Size of the sieve, and the number of primes below it.
const SIEVED: usize = 1_000_000;
const PRIMES: usize = 78_498;

/// Primes below 1,000,000, 5 times: strikes out the multiples of every number that is not struck out itself.
pub fn sieve(place: &mut UserContext<'_>) -> anyhow::Result<()> {
    let mut prime = vec![0u8; SIEVED];
    // A slice of its own: otherwise the vector's pointer would be read again after each write.
    let prime = prime.as_mut_slice();
    for _ in 0..place.times(5) {
        prime.fill(1);
        for n in 2..SIEVED {
            if prime[n] == 0 {
                continue;
            }
            let mut multiple = 2 * n;
            while multiple < prime.len() {
                prime[multiple] = 0;
                multiple += n;
            }
        }
        black_box(&mut *prime);
    }
    expect("Counting primes", prime[2..].iter().filter(|p| **p == 1).count(), PRIMES)
}

/// Zeros of 1000·sin x·cos x by Newton's method, from 200 starting points 0.05 apart.
pub fn zeros(place: &mut UserContext<'_>) -> anyhow::Result<()> {
    const STEPS: u32 = 100;
    let f = |x: f64| 1000.0 * x.sin() * x.cos();
    let slope = |x: f64| {
        let (cos, sin) = (x.cos(), x.sin());
        1000.0 * cos * cos - 1000.0 * sin * sin
    };
    for start in 0..place.times(200) {
        let mut x = black_box(0.05 * start as f64);
        let found = (1..STEPS).any(|_| {
            let next = x - f(x) / slope(x);
            let moved = (next - x).abs();
            x = next;
            moved < 1e-12
        });
        // f is 500·sin 2x: at a zero its value comes from the last digits of x.
        if !found || f(x).abs() > 1e-6 + 1e-12 * x.abs() {
            return Err(wrong(format!("Newton's method ended at {x} where f is {}", f(x))));
        }
    }
    Ok(())
}

/// A number's fraction from 0.5 to 1, and its power of 2, like C's `frexp`.
fn fraction(x: f64) -> (f64, i32) {
    let bits = x.to_bits();
    match bits >> 52 & 0x7ff {
        0 if x != 0.0 => {
            let (fraction, exponent) = fraction(x * (1u64 << 54) as f64);
            (fraction, exponent - 54)
        }
        0 | 0x7ff => (x, 0),
        exponent => (f64::from_bits(bits & !(0x7ff << 52) | 0x3fe << 52), exponent as i32 - 0x3fe),
    }
}

/// x·2ⁿ for n from 0 to 1023, like C's `ldexp`.
fn scaled(x: f64, n: i32) -> f64 {
    x * f64::from_bits(((n + 0x3ff) as u64) << 52)
}

/// exp, log10, ln, pow, sqrt, remainder and rounding, 100 times.
pub fn numbers(place: &mut UserContext<'_>) -> anyhow::Result<()> {
    for n in 0..place.times(100) {
        let mut walk = Walk::wide(&mut place.kept.wide);
        let (power, logarithm) = (walk.next().exp(), walk.positive().log10());
        let rounded = power.floor() + logarithm.ceil();
        let natural = walk.positive().ln();
        let below = walk.negative();
        let (mantissa, exponent) = fraction(below);
        let parts = natural.fract() + mantissa;
        let large = scaled(walk.next(), exponent.abs());
        let (dividend, divisor) = (walk.next() * 5.0, walk.positive());
        let remainder = (dividend % divisor).abs();
        let raised = walk.positive().powf(walk.next());
        let root = raised.sqrt();
        let drawn = (n as i64 - (place.below(1 << 31)) as i64).abs();
        black_box((rounded, parts, large, drawn));
        let right = (0.0..2.0).contains(&(power + logarithm - rounded + 1.0))
            && scaled_back(mantissa, exponent) == below
            && remainder < divisor
            && (root * root - raised).abs() <= raised * 1e-15
            && natural.trunc() + natural.fract() == natural;
        if !right {
            return Err(wrong(format!(
                "Numeric functions disagree: exp {power}, log10 {logarithm}, frexp of {below} {mantissa} and {exponent}, remainder {remainder} by {divisor}, root of {raised} {root}"
            )));
        }
    }
    Ok(())
}

/// The inverse of [`fraction`], for numbers of moderate size.
fn scaled_back(mantissa: f64, exponent: i32) -> f64 {
    if exponent >= 0 { scaled(mantissa, exponent) } else { mantissa / scaled(1.0, -exponent) }
}

/// sin, cos, tan, their inverses, sinh, cosh and tanh, 10,000 times.
pub fn angles(place: &mut UserContext<'_>) -> anyhow::Result<()> {
    let mut walk = Walk::wide(&mut place.kept.wide);
    for _ in 0..place.scale.times(10_000) {
        let angle = walk.next().sin().asin();
        let folded = angle.cos().acos();
        let turned = walk.next().tan().atan();
        let squeezed = turned.tanh();
        let (up, along) = (walk.next().sinh(), walk.next().cosh());
        let direction = up.atan2(along);
        // Near 0, acos of cos is exact to the root of the last digit; elsewhere it is better.
        let right = (folded - angle.abs()).abs() < 1e-7
            && turned.abs() <= FRAC_PI_2
            && squeezed.abs() <= turned.abs()
            && direction.abs() < FRAC_PI_2
            && (direction >= 0.0) == (up >= 0.0);
        if !right {
            return Err(wrong(format!(
                "Trigonometric functions disagree: {folded} for {angle}, {squeezed} for {turned}, {direction} for {up} and {along}"
            )));
        }
    }
    Ok(())
}

/// The sine of 100 numbers by its series, until it no longer changes.
pub fn series(place: &mut UserContext<'_>) -> anyhow::Result<()> {
    let mut walk = Walk::halved(&mut place.kept.halved);
    for _ in 0..place.scale.times(100) {
        let x = walk.next();
        let (mut power, mut factorial, mut i) = (x, 1.0, 1.0);
        let square = x * x;
        let (mut sine, mut before) = (0.0, f64::INFINITY);
        while sine != before {
            before = sine;
            sine += power / factorial;
            factorial *= (i + 1.0) * (i + 2.0);
            i += 2.0;
            power *= -square;
        }
        if (sine - x.sin()).abs() > 1e-12 {
            return Err(wrong(format!("The series gave {sine} for the sine of {x}, which is {}", x.sin())));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_its_fraction_and_its_power() {
        for (x, parts) in [(8.0, (0.5, 4)), (-0.75, (-0.75, 0)), (f64::from_bits(1), (0.5, -1073)), (0.0, (0.0, 0))] {
            assert_eq!(fraction(x), parts, "{x}");
        }
        assert_eq!(scaled(0.5, 4), 8.0);
        assert_eq!(scaled_back(0.5, -3), 0.0625);
    }
}
