//! Text: numbers printed and read back, characters classified, strings of a KiB built, compared and searched.
//!
//! Invariant: the counts are the same in every round.

use std::hint::black_box;
use std::io::Write as _;

use super::UserContext;
use super::verdict::{expect, wrong};

/// Bytes of the buffer; its text ends with a 0, as in C.
const BYTES: usize = 1024;
const CHARACTERS: &[u8] = b" \t\n\r\x080123456789 abcde fghij klmno pqrst uvwxy z ABCDE FGHIJ KLMNO PQRST UVWXY Z .,;:!@#$%^&*()_-+=|\\\"'`[]}{";
const QUESTION: &[u8] = b"What is your name?";
/// The part of it that is appended in the second of two ways.
const PART: usize = 10;
/// 2001-09-09 01:46:40, the time printed in the first round.
const TIME: u64 = 1_000_000_000;

/// The count of a walk over [`CHARACTERS`] and the zeros after it: derived from the ASCII classes in the tests below.
const CLASSES: u64 = 1_354;

/// Length of the text.
fn length(text: &[u8]) -> usize {
    text.iter().position(|b| *b == 0).unwrap_or(text.len())
}

/// Appends `more`, finding the end first.
fn append(text: &mut [u8], more: &[u8]) {
    let end = length(text);
    text[end..end + more.len()].copy_from_slice(more);
    text[end + more.len()] = 0;
}

/// Whether the texts are equal up to the end of the shorter one, including its end.
fn equal(text: &[u8], other: &[u8]) -> bool {
    for (a, b) in text.iter().zip(other) {
        if a != b {
            return false;
        }
        if *a == 0 {
            break;
        }
    }
    true
}

/// Sums the classes of every byte; letters are converted to the other case and back.
fn classes(text: &mut [u8]) -> u64 {
    let mut count = 0;
    for byte in text {
        let b = *byte;
        count += u64::from(b.is_ascii_alphanumeric());
        count += u64::from(b.is_ascii_alphabetic());
        count += u64::from(b.is_ascii_control());
        count += u64::from(b.is_ascii_digit());
        count += u64::from(b.is_ascii_graphic());
        count += u64::from(b == b' ' || b.is_ascii_graphic());
        count += u64::from(b.is_ascii_punctuation());
        count += u64::from(b.is_ascii_whitespace() || b == 0x0b);
        count += u64::from(b.is_ascii_hexdigit());
        if b.is_ascii_lowercase() {
            count += 1;
            *byte = black_box(b.to_ascii_uppercase()).to_ascii_lowercase();
        }
        if b.is_ascii_uppercase() {
            count += 1;
            *byte = black_box(b.to_ascii_lowercase()).to_ascii_uppercase();
        }
    }
    count
}

/// The time as printed by C's `ctime`, for UTC, in years of four digits.
fn date(seconds: u64, text: &mut [u8]) -> std::io::Result<usize> {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = bigiron_model::date::civil(days);
    let room = text.len();
    let mut rest = &mut text[..];
    write!(
        rest,
        "{} {} {day:2} {:02}:{:02}:{:02} {year}\n\0",
        DAYS[(days % 7) as usize],
        MONTHS[month as usize - 1],
        second / 3600,
        second / 60 % 60,
        second % 60
    )?;
    Ok(room - rest.len() - 1)
}

/// Prints into `text` and ends it with a 0.
fn print(text: &mut [u8], what: std::fmt::Arguments<'_>) -> std::io::Result<usize> {
    let room = text.len();
    let mut rest = &mut text[..];
    rest.write_fmt(what)?;
    let printed = room - rest.len();
    text[printed] = 0;
    Ok(printed)
}

fn read<T: std::str::FromStr>(text: &[u8]) -> anyhow::Result<T> {
    let text = std::str::from_utf8(text)?;
    text.parse().map_err(|_| wrong(format!("`{text}` was printed instead of a number")))
}

/// 100 rounds of all that.
pub fn strings(place: &mut UserContext<'_>) -> anyhow::Result<()> {
    let mut buffer = [0u8; BYTES];
    for n in 0..place.times(100) {
        let number = black_box(n) as f64 / 1000.0 + 1.5;
        let printed = print(&mut buffer, format_args!("{number}"))?;
        let (first, second): (f64, f64) = (read(&buffer[..printed])?, read(black_box(&buffer[..printed]))?);
        let thousand = (1000.0 * first).round() as i64;
        let printed = print(&mut buffer, format_args!("{thousand}"))?;
        let (long, int): (i64, i32) = (read(&buffer[..printed])?, read(black_box(&buffer[..printed]))?);
        expect(
            "Printing and reading a number",
            (first, second, long, i64::from(int)),
            (number, number, n as i64 + 1500, n as i64 + 1500),
        )?;

        let end = print(&mut buffer, format_args!("{}", String::from_utf8_lossy(black_box(CHARACTERS))))?;
        buffer[end..].fill(0);
        expect("Counting classes of characters", classes(&mut buffer[..BYTES - 1]), CLASSES)?;

        let mut question = [0u8; 32];
        append(&mut question, black_box(QUESTION));
        let once = length(&question);
        buffer[..=once].copy_from_slice(&question[..=once]);
        let mut alike = u64::from(equal(&buffer, &question));
        while BYTES - length(&buffer) > length(&question) {
            append(&mut buffer, QUESTION);
            alike += u64::from(equal(&buffer, &question));
        }
        buffer[..=once].copy_from_slice(&question[..=once]);
        while BYTES - length(&buffer) > length(&question) {
            append(&mut buffer, &QUESTION[..PART]);
            alike += u64::from(equal(&buffer[..PART], &question));
        }
        // Once at first, then once for each part that fits: 1006 bytes are the longest text that another can follow.
        let parts = (BYTES - 2 * QUESTION.len()).div_ceil(PART) as u64;
        expect("Comparing texts", alike, 1 + parts)?;

        let printed = date(TIME + n, &mut buffer)?;
        let text = &buffer[..printed];
        let found = text.iter().position(|b| b"jfamsond".contains(b)).is_some()
            && text.iter().any(|b| b" ;\n".contains(b))
            && text.iter().rposition(|b| *b == b'\n') == Some(printed - 1)
            && text.iter().take_while(|b| b.is_ascii_lowercase()).count() == 0
            && text.windows(4).position(|w| w == b"2001").is_some();
        if !found {
            return Err(wrong(format!("The date was printed as `{}`", String::from_utf8_lossy(text).trim_end())));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_those_of_ascii() {
        let mut buffer = [0u8; BYTES];
        buffer[..CHARACTERS.len()].copy_from_slice(CHARACTERS);
        // By hand: 10 digits and 52 letters; 4 control characters before them, and zeros after them, without the last one.
        let (digits, letters, punctuation) =
            (10, 52, CHARACTERS.iter().filter(|b| b.is_ascii_punctuation()).count() as u64);
        let spaces = CHARACTERS.iter().filter(|b| **b == b' ').count() as u64;
        let controls = 4 + (BYTES - 1 - CHARACTERS.len()) as u64;
        let graphic = digits + letters + punctuation;
        let by_hand = (digits + letters)
            + letters
            + controls
            + digits
            + graphic
            + (graphic + spaces)
            + punctuation
            + (spaces + 3)
            + (digits + 12)
            + 26
            + 26;
        assert_eq!(classes(&mut buffer[..BYTES - 1]), by_hand);
        assert_eq!(by_hand, CLASSES);
        assert_eq!(&buffer[..CHARACTERS.len()], CHARACTERS);
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        let print = |seconds| {
            let mut text = [0; 32];
            let length = date(seconds, &mut text).unwrap();
            String::from_utf8(text[..length].to_vec()).unwrap()
        };
        assert_eq!(print(0), "Thu Jan  1 00:00:00 1970\n");
        assert_eq!(print(TIME), "Sun Sep  9 01:46:40 2001\n");
        assert_eq!(print(951_782_400), "Tue Feb 29 00:00:00 2000\n");
        assert_eq!(print(4_107_542_399), "Sun Feb 28 23:59:59 2100\n");
    }

    #[test]
    fn texts_end_at_their_zero() {
        let mut text = *b"ab\0xxxxx";
        append(&mut text, b"cd");
        assert_eq!(&text[..5], b"abcd\0");
        assert!(equal(&text, b"abcd\0zzz") && !equal(&text, b"abce\0"));
    }
}
