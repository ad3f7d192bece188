//! Kernels of one source tree in two configurations: what the two differ in, and the chain of configurations that leads from one to the other.
//!
//! Invariant: what differs is read in the `.config` files that the tree's own Kconfig made, never in what was asked for.

pub mod candidates;
pub mod chain;
pub mod kconfig;
pub mod options;
pub mod switched;

pub use candidates::Candidates;
pub use chain::{Chain, Switch};
pub use kconfig::Kconfig;
pub use options::{ConfigOptions, OptionChange};
pub use switched::Switched;
