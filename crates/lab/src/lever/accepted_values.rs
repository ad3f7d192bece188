//! The values that a lever accepts, and the text written for them.

use std::time::Duration;

use super::policy;
use bigiron_model::size;
use bigiron_model::suggest;
use bigiron_sys::scheduling::Policy;
use bigiron_workload::units;

/// The kernel's own limits of a slice.
const SHORTEST_SLICE: Duration = Duration::from_micros(100);
const LONGEST_SLICE: Duration = Duration::from_millis(100);

/// The values that a lever accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptedValues {
    /// One of these words, if the kernel lists it in the file itself, the chosen one in brackets.
    Offered(&'static [&'static str]),
    /// One of these words, if the kernel lists it in that other file of the same folder.
    OfferedBeside(&'static str, &'static [&'static str]),
    /// A whole number.
    Number { least: i64, most: i64 },
    /// An amount of memory; the file has KiB.
    Kib,
    /// `on` or `off`, and the text written for them.
    Switch { on: &'static str, off: &'static str },
    /// A word, and the text written for it.
    Words(&'static [(&'static str, &'static str)]),
    /// A number of memory pages to reserve, all of which must be available.
    Pages,
    /// An amount of memory.
    Bytes { least: u64 },
    /// A list of CPUs.
    Cpus,
    /// A NUMA memory policy.
    Policy,
    /// A scheduling policy.
    Scheduling,
    /// A time slice.
    Slice,
    /// `zram:SIZE[:ALGORITHM]`.
    Swap,
    /// Any text; the kernel decides.
    Text,
}

impl AcceptedValues {
    /// The text written for `value`, or an error that says what would be right.
    pub fn written(self, value: &str) -> Result<String, String> {
        match self {
            AcceptedValues::Offered(words) | AcceptedValues::OfferedBeside(_, words) if !words.contains(&value) => {
                Err(format!("it must be {}", suggest::list(words)))
            }
            AcceptedValues::Offered(_) | AcceptedValues::OfferedBeside(..) | AcceptedValues::Text => {
                Ok(value.to_owned())
            }
            AcceptedValues::Number { least, most } => {
                let number: i64 = value.parse().map_err(|_| "write a whole number".to_owned())?;
                if (least..=most).contains(&number) {
                    Ok(number.to_string())
                } else if most == i64::MAX {
                    Err(format!("it must be {least} or more"))
                } else {
                    Err(format!("it must be from {least} to {most}"))
                }
            }
            AcceptedValues::Kib => match size::parse_bytes(value)? {
                bytes if bytes % 1024 == 0 => Ok((bytes / 1024).to_string()),
                _ => Err("it must be whole KiB, such as `128K`".to_owned()),
            },
            AcceptedValues::Switch { on, off } => match value {
                "on" => Ok(on.to_owned()),
                "off" => Ok(off.to_owned()),
                _ => Err("it must be `on` or `off`".to_owned()),
            },
            AcceptedValues::Words(words) => match words.iter().find(|(word, _)| *word == value) {
                Some((_, written)) => Ok((*written).to_owned()),
                None => Err(format!("it must be {}", suggest::list(words.iter().map(|(word, _)| word)))),
            },
            AcceptedValues::Pages => match value.parse::<u32>() {
                Ok(pages) => Ok(pages.to_string()),
                Err(_) => Err("write a number of pages".to_owned()),
            },
            AcceptedValues::Bytes { least } => match size::parse_bytes(value)? {
                bytes if bytes >= least => Ok(bytes.to_string()),
                _ => Err(format!("it must be at least {}", size::print_bytes(least))),
            },
            AcceptedValues::Cpus => bigiron_sys::cpu_list::parse(value)
                .map(|_| value.to_owned())
                .ok_or("write a list of CPUs such as `0,2-3`".to_owned()),
            AcceptedValues::Policy => policy::parse(value).map(|_| value.to_owned()),
            AcceptedValues::Scheduling => scheduling(value).map(|_| value.to_owned()),
            AcceptedValues::Slice => slice(value).map(|_| value.to_owned()),
            AcceptedValues::Swap => super::swap::parse(value).map(|_| value.to_owned()),
        }
    }

    /// All values, if they form a closed list of words that is known without a kernel.
    pub fn words(self) -> Vec<&'static str> {
        match self {
            AcceptedValues::Offered(words) | AcceptedValues::OfferedBeside(_, words) => words.to_vec(),
            AcceptedValues::Switch { .. } => vec!["on", "off"],
            AcceptedValues::Words(words) => words.iter().map(|(word, _)| *word).collect(),
            AcceptedValues::Scheduling => Policy::ALL.iter().map(|(word, _)| *word).collect(),
            _ => Vec::new(),
        }
    }

    /// A description for lists of levers.
    pub fn describe(self) -> String {
        match self {
            AcceptedValues::Offered(words) => format!("{}, as far as the kernel offers them", suggest::list(words)),
            AcceptedValues::OfferedBeside(file, words) => {
                format!("{}, as far as the neighbouring file `{file}` lists them", suggest::list(words))
            }
            AcceptedValues::Number { least, most } if most == i64::MAX => format!("a number, {least} or more"),
            AcceptedValues::Number { least, most } => format!("{least} to {most}"),
            AcceptedValues::Kib => "an amount such as `128K`".to_owned(),
            AcceptedValues::Switch { .. } => "`on` or `off`".to_owned(),
            AcceptedValues::Words(words) => suggest::list(words.iter().map(|(word, _)| word)),
            AcceptedValues::Pages => "a number of pages, all of which must be available".to_owned(),
            AcceptedValues::Bytes { .. } => "an amount such as `512M`".to_owned(),
            AcceptedValues::Cpus => "a list of CPUs such as `0,2-3`".to_owned(),
            AcceptedValues::Policy => "`default`, `local`, `preferred:NODE`, `bind:NODES`, `interleave[:NODES]` or `weighted-interleave[:NODES]`".to_owned(),
            AcceptedValues::Scheduling => suggest::list(Policy::ALL.map(|(word, _)| word)),
            AcceptedValues::Slice => "a time from `100us` to `100ms`".to_owned(),
            AcceptedValues::Swap => "`zram:SIZE` or `zram:SIZE:ALGORITHM`".to_owned(),
            AcceptedValues::Text => "any text that the kernel accepts".to_owned(),
        }
    }

    /// Whether the value read back, `shown`, corresponds to `written`.
    pub fn is_taken(self, written: &str, shown: &str) -> bool {
        let nonzero = || {
            let number = shown.strip_prefix("0x").map_or_else(|| shown.parse(), |hex| u64::from_str_radix(hex, 16));
            number.is_ok_and(|n| n != 0)
        };
        match self {
            // The switch of multi-gen LRU is written as y or n, and shown as a mask.
            AcceptedValues::Switch { on, .. } if written == on && shown.starts_with("0x") => nonzero(),
            AcceptedValues::Switch { off, .. } if written == off && shown.starts_with("0x") => !nonzero(),
            _ => super::same_value(shown, written),
        }
    }
}

/// A scheduling policy by its word.
///
/// # Errors
/// The words.
pub(super) fn scheduling(value: &str) -> Result<Policy, String> {
    let found = Policy::ALL.iter().find(|(word, _)| *word == value);
    found
        .map(|(_, policy)| *policy)
        .ok_or_else(|| format!("it must be {}", suggest::list(Policy::ALL.map(|(word, _)| word))))
}

/// A slice in nanoseconds, within the kernel's own limits.
///
/// # Errors
/// What would be right.
pub(super) fn slice(value: &str) -> Result<u64, String> {
    let found = units::duration(value).filter(|slice| (SHORTEST_SLICE..=LONGEST_SLICE).contains(slice));
    found.map(|slice| slice.as_nanos() as u64).ok_or("write a time from `100us` to `100ms`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_the_kernel_wants_them() {
        assert_eq!(AcceptedValues::Kib.written("2M").unwrap(), "2048");
        assert_eq!(AcceptedValues::Switch { on: "Y", off: "N" }.written("on").unwrap(), "Y");
        assert_eq!(AcceptedValues::Words(&[("back", "write back")]).written("back").unwrap(), "write back");
        let offered = AcceptedValues::Offered(&["always", "never"]);
        assert_eq!(offered.written("never").unwrap(), "never");
        assert_eq!(offered.written("sometimes").unwrap_err(), "it must be `always` or `never`");
        let beside = AcceptedValues::OfferedBeside("there", &["performance", "powersave"]);
        assert_eq!(beside.written("turbo").unwrap_err(), "it must be `performance` or `powersave`");
        assert_eq!((slice("3ms").unwrap(), slice("100us").unwrap()), (3_000_000, 100_000));
        assert!(slice("99us").is_err() && slice("101ms").is_err() && slice("3").is_err());
        assert_eq!(AcceptedValues::Bytes { least: 1 }.written("1M").unwrap(), "1048576");
        assert_eq!(AcceptedValues::Number { least: 0, most: 9 }.written("09").unwrap(), "9");
    }

    #[test]
    fn a_value_is_taken_only_if_it_is_shown() {
        let generations = AcceptedValues::Switch { on: "y", off: "n" };
        assert!(generations.is_taken("y", "0x0007") && generations.is_taken("n", "0x0000"));
        assert!(!generations.is_taken("y", "0x0000") && !generations.is_taken("n", "0x0001"));
        assert!(AcceptedValues::Switch { on: "Y", off: "N" }.is_taken("N", "N"));
        assert!(!AcceptedValues::Switch { on: "Y", off: "N" }.is_taken("N", "Y"));
        assert!(AcceptedValues::Pages.is_taken("64", "64") && !AcceptedValues::Pages.is_taken("64", "37"));
        assert!(AcceptedValues::Text.is_taken("4096 131072 6291456", "4096\t131072\t6291456"));
    }
}
