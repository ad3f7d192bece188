//! A bisection: finds which of the kernels between two, of the commits of a source tree, of the options of its configuration, or
//! of the levers between two arms, causes a measured difference.
//!
//! Invariant: a bisection is a folder of ordinary studies and a description written before the first boot. The next test and the
//! result are functions of these alone, so a killed bisection resumes where it stopped and tests the same kernels.

pub mod builds;
pub mod config;
pub mod folder;
pub mod git;
pub mod levers;
pub mod list;
pub mod report;
pub mod search;
pub mod study_result;

pub use folder::{Bisection, Candidate, ChainLink, SearchKind, Source};
pub use search::{Search, SearchResult, SearchState};
pub use study_result::StudyResult;
