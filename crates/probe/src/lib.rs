//! Probes: readings before and after the work, never inside a measured window.

pub mod counters;
pub mod dmesg;
pub mod environment;
pub mod filesystem;
pub mod locks;
pub mod machine;
pub mod noise;
pub mod recorder;
pub mod sampled;
pub mod servers;
pub mod symbols;
