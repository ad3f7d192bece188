//! Distinguishes arms from workloads among the words of a command line by their form.

use super::arm::ArmText;
use crate::registry;
use bigiron_archive::spec::looks_like_kernel;
use bigiron_model::refusal::Refusal;
use bigiron_model::suggest;

/// Splits words into arms and names of workloads, each in the order given. `named` are the names of kernels that were added.
///
/// A word that names a workload is that workload; one that has levers or looks like a kernel is an arm; any other is refused with
/// a suggestion.
pub fn sort(words: &[String], named: &[String]) -> Result<(Vec<ArmText>, Vec<String>), Refusal> {
    let (mut arms, mut workloads) = (Vec::new(), Vec::new());
    for word in words {
        let kernel = word.split(',').next().unwrap_or(word);
        if registry::find(word).is_some() {
            workloads.push(word.clone());
        } else if looks_like_kernel(kernel, named) {
            arms.push(ArmText::parse(word)?);
        } else {
            return Err(neither(kernel, named));
        }
    }
    Ok((arms, workloads))
}

fn neither(word: &str, named: &[String]) -> Refusal {
    let workloads = || registry::all().iter().map(|w| w.name());
    let mut message = format!("`{word}` is neither a kernel nor a workload");
    if let Some(near) = suggest::nearest(word, workloads().chain(named.iter().map(String::as_str))) {
        message.push_str(&format!("; did you mean `{near}`?"));
    } else if word.starts_with(|c: char| c.is_ascii_digit()) {
        message.push_str(&format!("; did you mean `debian:{word}`?"));
    }
    let added =
        if named.is_empty() { "none has been added".to_owned() } else { format!("added: {}", suggest::list(named)) };
    Refusal::new(message).hint(format!(
        "Workloads are {}; a kernel is `debian:VERSION`, a path, `running`, or a name given by `bigiron kernel add` ({added})",
        suggest::list(workloads())
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(words: &[&str]) -> Result<(Vec<ArmText>, Vec<String>), Refusal> {
        let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
        sort(&words, &["mine".to_owned()])
    }

    #[test]
    fn words_are_told_apart_by_form() {
        let words = ["mine", "debian:6.12,boot.mitigations=off", "micro", "./bzImage", "running", "dbsim"];
        let (arms, workloads) = sorted(&words).unwrap();
        let arms: Vec<String> = arms.iter().map(ToString::to_string).collect();
        assert_eq!(arms, ["mine", "debian:6.12,boot.mitigations=off", "./bzImage", "running"]);
        assert_eq!(workloads, ["micro", "dbsim"]);
    }

    #[test]
    fn a_word_that_is_neither_gets_its_near_miss() {
        for (word, want) in [
            ("dbism", "`dbism` is neither a kernel nor a workload; did you mean `dbsim`?"),
            ("mne", "did you mean `mine`?"),
            ("6.12", "did you mean `debian:6.12`?"),
            ("postgres", "neither a kernel nor a workload"),
        ] {
            let refusal = sorted(&["mine", word]).unwrap_err();
            assert!(refusal.message.contains(want), "{refusal}");
            let hint = refusal.hint.unwrap();
            assert!(hint.contains("Workloads are `micro`, `dbsim`, ") && hint.contains("added: `mine`"), "{hint}");
        }
    }
}
