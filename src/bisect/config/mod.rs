//! Kernels of one source tree in two configurations: the differences between the two, and the chain of configurations that leads
//! from one to the other.
//!
//! Invariant: differences are read from the `.config` files that the tree's own Kconfig wrote, never from the input
//! configurations.

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
