//! Linear algebra: points transformed by a matrix, systems of equations solved.
//!
//! Invariant: solutions are substituted back into the equations.

use std::hint::black_box;

use super::UserContext;
use super::values::Walk;
use super::verdict::wrong;

const SIDE: usize = 4;
/// Rows of the largest system, and of the smallest.
const ROWS: usize = 100;
const FEWEST: usize = 5;
/// Numbers of the largest system, including right-hand sides.
const NUMBERS: usize = ROWS * (ROWS + 1);

/// 100 times: a 4×4 matrix times a point, converted to screen coordinates.
pub fn points(place: &mut UserContext<'_>) -> anyhow::Result<()> {
    let mut walk = Walk::halved(&mut place.kept.halved);
    let mut sum = 0.0;
    for _ in 0..place.scale.times(100) {
        let point: [f64; SIDE] = std::array::from_fn(|_| walk.next());
        let matrix: [[f64; SIDE]; SIDE] = std::array::from_fn(|_| std::array::from_fn(|_| walk.next()));
        let turned =
            black_box(matrix).map(|row| row.iter().zip(black_box(&point)).fold(0.0, |sum, (m, p)| sum + m * p));
        let screen = [turned[0] * 1280.0, turned[1] * 1024.0, turned[2] * 8192.0].map(|c| c as i32);
        sum += turned[0] * turned[1] * turned[2];
        black_box((screen, sum));
        // All numbers are between 0 and 1.
        if turned.iter().any(|t| !(0.0..=SIDE as f64).contains(t)) {
            return Err(wrong(format!("A point with coordinates up to 1 was transformed to {turned:?}")));
        }
    }
    Ok(())
}

/// Solves the system `a` of `rows` equations, each of `rows` factors and a right-hand side, by elimination without pivoting, and
/// stores the solution in the last column. Returns false if it cannot.
fn solve(a: &mut [f64], rows: usize) -> bool {
    let wide = rows + 1;
    for i in 0..rows {
        let (above, below) = a.split_at_mut((i + 1) * wide);
        let row = &mut above[i * wide..];
        let scale = row[i];
        if scale == 0.0 {
            return false;
        }
        for x in &mut row[i..] {
            *x /= scale;
        }
        for other in below[..(rows - i - 1) * wide].chunks_exact_mut(wide) {
            subtract(other, other[i], row);
        }
    }
    for i in (1..rows).rev() {
        let (above, below) = a.split_at_mut(i * wide);
        let row = &below[..wide];
        for other in above.chunks_exact_mut(wide).rev() {
            subtract(other, other[i], row);
        }
    }
    true
}

/// Subtracts `factor` times `row` from `other`.
fn subtract(other: &mut [f64], factor: f64, row: &[f64]) {
    for (x, y) in other.iter_mut().zip(row) {
        *x -= factor * y;
    }
}

/// The largest difference between the right-hand sides of `a` and the left-hand sides for `solution`.
fn residual(a: &[f64], solution: &[f64], rows: usize) -> f64 {
    a.chunks_exact(rows + 1)
        .take(rows)
        .map(|row| (row[rows] - row.iter().zip(solution).map(|(f, x)| f * x).sum::<f64>()).abs())
        .fold(0.0, f64::max)
}

/// Systems of 5, 10 … 100 equations.
pub fn systems(place: &mut UserContext<'_>) -> anyhow::Result<()> {
    let mut a = vec![0.0; NUMBERS];
    let mut value = black_box(1.0f64);
    for n in 0..place.times(20) as usize {
        let rows = FEWEST + n * FEWEST % ROWS;
        for x in &mut a[..rows * (rows + 1)] {
            *x = value;
            value = value * 1.000_01 + 1.0;
            if value > 1e20 {
                value -= 1e19;
            }
        }
        let asked = a.clone();
        let solved = solve(black_box(&mut a), rows);
        let solution: Vec<f64> = a.chunks_exact(rows + 1).take(rows).map(|row| row[rows]).collect();
        let off = residual(&asked, &solution, rows);
        // The systems are ill-conditioned: a right-hand side loses some digits.
        let close = off <= 0.5;
        if !solved || !close {
            return Err(wrong(format!("{rows} equations were solved with an error of {off}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_is_solved_and_a_singular_one_is_not() {
        // x + y = 3, x - y = 1.
        let mut a = vec![1.0, 1.0, 3.0, 1.0, -1.0, 1.0];
        let asked = a.clone();
        assert!(solve(&mut a, 2));
        assert_eq!((a[2], a[5]), (2.0, 1.0));
        assert_eq!(residual(&asked, &[2.0, 1.0], 2), 0.0);
        assert_eq!(residual(&asked, &[2.5, 1.0], 2), 0.5);
        assert!(!solve(&mut [1.0, 1.0, 1.0, 1.0, 1.0, 1.0], 2));
    }
}
