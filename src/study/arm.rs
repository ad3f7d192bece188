//! The text form of an arm: `KERNEL[,LEVER=VALUE]…`.
//!
//! Invariant: printing what was read gives text that reads back the same.

use crate::study::setting;
use std::fmt;

use bigiron_lab::lever;
use bigiron_model::refusal::Refusal;
use bigiron_model::setting::{Setting, TypedSetting};

/// One side of a comparison, as given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArmText {
    /// The name given in a study file.
    pub name: Option<String>,
    /// The kernel as typed.
    pub kernel: String,
    pub settings: Vec<Setting>,
}

impl ArmText {
    /// Parses an arm. A piece between commas that does not begin like a lever belongs to the value before it, so that
    /// `boot.mitigations=auto,nosmt` works.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let mut pieces = text.split(',');
        let kernel = pieces.next().unwrap_or("").trim().to_owned();
        if kernel.is_empty() {
            return Err(Refusal::new(format!("`{text}` has no kernel; an arm is KERNEL[,LEVER=VALUE]…")));
        }
        let mut levers: Vec<String> = Vec::new();
        for piece in pieces {
            match levers.last_mut() {
                _ if lever::has_family(piece) => levers.push(piece.to_owned()),
                Some(last) if last.contains('=') => {
                    last.push(',');
                    last.push_str(piece);
                }
                _ if piece.is_empty() => {
                    return Err(Refusal::new(format!(
                        "`{text}` has nothing after a comma; an arm is KERNEL[,LEVER=VALUE]…"
                    )));
                }
                _ => {
                    let refusal = Refusal::from(lever::LeverError::Form(piece.to_owned()));
                    return Err(if piece.starts_with("boot.") || piece.starts_with('=') {
                        refusal
                    } else {
                        refusal.hint(format!("A parameter of the kernel's command line is `boot.{piece}`"))
                    });
                }
            }
        }
        let settings = levers.iter().map(|l| setting::parse(l)).collect::<Result<Vec<_>, _>>()?;
        let arm = ArmText { name: None, kernel, settings };
        arm.check()?;
        Ok(arm)
    }

    /// Checks everything that can be wrong with one arm alone.
    pub fn check(&self) -> Result<(), Refusal> {
        Ok(lever::check_duplicates(&self.settings)?)
    }

    /// The name in reports, before it is made unique: the name given, or the text typed, with a path cut to its last component.
    pub fn short_name(&self) -> String {
        if let Some(name) = &self.name {
            return name.clone();
        }
        let kernel = match self.kernel.trim_end_matches('/').rsplit_once('/') {
            Some((directory, file)) if is_path(&self.kernel) && !directory.is_empty() => file,
            _ => &self.kernel,
        };
        ArmText { name: None, kernel: kernel.to_owned(), settings: self.settings.clone() }.to_string()
    }
}

/// `debian:6.12/cloud` has a slash and is not a path.
fn is_path(kernel: &str) -> bool {
    kernel.contains('/') && !kernel.split('/').next().is_some_and(|head| head.contains(':'))
}

impl fmt::Display for ArmText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kernel)?;
        self.settings.iter().try_for_each(|setting| write!(f, ",{}", TypedSetting(setting)))
    }
}

/// Unique names for `arms`: short if that is unambiguous, else in full; repeated texts get a number.
pub fn names(arms: &[ArmText]) -> Vec<String> {
    let short: Vec<String> = arms.iter().map(ArmText::short_name).collect();
    let mut names: Vec<String> = Vec::new();
    for (i, arm) in arms.iter().enumerate() {
        let ambiguous =
            arms.iter().zip(&short).any(|(other, s)| *s == short[i] && other.to_string() != arm.to_string());
        let base = if ambiguous && arm.name.is_none() { arm.to_string() } else { short[i].clone() };
        let mut name = base.clone();
        for again in 2.. {
            if !names.contains(&name) {
                break;
            }
            name = if again == 2 { format!("{base} (again)") } else { format!("{base} (again, {again})") };
        }
        names.push(name);
    }
    names
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn named(texts: &[&str]) -> Vec<String> {
        names(&texts.iter().map(|t| ArmText::parse(t).unwrap()).collect::<Vec<_>>())
    }

    #[test]
    fn an_arm_has_a_kernel_and_levers() {
        let arm = ArmText::parse("debian:6.12,boot.mitigations=auto,nosmt,boot.nosmt").unwrap();
        assert_eq!(arm.kernel, "debian:6.12");
        let want = [("boot.mitigations", "auto,nosmt"), ("boot.nosmt", "")].map(|(l, v)| (l.to_owned(), v.to_owned()));
        assert_eq!(arm.settings, want);
    }

    #[test]
    fn what_is_no_arm_is_refused() {
        for (text, want) in [
            ("", "has no kernel"),
            (",boot.nosmt", "has no kernel"),
            ("debian:6.12,nosmt", "is not a lever setting"),
            ("debian:6.12,boot.nosmt,boot.nosmt", "set twice"),
            ("debian:6.12,boot.rdinit=/bin/sh", "bigiron sets `rdinit` itself"),
        ] {
            let error = ArmText::parse(text).unwrap_err().to_string();
            assert!(error.contains(want), "{text}: {error}");
        }
    }

    #[test]
    fn names_are_short_and_unique() {
        assert_eq!(named(&["debian:6.1/cloud", "out/bzImage"]), ["debian:6.1/cloud", "bzImage"]);
        assert_eq!(named(&["a/bzImage", "b/bzImage"]), ["a/bzImage", "b/bzImage"]);
        assert_eq!(named(&["k", "k", "k"]), ["k", "k (again)", "k (again, 3)"]);
    }

    proptest! {
        #[test]
        fn an_arm_prints_as_it_reads(
            kernel in "[a-z]{1,8}(:[0-9]\\.[0-9]{1,2})?",
            levers in proptest::collection::btree_map("[a-z]{8,12}", "[a-z0-9]{0,4}", 0..4),
        ) {
            let settings = levers.into_iter().map(|(l, v)| (format!("boot.{l}"), v)).collect();
            let arm = ArmText { name: None, kernel, settings };
            prop_assert_eq!(ArmText::parse(&arm.to_string()).unwrap(), arm);
        }
    }
}
