//! The purpose of a trial.

use serde::{Deserialize, Serialize};

/// The purpose of a trial. Only [`Purpose::Judge`] makes a record; a slot may be rerun for the other purposes, and those reruns are not judged.
///
/// In a guest's job it is a number with one digit, never 0, that is always read by the same instructions: a profiled guest must execute the same code
/// as a judged one until its workloads have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "u8", try_from = "u8")]
pub enum Purpose {
    /// Its values are judged.
    Judge = 1,
    /// The executed code by function: counted under the exact clock, sampled on the wall clock.
    Profile = 2,
    /// The waits: for locks of the kernel and of programs.
    Locks = 3,
}

impl From<Purpose> for u8 {
    fn from(purpose: Purpose) -> u8 {
        purpose as u8
    }
}

impl TryFrom<u8> for Purpose {
    type Error = String;

    fn try_from(number: u8) -> Result<Self, String> {
        // A table instead of one comparison each, as the type's documentation requires.
        const ALL: [Purpose; 3] = [Purpose::Judge, Purpose::Profile, Purpose::Locks];
        let purpose = ALL.get(usize::from(number).wrapping_sub(1)).copied();
        purpose.ok_or_else(|| format!("{number} is not a trial's purpose; there are 1 to {}", ALL.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_purpose_reads_back_and_has_one_digit() {
        for purpose in [Purpose::Judge, Purpose::Profile, Purpose::Locks] {
            let text = serde_json::to_string(&purpose).unwrap();
            assert_eq!(text.len(), 1);
            assert_eq!(serde_json::from_str::<Purpose>(&text).unwrap(), purpose);
        }
        for wrong in ["0", "4", "255"] {
            assert!(serde_json::from_str::<Purpose>(wrong).unwrap_err().to_string().contains("1 to 3"));
        }
    }
}
