//! The executable as a user meets it: what it prints, what it refuses, and its exit status. Boots nothing.

mod builder;
mod docs;
mod kernels;
mod refusals;
mod studies;
