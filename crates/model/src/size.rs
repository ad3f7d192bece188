//! Amounts of memory as typed and printed: `1G`, `512M`. Units are powers of 1024.

/// Reads `1G`, `512M`, `1GiB`, `1536 MiB`; a plain number is bytes.
///
/// # Errors
/// The text is not an amount of memory; the message says what is.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not an amount of memory; write one such as `1G` or `512M`");
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().map_err(|_| wrong())?;
    let unit = text[digits..].trim().to_ascii_uppercase();
    let shift = match unit.strip_suffix("IB").or(unit.strip_suffix('B')).unwrap_or(&unit) {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(wrong()),
    };
    number.checked_mul(1 << shift).ok_or_else(wrong)
}

/// The shortest exact form: `1G`, `1536M`, `1000`.
pub fn print_bytes(bytes: u64) -> String {
    for (shift, unit) in [(40, "T"), (30, "G"), (20, "M"), (10, "K")] {
        if bytes != 0 && bytes.is_multiple_of(1 << shift) {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// `16 TiB`, `2044 GiB`: rounded to a tenth of the largest unit.
pub fn rounded(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1023.95 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let text = format!("{value:.1}");
    format!("{} {}", text.strip_suffix(".0").unwrap_or(&text), units[unit])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn amounts_are_read() {
        for (text, want) in [("1G", 1 << 30), ("512M", 512 << 20), ("1 GiB", 1 << 30), ("2gb", 2 << 30), ("4096", 4096)]
        {
            assert_eq!(parse_bytes(text), Ok(want), "{text}");
        }
        for text in ["", "G", "1.5G", "-1", "1X", "99999999T"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(bytes: u64) {
            prop_assert_eq!(parse_bytes(&print_bytes(bytes)), Ok(bytes));
        }
    }
}
