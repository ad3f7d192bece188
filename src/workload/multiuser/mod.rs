//! `multiuser`: many users, each with the same tests in another order.

pub mod work;
