//! Distinguishes arms from workloads among the words of a command line by their form.

use std::fs;
use std::path::Path;

use super::arm::ArmText;
use super::ready_made;
use crate::registry;
use bigiron_archive::spec::{self, KernelSpec, looks_like_kernel};
use bigiron_lab::lever;
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
        if kernel.is_empty() && !word.is_empty() {
            return Err(Refusal::new(format!(
                "`{word}` has no kernel before its comma; an arm is KERNEL[,LEVER=VALUE]…"
            )));
        }
        if registry::find(word).is_some() {
            workloads.push(word.clone());
        } else if registry::find(kernel).is_some() && kernel != word {
            return Err(Refusal::new(format!("`{word}` begins with a workload, not with a kernel"))
                .hint("Workloads are separated by spaces; an arm is KERNEL[,LEVER=VALUE]…"));
        } else if !looks_like_kernel(kernel, named) && kernel.contains('=') && lever::has_family(kernel) {
            return Err(Refusal::new(format!("`{word}` is a setting without a kernel")).hint(format!(
                "An arm is KERNEL[,LEVER=VALUE]…, such as `debian:6.12,{word}`; `--set {word}` sets it on all arms"
            )));
        } else if looks_like_kernel(kernel, named) {
            let arm = ArmText::parse(word)?;
            check_file(&arm.kernel)?;
            KernelSpec::parse(&arm.kernel).map_err(|e| Refusal::new(e.to_string()))?;
            arms.push(arm);
        } else {
            return Err(neither(kernel, named));
        }
    }
    Ok((arms, workloads))
}

/// The refusal of a word, with what it was probably meant to be.
fn neither(word: &str, named: &[String]) -> Refusal {
    let workloads = || registry::all().iter().map(|w| w.name());
    let mut message = format!("`{word}` is neither a kernel nor a workload");
    let known: Vec<String> = workloads().chain(spec::words()).map(str::to_owned).chain(named.iter().cloned()).collect();
    let lower = word.to_ascii_lowercase();
    let bare = lower.trim_start_matches("linux-").trim_start_matches("linux").trim_start_matches('v');
    if word.is_empty() {
        message = "An empty word is neither a kernel nor a workload".to_owned();
    } else if lower != word && (lower.starts_with("debian:") || workloads().any(|w| w == lower)) {
        message.push_str(&format!("; did you mean `{lower}`?"));
    } else if lower == "debian:" || lower == "debian" {
        message.push_str("; name a version of Debian's kernel, such as `debian:6.12`");
    } else if bare.starts_with(|c: char| c.is_ascii_digit()) {
        message.push_str(&format!("; did you mean `debian:{bare}`?"));
    } else if ready_made::ALL.iter().any(|study| study.name == word) {
        message.push_str(&format!("; the ready-made study is run by `bigiron run {word}`"));
    } else if let Some(near) = suggest::nearest(word, known.iter().map(String::as_str)) {
        message.push_str(&format!("; did you mean `{near}`?"));
    } else if bigiron_image::find_tool(word).is_some() {
        message.push_str(&format!("; your own program goes after `--`: `bigiron compare … -- {word} …`"));
    }
    let added =
        if named.is_empty() { "none has been added".to_owned() } else { format!("added: {}", suggest::list(named)) };
    Refusal::new(message).hint(format!(
        "Workloads are {}; a kernel is `debian:VERSION`, a path, {}, or a name given by `bigiron kernel add` ({added})",
        suggest::list(workloads()),
        spec::words().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
    ))
}

/// Refuses a file that is no kernel but something else that bigiron uses.
fn check_file(word: &str) -> Result<(), Refusal> {
    let path = Path::new(word);
    let starts = |magic: &[u8]| fs::read(path).is_ok_and(|bytes| bytes.starts_with(magic));
    // A device or a pipe is not read here.
    let is_small_file = fs::metadata(path).is_ok_and(|m| m.is_file() && m.len() < 1 << 20);
    if word.ends_with(".toml") && is_small_file {
        return Err(Refusal::new(format!("`{word}` is not a kernel; a study file is run by `bigiron run {word}`")));
    }
    if is_small_file && starts(b"#!") {
        return Err(Refusal::new(format!("`{word}` is not a kernel but a program"))
            .hint(format!("Your own program goes after `--`: `bigiron compare … -- {word}`")));
    }
    Ok(())
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
            ("v6.12", "did you mean `debian:6.12`?"),
            ("linux-6.1", "did you mean `debian:6.1`?"),
            ("Debian:6.1", "did you mean `debian:6.1`?"),
            ("debian:", "such as `debian:6.12`"),
            ("lastest", "did you mean `latest`?"),
            ("runing", "did you mean `running`?"),
            ("sh", "your own program goes after `--`"),
            (",boot.nosmt", "has no kernel before its comma"),
            ("micro,dbsim", "`micro,dbsim` begins with a workload"),
            ("boot.mitigations=off", "is a setting without a kernel"),
            ("", "An empty word"),
            ("sql-phases", "the ready-made study is run by `bigiron run sql-phases`"),
            ("postgres", "neither a kernel nor a workload"),
        ] {
            let refusal = sorted(&["mine", word]).unwrap_err();
            assert!(refusal.message.contains(want), "{refusal}");
            let Some(hint) = refusal.hint else { continue };
            let is_list = hint.contains("Workloads are `micro`, `dbsim`, ") && hint.contains("added: `mine`");
            assert!(is_list || hint.contains("an arm is KERNEL[,") || hint.contains("An arm is KERNEL[,"), "{hint}");
        }
    }
}
