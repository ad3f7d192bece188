//! Levers: things that can be set on an arm, or on all arms.
//!
//! Invariant: a lever that was set but cannot be read back is an error before anything is measured. Settings in a guest disappear
//! with it; settings on this machine are in the ledger of [`crate::undo`] before they are made.

pub mod accepted_values;
pub mod apply;
pub mod block;
pub mod boot;
pub mod cgroup;
pub mod cpu;
pub mod disks;
pub mod fault;
pub mod file;
pub mod fs;
pub mod memory;
pub mod mm;
pub mod net;
pub mod policy;
pub mod runtime;
pub mod site;
pub mod swap;
pub mod sysctl;
pub mod vm;

pub use fault::Fault;

use bigiron_model::refusal::Refusal;
use bigiron_model::setting::Setting;
use bigiron_model::suggest;

/// When a lever acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// On the kernel's command line: takes a boot.
    Boot,
    /// In the running guest, before the workloads.
    Runtime,
    /// An option of a workload.
    Workload,
}

/// A lever cannot be set to this value. The text says what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeverError {
    #[error(
        "`boot.` levers take {bytes} bytes of the command line, but only {CMDLINE_LIMIT} are available; leave some out"
    )]
    TooLong { bytes: usize },
    #[error("`{0}` is not a lever setting; write FAMILY.NAME or FAMILY.NAME=VALUE, such as `boot.mitigations=off`")]
    Form(String),
    #[error("`{0}` ends after `=`; add a value, or omit the `=` for a lever that takes none")]
    EmptyValue(String),
    #[error("Unknown lever `{lever}`; {right}")]
    Unknown { lever: String, right: String },
    #[error("Lever `{lever}` cannot be set: bigiron sets `{name}` itself")]
    Reserved { lever: String, name: String },
    #[error("Lever `{lever}` cannot be `{value}`: {right}")]
    Value { lever: String, value: String, right: String },
    #[error("Lever `{0}` is set twice")]
    Twice(String),
    #[error("Lever `cpu.slice` has no effect with the real-time policies of `cpu.policy`; omit one")]
    SliceOfRealTime,
}

impl From<LeverError> for Refusal {
    fn from(error: LeverError) -> Self {
        Refusal::new(error.to_string())
    }
}

/// Parses `FAMILY.NAME` or `FAMILY.NAME=VALUE`; `check` tests whether the lever exists and accepts the value.
///
/// # Errors
/// If the form is wrong, or `check` fails.
pub fn parse_with(
    text: &str,
    check: impl FnOnce(&str, &str) -> Result<Scope, LeverError>,
) -> Result<Setting, LeverError> {
    let (lever, value) = match text.split_once('=') {
        Some((_, "")) => return Err(LeverError::EmptyValue(text.to_owned())),
        Some((lever, value)) => (lever, value),
        None => (text, ""),
    };
    if !has_family(lever) {
        return Err(LeverError::Form(text.to_owned()));
    }
    check(lever, value)?;
    Ok((lever.to_owned(), value.to_owned()))
}

/// As [`parse_with`], for levers that are not workload options.
///
/// # Errors
/// As [`parse_with`] and [`check`].
pub fn parse(text: &str) -> Result<Setting, LeverError> {
    parse_with(text, |lever, value| {
        check(lever, value)?.ok_or_else(|| LeverError::Unknown {
            lever: lever.to_owned(),
            right: format!("levers begin with {}", suggest::list(families().map(|f| format!("{f}.")))),
        })
    })
}

/// Checks a setting; `None` if its family is not one of [`families`], as for a workload's option.
///
/// # Errors
/// If the family has no such lever, or the lever does not accept the value.
pub fn check(lever: &str, value: &str) -> Result<Option<Scope>, LeverError> {
    let (family, name) = lever.split_once('.').ok_or_else(|| LeverError::Form(lever.to_owned()))?;
    match family {
        "boot" => boot::check(lever, name, value).map(|()| Some(Scope::Boot)),
        "fault" => fault::check(lever, name, value).map(|_| Some(Scope::Runtime)),
        family if runtime::is_family(family) => runtime::check(lever, value).map(|()| Some(Scope::Runtime)),
        _ => Ok(None),
    }
}

/// The families of levers, without those of workload options.
pub fn families() -> impl Iterator<Item = &'static str> {
    ["boot", "fault"].into_iter().chain(runtime::TABLES.iter().map(|(family, _)| *family))
}

/// Whether `text` begins with a family's name and a dot, as every lever does (the family need not exist).
pub fn has_family(text: &str) -> bool {
    let name = text.split('=').next().unwrap_or(text);
    name.split_once('.').is_some_and(|(family, rest)| {
        !rest.is_empty()
            && family.starts_with(|c: char| c.is_ascii_lowercase())
            && family.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    })
}

/// When a (checked) lever acts.
pub fn scope(lever: &str) -> Scope {
    match lever.split_once('.') {
        Some(("boot", _)) => Scope::Boot,
        Some(("fault", _)) => Scope::Runtime,
        Some((family, _)) if runtime::is_family(family) => Scope::Runtime,
        _ => Scope::Workload,
    }
}

/// The key by which two spellings are the same lever: the kernel equates `-` and `_` in a parameter's name.
pub fn key(lever: &str) -> String {
    match lever.strip_prefix("boot.") {
        Some(name) => format!("boot.{}", boot::canonical(name)),
        None => lever.to_owned(),
    }
}

/// Refuses a lever that is set twice in one list.
pub fn check_duplicates(settings: &[Setting]) -> Result<(), LeverError> {
    for (i, (lever, _)) in settings.iter().enumerate() {
        if settings[..i].iter().any(|(other, _)| key(other) == key(lever)) {
            return Err(LeverError::Twice(lever.clone()));
        }
    }
    Ok(())
}

/// `common` settings, overridden by an arm's `own`.
pub fn overlay(common: &[Setting], own: &[Setting]) -> Vec<Setting> {
    let mut all: Vec<Setting> =
        common.iter().filter(|(lever, _)| !own.iter().any(|(o, _)| key(o) == key(lever))).cloned().collect();
    all.extend(own.iter().cloned());
    all
}

/// Maximum bytes of levers' words on the kernel's command line. An x86-64 kernel takes 2047 bytes including bigiron's own words,
/// and silently cuts off the rest.
pub const CMDLINE_LIMIT: usize = 1856;

/// Refuses settings of one arm that cannot be together: more words than fit, a slice for real-time processes.
pub fn check_together(settings: &[Setting]) -> Result<(), LeverError> {
    let bytes = cmdline(settings).join(" ").len();
    if bytes > CMDLINE_LIMIT {
        return Err(LeverError::TooLong { bytes });
    }
    let is_real_time = |(lever, value): &Setting| lever == "cpu.policy" && ["fifo", "rr"].contains(&value.as_str());
    if settings.iter().any(is_real_time) && settings.iter().any(|(lever, _)| lever == "cpu.slice") {
        return Err(LeverError::SliceOfRealTime);
    }
    Ok(())
}

/// The words that `settings` put on the kernel's command line.
pub fn cmdline(settings: &[Setting]) -> Vec<String> {
    settings
        .iter()
        .filter_map(|(lever, value)| {
            let name = lever.strip_prefix("boot.")?;
            Some(if value.is_empty() { name.to_owned() } else { format!("{name}={value}") })
        })
        .collect()
}

/// The settings to make in a running kernel, before the workloads.
pub fn of_runtime(settings: &[Setting]) -> Vec<Setting> {
    let is = |lever: &str| runtime::find(lever).is_some_and(|named| named.lever.is_local());
    settings.iter().filter(|(lever, _)| is(lever)).cloned().collect()
}

/// Names of kernel modules that `settings` of a running kernel need, if the kernel has them as modules.
pub fn modules(settings: &[Setting]) -> Vec<&'static str> {
    let mut modules = Vec::new();
    for (lever, value) in settings {
        match lever.as_str() {
            // All of them, so that a wrong word is compared with all the kernel's choices.
            "block.scheduler" => modules.extend(block::SCHEDULER_MODULES),
            // Older kernels compress with modules of the crypto API, by default lzo-rle.
            "mm.swap" => modules.extend(["zram", "lzo_rle"].into_iter().chain(swap::algorithm_module(value))),
            "mm.zswap-compressor" => modules.extend(swap::compressor(value)),
            "mm.zswap" => modules.push("lzo"),
            _ => {}
        }
    }
    modules.dedup();
    modules
}

/// Bytes of compressed swap that the settings request.
pub fn swap_bytes(settings: &[Setting]) -> u64 {
    let sizes =
        settings.iter().filter(|(lever, _)| lever == "mm.swap").filter_map(|(_, value)| swap::parse(value).ok());
    sizes.map(|swap| swap.bytes).sum()
}

/// Bytes of huge pages that the settings reserve.
pub fn huge_page_bytes(settings: &[Setting]) -> u64 {
    let sizes = settings.iter().map(|(lever, pages)| match lever.as_str() {
        "mm.hugepages-2m" => (pages, 2 << 20),
        "mm.hugepages-1g" => (pages, 1 << 30),
        _ => (pages, 0),
    });
    sizes.map(|(pages, size)| size * u64::from(pages.parse::<u32>().unwrap_or(0))).sum()
}

/// The fault that `settings` inject, if any.
pub fn injected(settings: &[Setting]) -> Option<Fault> {
    settings.iter().find(|(lever, _)| lever == fault::INJECT).and_then(|(_, value)| value.parse().ok())
}

/// Whether a value as shown equals the value given: the same text, the same number, or the same truth value (shown as `Y` and
/// `N`).
pub(crate) fn same_value(got: &str, want: &str) -> bool {
    fn number(s: &str) -> Option<i128> {
        match s.strip_prefix("0x") {
            Some(hex) => i128::from_str_radix(hex, 16).ok(),
            None => s.parse().ok(),
        }
    }
    let squeeze = |s: &str| s.split_whitespace().collect::<Vec<_>>().join(" ");
    squeeze(got) == squeeze(want)
        || number(got).is_some_and(|n| number(want) == Some(n))
        || matches!((got, want), ("Y", "1" | "y" | "Y" | "on" | "true") | ("N", "0" | "n" | "N" | "off" | "false"))
}

#[cfg(test)]
mod tests {
    use bigiron_model::setting::TypedSetting;

    use super::*;

    fn set(text: &str) -> Setting {
        parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    #[test]
    fn settings_are_read_and_printed_alike() {
        for text in ["boot.mitigations=off", "boot.nosmt", "boot.isolcpus=domain,1-3", "fault.inject=panic"] {
            assert_eq!(TypedSetting(&set(text)).to_string(), text);
        }
    }

    #[test]
    fn the_same_parameter_in_two_spellings_is_set_twice() {
        let twice = [set("boot.transparent-hugepage=never"), set("boot.transparent_hugepage=always")];
        assert_eq!(check_duplicates(&twice), Err(LeverError::Twice("boot.transparent_hugepage".into())));
    }

    #[test]
    fn swap_is_as_large_as_asked() {
        let sizes = ["mm.swap=zram:512M:zstd", "mm.swap=zram:3G", "mm.swappiness=200"].map(|s| swap_bytes(&[set(s)]));
        assert_eq!(sizes, [512 << 20, 3 << 30, 0]);
    }

    #[test]
    fn an_arms_own_setting_wins() {
        let all = overlay(&[set("boot.preempt=full"), set("boot.nosmt")], &[set("boot.preempt=none")]);
        assert_eq!(cmdline(&all), ["nosmt", "preempt=none"]);
    }
}
