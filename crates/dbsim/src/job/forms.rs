//! The forms of values specific to dbsim jobs.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use super::step_text::A_CHOICE;
use super::{Choice, Length, Memory, Pace, Step, WorkShare, words};
use bigiron_model::document::Value;
use bigiron_model::size::print_bytes;
use bigiron_workload::acknowledgements::AckTarget;
use bigiron_workload::keys::form::{Form, bytes, optional, printed, quoted, quoted_list};
use bigiron_workload::units;

const TRANSACTIONS: RangeInclusive<u64> = 1..=1_000_000_000_000;

pub fn memory() -> Form<Memory> {
    printed(words::A_MEMORY, words::memory, |memory| words::print_memory(*memory))
}

pub fn pace() -> Form<Pace> {
    printed(units::A_PACE, units::pace, |pace| units::print_pace(*pace))
}

/// Maximum bytes per second.
pub fn limit() -> Form<Option<u64>> {
    let values = "an amount per second, such as `200M/s`";
    optional(printed(values, units::bytes_per_second, |bytes| format!("{}/s", print_bytes(*bytes))))
}

pub fn share() -> Form<WorkShare> {
    let read = |text: &str| match text.split_whitespace().collect::<Vec<_>>()[..] {
        ["free"] => Some(WorkShare::Free),
        ["per", n, "transactions"] => {
            n.parse().ok().filter(|n| (1..=1_000_000_000).contains(n)).map(WorkShare::PerTransactions)
        }
        _ => None,
    };
    printed("`free`, or one request per number of transactions: `per 32 transactions`", read, |share| match share {
        WorkShare::Free => "free".to_owned(),
        WorkShare::PerTransactions(n) => format!("per {n} transactions"),
    })
}

/// The first and the last of the data files.
pub fn span() -> Form<Option<(usize, usize)>> {
    let read = |text: &str| {
        let (first, last) = text.split_once("..").unwrap_or((text, text));
        first.trim().parse().ok().zip(last.trim().parse().ok()).filter(|(first, last)| first <= last)
    };
    let values = "numbers of data files from 0 on, such as `2` or `0..3`";
    optional(printed(values, read, |(first, last)| format!("{first}..{last}")))
}

/// A length as work.
pub fn work() -> Form<Length> {
    let values = format!("a number from 1 to {}, or `auto`", TRANSACTIONS.end());
    let right = values.clone();
    let read = move |value: &Value| match value.scalar()?.as_str() {
        "auto" => Ok(Length::Auto),
        text => match text.parse() {
            Ok(n) if TRANSACTIONS.contains(&n) => Ok(Length::Transactions(n)),
            _ => Err(value.cannot_be(&right)),
        },
    };
    Form::new(values, read, |length| if let Length::Transactions(n) = length { Some(n.to_string()) } else { None })
}

/// A length as time.
pub fn stretch() -> Form<Length> {
    let read = |value: &Value| match units::duration(&value.scalar()?) {
        Some(time) if !time.is_zero() => Ok(Length::Time(time)),
        _ => Err(value.cannot_be(units::A_TIME)),
    };
    Form::new(units::A_TIME, read, |length| match length {
        Length::Time(time) => Some(quoted(units::print_duration(*time))),
        _ => None,
    })
}

/// A length in either form; an empty text is also valid.
pub fn ramp() -> Form<Option<Length>> {
    let values = format!("a number of transactions, or {}", units::A_TIME);
    let right = values.clone();
    let read = move |value: &Value| {
        let text = value.scalar()?;
        let ramp = match text.parse() {
            Ok(n) if n <= *TRANSACTIONS.end() => Some(Length::Transactions(n)),
            _ => units::duration(&text).map(Length::Time),
        };
        ramp.map(Some).ok_or_else(|| value.cannot_be(&right))
    };
    Form::new(values, read, |ramp| [work(), stretch()].iter().find_map(|form| (form.print)(ramp.as_ref()?)))
}

pub fn acks() -> Form<Option<AckTarget>> {
    let read =
        |value: &Value| value.string()?.parse::<AckTarget>().map(Some).map_err(|right: &str| value.cannot_be(right));
    Form::new("a file, or `tcp:HOST:PORT`", read, |to| Some(quoted(to.as_ref()?.to_string())))
}

pub fn places() -> Form<Vec<PathBuf>> {
    let read = |value: &Value| Ok(value.texts()?.into_iter().map(|(text, _)| PathBuf::from(text)).collect());
    Form::new("a list of paths", read, |places: &Vec<PathBuf>| {
        (!places.is_empty()).then(|| quoted_list(places.iter().map(|place| place.to_string_lossy())))
    })
}

pub fn place() -> Form<Option<PathBuf>> {
    let read = |value: &Value| value.string().map(|text| Some(text.into()));
    Form::new("a directory", read, |place: &Option<PathBuf>| Some(quoted(place.as_ref()?.to_string_lossy())))
}

/// Bytes of a block of redo.
pub fn block() -> Form<usize> {
    let values = "a power of 2 from 512 to 64K";
    let Form { read, print, .. } = bytes(512..=64 << 10, 512);
    let read = move |value: &Value| {
        let block: usize = read(value)?;
        if block.is_power_of_two() { Ok(block) } else { Err(value.cannot_be(values)) }
    };
    Form::new(values, read, print)
}

pub fn choice() -> Form<Choice> {
    let read = |value: &Value| value.string()?.parse::<Choice>().map_err(|e: String| value.refuse(e));
    Form::new(A_CHOICE, read, |choice: &Choice| Some(quoted(choice.to_string())))
}

pub fn steps() -> Form<Vec<Step>> {
    let read = |value: &Value| {
        let steps = value.texts()?.into_iter();
        steps.map(|(text, value)| text.parse().map_err(|e: String| value.refuse(e))).collect()
    };
    Form::new("a list of steps", read, |steps: &Vec<Step>| Some(quoted_list(steps.iter().map(Step::to_string))))
}
