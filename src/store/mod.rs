//! The store: a study's folder, with its plan, its append-only records and its artefacts.

pub mod record;
