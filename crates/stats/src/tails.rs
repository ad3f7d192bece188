//! The common part of every test of a mean: how unlikely the data are if the mean lies on the other side of a value.
//!
//! Invariant: for a given value the two sides are complements up to the probability of the data themselves.

use crate::{Flip, Student};

/// One-sided tests of a mean.
pub trait Tails {
    /// p of "the mean is `theta` or less": small is evidence that it is greater.
    fn p_greater(&self, theta: f64) -> f64;
    /// p of "the mean is `theta` or more": small is evidence that it is less.
    fn p_less(&self, theta: f64) -> f64;
}

impl Tails for Flip {
    fn p_greater(&self, theta: f64) -> f64 {
        Flip::p_greater(self, theta)
    }

    fn p_less(&self, theta: f64) -> f64 {
        Flip::p_less(self, theta)
    }
}

impl Tails for Student {
    fn p_greater(&self, theta: f64) -> f64 {
        Student::p_greater(self, theta)
    }

    fn p_less(&self, theta: f64) -> f64 {
        Student::p_less(self, theta)
    }
}
