//! The counts of a driver thread.
//!
//! Invariant: the window's figures cover exactly the transactions that ended within it; the whole run's cover every one that was
//! answered.

use crate::input::TransactionKind;
use crate::output::Output;
use bigiron_sys::load::Histogram;

use super::scheduler::AnsweredRequest;

/// Counts of one kind of transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransactionCounts {
    pub committed: u64,
    /// New-orders that had to be rolled back, and were.
    pub rolled_back: u64,
    /// Attempts undone by a deadlock or a serialization failure.
    pub retries: u64,
}

impl TransactionCounts {
    /// Transactions that ended, with any result.
    pub fn ended(&self) -> u64 {
        self.committed + self.rolled_back
    }

    fn add(&mut self, other: &Self) {
        self.committed += other.committed;
        self.rolled_back += other.rolled_back;
        self.retries += other.retries;
    }

    fn count(&mut self, done: &AnsweredRequest) {
        match done.output {
            Output::RolledBack => self.rolled_back += 1,
            _ => self.committed += 1,
        }
        self.retries += u64::from(done.retries);
    }
}

/// By [`TransactionKind::index`].
#[derive(Clone, Debug, Default)]
pub struct TransactionTally {
    /// In the window.
    pub window: [TransactionCounts; 5],
    /// Their latencies, from the intended start to the response, in nanoseconds.
    pub latency: [Histogram; 5],
    /// From the first transaction to the last.
    pub whole: [TransactionCounts; 5],
    /// Orders delivered by the deliveries of the whole run.
    pub delivered: u64,
}

impl TransactionTally {
    pub fn count(&mut self, done: &AnsweredRequest, in_window: bool) {
        let kind = done.request.input.kind().index();
        self.whole[kind].count(done);
        if let Output::Delivery { delivered } = done.output {
            self.delivered += u64::from(delivered);
        }
        if in_window {
            self.window[kind].count(done);
            self.latency[kind].record(done.latency);
        }
    }

    pub fn add(&mut self, other: &Self) {
        for kind in 0..TransactionKind::ALL.len() {
            self.window[kind].add(&other.window[kind]);
            self.whole[kind].add(&other.whole[kind]);
            self.latency[kind].merge(&other.latency[kind]);
        }
        self.delivered += other.delivered;
    }
}
