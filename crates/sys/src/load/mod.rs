//! Parts of every load generator: latency histograms, private to a process or recorded into shared memory while others read; processes that do a
//! trial's stages side by side; CPU time used up on purpose; random draws and arrivals; blocks that identify their place.

pub mod burn;
pub mod compare;
pub mod files;
pub mod histogram;
pub mod now;
pub mod poisson;
pub mod poll;
pub mod rng;
pub mod shared;
pub mod stamp;
pub mod worker_group;

pub use histogram::Histogram;
pub use now::now_ns;
pub use shared::{BUCKETS, LotRecorder, Recorder, ShardedHistogram, SharedHistogram};
