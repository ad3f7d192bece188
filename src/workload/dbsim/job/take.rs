//! Values of a job's table, each checked for what it can be.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::units;
use super::words::Word;
use crate::document::Table;
use crate::refusal::Refusal;
use crate::{size, suggest};

/// One of a closed list of words.
pub fn word<W: Word>(table: &Table, key: &str, default: W) -> Result<W, Refusal> {
    let Some(value) = table.get(key) else { return Ok(default) };
    let text = value.string()?;
    W::from_word(&text).ok_or_else(|| {
        let words = W::ALL.iter().map(|(word, _)| *word);
        match suggest::nearest(&text, words.clone()) {
            Some(near) => value.refuse(format!("`{}` cannot be `{text}`; did you mean `{near}`?", value.key())),
            None => value.cannot_be(suggest::list(words)),
        }
    })
}

/// A truth value.
pub fn switch(table: &Table, key: &str, default: bool) -> Result<bool, Refusal> {
    table.get(key).map_or(Ok(default), |value| value.switch())
}

/// A whole number.
pub fn count(table: &Table, key: &str, default: u64, range: RangeInclusive<u64>) -> Result<u64, Refusal> {
    let Some(value) = table.get(key) else { return Ok(default) };
    let right = || value.cannot_be(format!("a number from {} to {}", range.start(), range.end()));
    value.scalar()?.parse().ok().filter(|n| range.contains(n)).ok_or_else(right)
}

/// An amount of bytes, a multiple of `unit`.
pub fn bytes(table: &Table, key: &str, default: u64, range: RangeInclusive<u64>, unit: u64) -> Result<u64, Refusal> {
    let Some(value) = table.get(key) else { return Ok(default) };
    let text = value.scalar()?;
    match size::parse_bytes(&text) {
        Ok(n) if range.contains(&n) && n.is_multiple_of(unit) => Ok(n),
        Ok(_) => Err(value.cannot_be(format!(
            "a multiple of {} from {} to {}",
            size::print_bytes(unit),
            size::print_bytes(*range.start()),
            size::print_bytes(*range.end())
        ))),
        Err(_) => Err(value.cannot_be(units::AN_AMOUNT)),
    }
}

/// `25%`.
pub fn percent(table: &Table, key: &str, default: u32, range: RangeInclusive<u32>) -> Result<u32, Refusal> {
    let Some(value) = table.get(key) else { return Ok(default) };
    units::percent(&value.scalar()?)
        .filter(|p| range.contains(p))
        .ok_or_else(|| value.cannot_be(format!("a share from {}% to {}%", range.start(), range.end())))
}

/// A time.
pub fn time(table: &Table, key: &str, default: Duration, range: RangeInclusive<Duration>) -> Result<Duration, Refusal> {
    let Some(value) = table.get(key) else { return Ok(default) };
    units::duration(&value.scalar()?).filter(|t| range.contains(t)).ok_or_else(|| {
        let print = units::print_duration;
        value.cannot_be(format!("a time from {} to {}, such as `10ms`", print(*range.start()), print(*range.end())))
    })
}
