//! The tables `[process.NAME]`.
//!
//! Invariant: a kind reads only the keys that [`KINDS`] gives it.

use std::time::Duration;

use super::keys::{CLASS, ENGINE, KINDS, PACED};
use super::{ClassKind, ClassSpec, WorkShare};
use bigiron_model::document::Table;
use bigiron_model::refusal::Refusal;
use bigiron_model::suggest;
use bigiron_workload::keys;
use bigiron_workload::units::Pace;

/// Default number of transactions for each request of a scanner.
const TRANSACTIONS_PER_SCAN: u64 = 32;

/// All keys of classes of any kind.
pub fn keys() -> Vec<&'static str> {
    let own = KINDS.iter().flat_map(|kind| keys::names(kind.own));
    let mut keys: Vec<_> =
        ["kind"].into_iter().chain(keys::names(CLASS)).chain(keys::names(PACED)).chain(own).collect();
    keys.extend(keys::names(ENGINE));
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Whether the kind with this word does I/O through an engine.
pub fn has_engine(kind: &str) -> bool {
    KINDS.iter().any(|k| k.word() == kind && k.has_engine())
}

/// Settings of a class that depend on the rest of the job.
pub struct ClassContext {
    /// `data.direct`.
    pub direct: bool,
    /// Whether any class executes transactions.
    pub transacts: bool,
}

/// The class described by `table`; `None` if it has no processes. `name` is the class's.
pub fn read(name: &str, table: &Table, around: &ClassContext) -> Result<Option<ClassSpec>, Refusal> {
    let words = || KINDS.iter().map(|kind| kind.word());
    let Some(value) = table.get("kind") else {
        let message = format!("Process `{name}` has no `kind`; it can be {}", suggest::list(words()));
        return Err(Refusal::new(message));
    };
    let word = value.string()?;
    let Some(def) = KINDS.iter().find(|kind| kind.word() == word) else {
        return Err(value.is_no_word(&word, words()));
    };
    let known: Vec<_> = def.class().map(|key| key.name).chain(def.kind().map(|key| key.name)).collect();
    table.only(&[&["kind"], &known[..]].concat())?;
    let mut kind = def.blank.clone();
    if let ClassKind::Scanner { direct, work, .. } = &mut kind {
        *direct = around.direct;
        if around.transacts {
            *work = WorkShare::PerTransactions(TRANSACTIONS_PER_SCAN);
        }
    }
    keys::read(def.kind(), |key| table.get(key), &mut kind)?;
    let pace = Pace::Closed { think: Duration::ZERO };
    let mut class = ClassSpec { name: name.to_owned(), count: 0, threads: false, pace, kind };
    keys::read(def.class(), |key| table.get(key), &mut class)?;
    Ok((class.count > 0).then_some(class))
}
