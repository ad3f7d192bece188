//! What every load generator needs: latency histograms, private to a process or recorded into shared memory while others read.

pub mod histogram;
pub mod now;
pub mod shared;

pub use histogram::Histogram;
pub use now::now_ns;
pub use shared::{BUCKETS, Recorder, ShardedHistogram, SharedHistogram};
