//! The reason why a study or a job cannot be run, reported before anything boots.

use std::fmt;

/// A refusal: the position of its reason, the reason, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Refusal {
    /// `study.toml:7` if the study came from a file.
    pub place: Option<String>,
    pub message: String,
    pub hint: Option<String>,
}

impl Refusal {
    pub fn new(message: impl Into<String>) -> Self {
        Refusal { place: None, message: message.into(), hint: None }
    }

    /// Adds one sentence about what the user can do.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the position, unless it is known already.
    pub fn at(mut self, place: Option<String>) -> Self {
        self.place = self.place.or(place);
        self
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        f.write_str(&self.message)
    }
}
