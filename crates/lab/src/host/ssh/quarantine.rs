//! Targets that did not come back: nothing is run there until the user has looked at them.

use bigiron_model::refusal::Refusal;

use super::notes::Notes;

const QUARANTINE: Notes = Notes { folder: "quarantine" };

/// Why the target `name` is in quarantine, if it is.
pub fn reason(name: &str) -> Option<String> {
    QUARANTINE.of(name)
}

/// Refuses a target in quarantine.
pub fn check(name: &str) -> Result<(), Refusal> {
    let Some(why) = reason(name) else { return Ok(()) };
    Err(Refusal::new(format!("`{name}` is in quarantine: {why}")).hint(format!(
        "When the machine works again, `bigiron undo --on ssh:{name}` restores it and ends the quarantine"
    )))
}

/// Puts a target into quarantine.
pub fn put(name: &str, why: &str) -> anyhow::Result<()> {
    QUARANTINE.put(name, &format!("{} ({})", why, bigiron_model::date::now()))
}

/// Ends the quarantine; whether there was one.
pub fn end(name: &str) -> anyhow::Result<bool> {
    QUARANTINE.end(name)
}
