//! `boot.NAME[=VALUE]`: a word on the kernel's command line.
//!
//! Invariant: a word passes only if the guest's kernel shows that it took effect. A kernel that does not know a parameter boots
//! all the same; it reports the word in its log (from 5.14 on) and passes it to init, as an argument or in the environment
//! (always). Both are checked, so that a mistyped or obsolete parameter can never be reported as "no effect".

mod proof;

use super::LeverError;

/// Short description.
pub const SUMMARY: &str = "a word on the kernel's command line, such as `boot.mitigations=off`";

/// Parameters that bigiron sets itself: a guest with others would not be a trial of this study.
const RESERVED: &[&str] = &[
    "console",
    "earlycon",
    "earlyprintk",
    "ignore_loglevel",
    "init",
    "initrd",
    "loglevel",
    "no_timer_check",
    "noinitrd",
    "panic",
    "quiet",
    "rdinit",
    "ro",
    "root",
    "rootflags",
    "rootfstype",
    "rootwait",
    "rw",
];

/// Frequent parameters and their usual values, for completion. Others are accepted as well.
pub const FREQUENT: &[(&str, &[&str])] = &[
    ("mitigations", &["off", "auto", "auto,nosmt"]),
    ("preempt", &["none", "voluntary", "full", "lazy"]),
    ("transparent_hugepage", &["always", "madvise", "never"]),
    ("pti", &["on", "off", "auto"]),
    ("hugepages", &[]),
    ("hugepagesz", &["2M", "1G"]),
    ("default_hugepagesz", &["2M", "1G"]),
    ("numa", &["fake=2", "fake=4"]),
    ("isolcpus", &[]),
    ("nohz_full", &[]),
    ("maxcpus", &[]),
    ("nosmt", &[]),
    ("mem", &[]),
];

/// What a guest shows about its command line.
pub struct BootedCommandLine<'a> {
    /// /proc/cmdline.
    pub cmdline: &'a str,
    /// The kernel's log since boot.
    pub log: &'a str,
    /// Arguments of PID 1, without its own name.
    pub init_args: &'a [String],
    /// Environment of PID 1, `NAME=VALUE`.
    pub init_environment: &'a [String],
    /// Reads a file of /proc or /sys; `None` if it cannot be read.
    pub read: &'a dyn Fn(&str) -> Option<String>,
}

/// A parameter's name as the kernel compares it.
pub fn canonical(name: &str) -> String {
    name.replace('-', "_")
}

/// Checks `boot.NAME[=VALUE]`.
pub(super) fn check(lever: &str, name: &str, value: &str) -> Result<(), LeverError> {
    if RESERVED.contains(&canonical(name).as_str()) {
        return Err(LeverError::Reserved { lever: lever.to_owned(), name: name.to_owned() });
    }
    if !name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':')) {
        return Err(LeverError::Unknown {
            lever: lever.to_owned(),
            right: "a parameter's name has letters, digits, `_`, `-` and `.`".to_owned(),
        });
    }
    if value.chars().any(|c| c.is_whitespace() || c.is_control() || c == '"') {
        return Err(LeverError::Value {
            lever: lever.to_owned(),
            value: value.to_owned(),
            right: "a value on the kernel's command line has no white space and no quotes".to_owned(),
        });
    }
    Ok(())
}

/// Reads back whether the guest's kernel took each of `words` (from [`super::cmdline`]).
///
/// # Errors
/// The first word that did not take, and the evidence.
pub fn verify(words: &[String], seen: &BootedCommandLine<'_>) -> Result<(), String> {
    words.iter().try_for_each(|word| verify_word(word, seen).map_err(|why| format!("`{word}` did not take: {why}")))
}

fn verify_word(word: &str, seen: &BootedCommandLine<'_>) -> Result<(), String> {
    let (name, value) = word.split_once('=').map_or((word, None), |(n, v)| (n, Some(v)));
    if !seen.cmdline.split_ascii_whitespace().any(|w| w == word) {
        return Err("it is not on the kernel's command line".to_owned());
    }
    let words: Vec<&str> = seen.cmdline.split_ascii_whitespace().collect();
    let proved = proof::prove(&canonical(name), value, &words, seen);
    // The kernel's list of choices says more than the fact that it did not know the word.
    if let Some(Err(why)) = proved.as_ref().filter(|_| name == "preempt") {
        return Err(why.clone());
    }
    if let Some(line) = rejection(name, seen.log) {
        return Err(format!("the kernel logged `{line}`"));
    }
    if let Some(Err(why)) = proved {
        return Err(why);
    }
    let same = |other: &str| canonical(other.split('=').next().unwrap_or(other)) == canonical(name);
    if seen.init_args.iter().chain(seen.init_environment).any(|other| same(other)) {
        return Err("this kernel does not know it and passed it to init".to_owned());
    }
    if proved.is_some() {
        return Ok(());
    }
    if let Some(key) = name.strip_prefix("sysctl.") {
        let path = format!("/proc/sys/{}", key.replace('.', "/"));
        return proof::shown(&path, value.unwrap_or(""), seen);
    }
    match name.split_once('.') {
        // The kernel silently drops a word for a module that is never loaded: only the module's own parameter proves it.
        Some((module, parameter)) => {
            let path = format!("/sys/module/{}/parameters/{}", canonical(module), canonical(parameter));
            proof::shown(&path, value.unwrap_or("Y"), seen)
        }
        None => Ok(()),
    }
}

/// The line of the kernel's log that rejects parameter `name`.
fn rejection<'l>(name: &str, log: &'l str) -> Option<&'l str> {
    let name = canonical(name);
    let names_it = |words: &str| {
        words
            .split(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`' | ':'))
            .any(|w| canonical(w.split('=').next().unwrap_or(w)) == name)
    };
    log.lines().find(|line| {
        let about = [
            "nknown kernel command line parameters",
            "nknown command line parameters",
            "Malformed early option",
            "invalid for parameter",
            "too large for parameter",
            "nknown parameter",
        ];
        let unsupported = line.split_once("Unsupported ").is_some_and(|(_, rest)| rest.contains('=') && names_it(rest));
        unsupported || about.iter().any(|a| line.split_once(a).is_some_and(|(_, rest)| names_it(rest)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNKNOWN: &str =
        "Unknown kernel command line parameters \"mitigation=off nosmtt\", will be passed to user space.";

    fn verify_in(words: &[&str], log: &str, init: &[&str], files: &[(&str, &str)]) -> Result<(), String> {
        let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
        let init: Vec<String> = init.iter().map(|w| (*w).to_owned()).collect();
        let read = |path: &str| files.iter().find(|(p, _)| *p == path).map(|(_, text)| (*text).to_owned());
        let cmdline = format!("console=ttyS0 {} rdinit=/init\n", words.join(" "));
        verify(
            &words,
            &BootedCommandLine { cmdline: &cmdline, log, init_args: &[], init_environment: &init, read: &read },
        )
    }

    #[test]
    fn a_known_parameter_passes() {
        verify_in(&["mitigations=off", "nosmt"], UNKNOWN, &["HOME=/"], &[]).unwrap();
    }

    #[test]
    fn a_silent_no_op_never_passes() {
        for (word, log, init) in [
            ("mitigation=off", UNKNOWN, ""),
            ("nosmtt", UNKNOWN, ""),
            ("mitigation=off", "", "mitigation=off"),
            ("nosmtt", "", "nosmtt"),
            ("mitigations=banana", "Unsupported mitigations=banana, system may still be vulnerable", ""),
            ("mem=x", "Malformed early option 'mem'", ""),
            ("nvme.poll_queues=2", "", ""),
            ("rcutree.kthread_prio=x", "`x' invalid for parameter `rcutree.kthread_prio'", ""),
        ] {
            assert!(verify_in(&[word], log, &[init], &[]).is_err(), "{word}");
        }
    }

    #[test]
    fn a_shown_value_must_be_the_one_given() {
        let thp = [("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n")];
        verify_in(&["transparent_hugepage=never"], "", &[], &thp).unwrap();
        assert!(verify_in(&["transparent_hugepage=always"], "", &[], &thp).is_err());
        let pages = [("/proc/sys/vm/nr_hugepages", "37\n")];
        let error = verify_in(&["hugepages=64"], "", &[], &pages).unwrap_err();
        assert_eq!(error, "`hugepages=64` did not take: `/proc/sys/vm/nr_hugepages` says `37`");
        verify_in(&["printk.time=0"], "", &[], &[("/sys/module/printk/parameters/time", "N\n")]).unwrap();
        verify_in(&["sysctl.vm.swappiness=0x0a"], "", &[], &[("/proc/sys/vm/swappiness", "10\n")]).unwrap();
    }

    #[test]
    fn a_word_that_is_missing_from_the_command_line_is_an_error() {
        let read = |_: &str| None;
        let seen = BootedCommandLine { cmdline: "quiet", log: "", init_args: &[], init_environment: &[], read: &read };
        assert!(verify(&["nosmt".to_owned()], &seen).unwrap_err().contains("not on the kernel's command line"));
    }
}
