//! The Universal Scalability Law: how throughput grows with load, and why it stops growing.
//!
//! N. J. Gunther, "Guerrilla Capacity Planning" (Springer 2007), chapter 6: X(N) = λ·N / (1 + σ·(N−1) + κ·N·(N−1)).
//! λ is the throughput at load 1, σ the share of work that is serial (contention), κ the cost of each pair (coherency).

/// A fitted curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usl {
    pub lambda: f64,
    pub sigma: f64,
    pub kappa: f64,
    /// Root mean square of the points' relative residuals.
    pub residual: f64,
}

impl Usl {
    /// The curve through `points` (load, throughput): the least squares of relative residuals, with λ > 0 and σ, κ ≥ 0. `None` with fewer than three
    /// distinct loads, or if a load is below 1 or a throughput is not above 0.
    ///
    /// N/X is linear in 1/λ, σ/λ and κ/λ: N/X = 1/λ + σ/λ·(N−1) + κ/λ·N·(N−1). Each equation is divided by its left-hand side, so that residuals are
    /// relative. If the best curve has a negative σ or κ, the best curve with it at 0 is used.
    pub fn fit(points: &[(f64, f64)]) -> Option<Usl> {
        let good = |(n, x): &(f64, f64)| *n >= 1.0 && *x > 0.0 && n.is_finite() && x.is_finite();
        let mut loads: Vec<f64> = points.iter().map(|(n, _)| *n).collect();
        loads.sort_by(f64::total_cmp);
        loads.dedup();
        if loads.len() < 3 || !points.iter().all(good) {
            return None;
        }
        let rows: Vec<[f64; 3]> = points
            .iter()
            .map(|(n, x)| {
                let weight = x / n;
                [weight, (n - 1.0) * weight, n * (n - 1.0) * weight]
            })
            .collect();
        // The terms other than 1/λ that may be non-zero; a convex problem has its optimum at one of these subsets.
        let subsets: [&[usize]; 4] = [&[0, 1, 2], &[0, 1], &[0, 2], &[0]];
        let candidates = subsets.into_iter().filter_map(|terms| {
            let solution = least_squares(&rows, terms)?;
            let feasible = solution[0] > 0.0 && solution[1] >= 0.0 && solution[2] >= 0.0;
            feasible.then(|| (squares(&rows, &solution), solution))
        });
        let (squares, [a, b, c]) = candidates.min_by(|x, y| x.0.total_cmp(&y.0))?;
        let residual = (squares / points.len() as f64).sqrt();
        Some(Usl { lambda: 1.0 / a, sigma: b / a, kappa: c / a, residual })
    }

    /// Throughput at a load.
    pub fn throughput(&self, n: f64) -> f64 {
        self.lambda * n / (1.0 + self.sigma * (n - 1.0) + self.kappa * n * (n - 1.0))
    }

    /// The load with the highest throughput, √((1−σ)/κ), at least 1; infinite if κ is 0, unless all work is serial.
    pub fn peak(&self) -> f64 {
        match (1.0 - self.sigma).max(0.0) {
            0.0 => 1.0,
            parallel => (parallel / self.kappa).sqrt().max(1.0),
        }
    }
}

/// The sum of squares of 1 − row·solution.
fn squares(rows: &[[f64; 3]], solution: &[f64; 3]) -> f64 {
    rows.iter().map(|row| (1.0 - row.iter().zip(solution).map(|(r, s)| r * s).sum::<f64>()).powi(2)).sum()
}

/// The least-squares solution of row·s = 1 that uses only `terms`: the normal equations, by elimination with pivots. Columns are first scaled to
/// length 1, because N·(N−1) may be a million times larger than 1.
fn least_squares(rows: &[[f64; 3]], terms: &[usize]) -> Option<[f64; 3]> {
    let size = terms.len();
    let scales: Vec<f64> = terms.iter().map(|t| rows.iter().map(|r| r[*t] * r[*t]).sum::<f64>().sqrt()).collect();
    if scales.contains(&0.0) {
        return None;
    }
    let entry = |row: &[f64; 3], term: usize| row[terms[term]] / scales[term];
    let mut matrix = vec![vec![0.0; size + 1]; size];
    for (i, equation) in matrix.iter_mut().enumerate() {
        for (j, cell) in equation.iter_mut().enumerate() {
            let other = |row: &[f64; 3]| if j == size { 1.0 } else { entry(row, j) };
            *cell = rows.iter().map(|row| entry(row, i) * other(row)).sum();
        }
    }
    for column in 0..size {
        let pivot = (column..size).max_by(|a, b| matrix[*a][column].abs().total_cmp(&matrix[*b][column].abs()))?;
        matrix.swap(column, pivot);
        if matrix[column][column].abs() < 1e-12 {
            return None;
        }
        let pivot = matrix[column].clone();
        for (_, equation) in matrix.iter_mut().enumerate().filter(|(row, _)| *row != column) {
            let factor = equation[column] / pivot[column];
            equation.iter_mut().zip(&pivot).for_each(|(cell, p)| *cell -= factor * p);
        }
    }
    let mut solution = [0.0; 3];
    for (i, term) in terms.iter().enumerate() {
        solution[*term] = matrix[i][size] / matrix[i][i] / scales[i];
    }
    Some(solution)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOADS: [f64; 8] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];

    fn close(found: f64, right: f64) {
        assert!((found - right).abs() <= 1e-6 * right.abs().max(1e-3), "{found} for {right}");
    }

    #[test]
    fn a_curve_of_the_law_is_found_again() {
        for (lambda, sigma, kappa) in [
            (1000.0, 0.02, 0.0005),
            (3.0, 0.5, 0.01),
            (7.0, 0.0, 0.002),
            (9.0, 0.1, 0.0),
            (5.0, 0.0, 0.0),
            (4.0, 1.0, 0.0),
        ] {
            let truth = Usl { lambda, sigma, kappa, residual: 0.0 };
            let points = LOADS.map(|n| (n, truth.throughput(n)));
            let found = Usl::fit(&points).unwrap();
            close(found.lambda, lambda);
            close(found.sigma, sigma);
            close(found.kappa, kappa);
            assert!(found.residual < 1e-6);
        }
    }

    #[test]
    fn the_law_is_that_of_the_book() {
        // By hand: 100·10 / (1 + 0.1·9 + 0.01·90) = 1000/2.8; the peak is at √(0.9/0.01) = 9.4868.
        let usl = Usl { lambda: 100.0, sigma: 0.1, kappa: 0.01, residual: 0.0 };
        close(usl.throughput(10.0), 1000.0 / 2.8);
        close(usl.throughput(1.0), 100.0);
        close(usl.peak(), 90f64.sqrt());
        assert_eq!(Usl { sigma: 1.2, ..usl }.peak(), 1.0);
        assert!(Usl { kappa: 0.0, ..usl }.peak().is_infinite());
    }

    #[test]
    fn parameters_are_never_negative() {
        // Growth is more than linear: the best line has a negative σ.
        let usl = Usl::fit(&[(1.0, 1.0), (2.0, 2.3), (4.0, 5.5), (8.0, 12.0)]).unwrap();
        assert_eq!((usl.sigma, usl.kappa), (0.0, 0.0));
        assert!(usl.lambda > 1.0 && usl.residual > 0.1);
        // Throughput rises again after a fall: no κ, but contention.
        let usl = Usl::fit(&[(1.0, 1.0), (2.0, 1.0), (4.0, 1.5), (8.0, 3.0)]).unwrap();
        assert!(usl.sigma >= 0.0 && usl.kappa >= 0.0);
    }

    #[test]
    fn the_fit_is_the_best_of_its_neighbourhood() {
        let points: Vec<_> =
            LOADS.iter().zip([10.0, 19.5, 36.0, 66.0, 100.0, 131.0, 120.0, 98.0]).map(|(n, x)| (*n, x)).collect();
        let found = Usl::fit(&points).unwrap();
        let cost = |u: &Usl| points.iter().map(|(n, x)| (1.0 - x / u.throughput(*n)).powi(2)).sum::<f64>();
        let best = cost(&found);
        for factor in [0.97, 1.03] {
            for other in [
                Usl { lambda: found.lambda * factor, ..found },
                Usl { sigma: found.sigma * factor, ..found },
                Usl { kappa: found.kappa * factor, ..found },
            ] {
                assert!(cost(&other) > best, "{other:?}");
            }
        }
        close(found.residual, (best / points.len() as f64).sqrt());
    }

    #[test]
    fn too_little_is_no_curve() {
        assert_eq!(Usl::fit(&[(1.0, 1.0), (2.0, 2.0), (2.0, 2.1)]), None);
        assert_eq!(Usl::fit(&[(1.0, 1.0), (2.0, 0.0), (4.0, 3.0)]), None);
        assert_eq!(Usl::fit(&[(0.5, 1.0), (2.0, 1.0), (4.0, 3.0)]), None);
    }
}
