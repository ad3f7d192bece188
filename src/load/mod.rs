//! What every load generator needs: latency histograms, private to a process or recorded into shared memory while others read.

pub mod histogram;
pub mod shared;

pub use histogram::Histogram;
pub use shared::{BUCKETS, Recorder, SharedHistogram};
