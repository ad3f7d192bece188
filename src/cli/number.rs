//! Whole numbers on the command line, with errors in words.

use clap::builder::TypedValueParser;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Parses a whole number from `min` to `max`.
#[derive(Clone, Copy, Debug)]
pub struct WholeNumber<T> {
    min: T,
    max: T,
}

/// Whole numbers of 0 or more.
pub fn whole<T: Bounds>() -> WholeNumber<T> {
    WholeNumber { min: T::ZERO, max: T::MAX }
}

/// Whole numbers from `min` to `max`.
pub fn between<T: Bounds>(min: T, max: T) -> WholeNumber<T> {
    WholeNumber { min, max }
}

/// An unsigned type.
pub trait Bounds:
    Copy + PartialOrd + std::fmt::Display + std::str::FromStr + Send + Sync + PartialEq + 'static
{
    const ZERO: Self;
    const MAX: Self;
}

macro_rules! bounds {
    ($($type:ty),*) => { $(impl Bounds for $type { const ZERO: Self = 0; const MAX: Self = <$type>::MAX; })* };
}
bounds!(u32, u64, usize);

impl<T: Bounds> TypedValueParser for WholeNumber<T> {
    type Value = T;

    fn parse_ref(
        &self,
        cmd: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<T, clap::Error> {
        let text = value.to_string_lossy();
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let number = if digits { text.parse::<T>().ok() } else { None };
        if let Some(number) = number.filter(|n| (self.min..=self.max).contains(n)) {
            return Ok(number);
        }
        let right = if !digits {
            format!("it must be a whole number{}", if self.max == T::MAX { " of 0 or more, in digits" } else { "" })
        } else if self.max == T::MAX {
            "the number is too large".to_owned()
        } else {
            format!("it must be from {} to {}", self.min, self.max)
        };
        let mut error = clap::Error::new(ErrorKind::ValueValidation).with_cmd(cmd);
        if let Some(arg) = arg {
            error.insert(ContextKind::InvalidArg, ContextValue::String(arg.to_string()));
        }
        error.insert(ContextKind::InvalidValue, ContextValue::String(text.into_owned()));
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![right.into()]));
        Err(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<u32, String> {
        let pairs = clap::Arg::new("pairs").long("pairs").value_parser(between(2u32, 40)).allow_negative_numbers(true);
        let matches = clap::Command::new("bigiron").arg(pairs).try_get_matches_from(["bigiron", "--pairs", text]);
        matches.map(|m| *m.get_one("pairs").unwrap()).map_err(|e| e.to_string())
    }

    #[test]
    fn numbers_are_read_and_other_words_are_answered_in_words() {
        assert_eq!(parse("8"), Ok(8));
        for (text, right) in [
            ("eight", "it must be a whole number"),
            ("1e3", "it must be a whole number"),
            ("-8", "it must be a whole number"),
            ("+8", "it must be a whole number"),
            ("41", "it must be from 2 to 40"),
            ("99999999999999999999", "it must be from 2 to 40"),
        ] {
            let said = parse(text).unwrap_err();
            assert!(said.contains(right) && said.contains("--pairs"), "{text}: {said}");
        }
    }
}
