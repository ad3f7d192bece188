//! Text for people and their terminals, made of words that arms, guests, servers and received folders have chosen.
//!
//! Invariant: nothing that a terminal obeys is left but line ends and tabs, and nothing that shows text in another order than it has. Every
//! character is replaced by one, so that columns stay where they are and JSON stays JSON.

use std::borrow::Cow;

/// `text` with visible signs in the place of control characters and of invisible ones.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|c| sign(c).is_some()) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(|c| sign(c).unwrap_or(c)).collect())
}

const PARAMETER: &str = "password=";

/// `text` without the passwords of URLs in it: for messages, which repeat what a user typed, and for reports, whose studies' folders may be of a
/// bigiron that took such URLs.
pub fn without_passwords(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        rest = after;
        let end = after.find(|c: char| c.is_whitespace() || "`'\"<>".contains(c)).unwrap_or(after.len());
        // Up to the last @: a password may have one.
        if let Some((login, _)) = after[..end].rsplit_once('@')
            && let Some((user, _)) = login.split_once(':')
        {
            out.push_str(user);
            out.push_str(":…");
            rest = &after[login.len()..];
        }
        // As libpq takes it too; after `amp;` in HTML.
        let url = rest.len() - (after.len() - end);
        let mut parameters = &rest[..url];
        rest = &rest[url..];
        while let Some(at) = parameters.find(PARAMETER) {
            let (before, value) = parameters.split_at(at + PARAMETER.len());
            out.push_str(before);
            if before[..at].ends_with(['?', '&', ';']) {
                out.push('…');
                parameters = &value[value.find('&').unwrap_or(value.len())..];
            } else {
                parameters = value;
            }
        }
        out.push_str(parameters);
    }
    if out.is_empty() {
        return Cow::Borrowed(text);
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// What stands for a character that is not shown as it is.
fn sign(c: char) -> Option<char> {
    match c {
        '\n' | '\t' => None,
        // Unicode has a picture for each of ASCII's.
        '\0'..='\x1f' => char::from_u32(0x2400 + u32::from(c)),
        '\x7f' => Some('\u{2421}'),
        // C1: what a terminal obeys in one character.
        '\u{80}'..='\u{9f}' => Some(char::REPLACEMENT_CHARACTER),
        // Directions, joiners, line separators, and what has no width.
        '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' => {
            Some(char::REPLACEMENT_CHARACTER)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_terminal_is_told_nothing() {
        let clipboard = "\x1b]52;c;ZXZpbA==\x07\x1b[2Jgone\r\x7f";
        assert_eq!(printable(clipboard), "␛]52;c;ZXZpbA==␇␛[2Jgone␍␡");
        assert_eq!(printable("\u{9b}2J\u{202e}live\u{2066}\u{feff}"), "\u{fffd}2J\u{fffd}live\u{fffd}\u{fffd}");
        assert!(matches!(printable("Δ ± 3 %\n\tµs…"), Cow::Borrowed("Δ ± 3 %\n\tµs…")));
    }

    #[test]
    fn passwords_of_urls_are_not_repeated() {
        for (text, want) in [
            ("No option `url=postgresql://me:SECRET@h/d`", "No option `url=postgresql://me:…@h/d`"),
            ("postgresql://me:SE@CRET@h/d and http://u:SECRET@x", "postgresql://me:…@h/d and http://u:…@x"),
            (
                "postgresql://h/d?user=me&password=SECRET&sslmode=require x",
                "postgresql://h/d?user=me&password=…&sslmode=require x",
            ),
            ("<td>postgresql://h/d?a=b&amp;password=SECRET</td>", "<td>postgresql://h/d?a=b&amp;password=…</td>"),
            ("postgresql://a:SECRET@h/d?password=SECRET", "postgresql://a:…@h/d?password=…"),
            ("password=of nobody https://h/?q=1&nopassword=x", "password=of nobody https://h/?q=1&nopassword=x"),
            ("postgresql://me@h:5432/d", "postgresql://me@h:5432/d"),
            ("see https://example.org: it says u@v", "see https://example.org: it says u@v"),
        ] {
            assert_eq!(without_passwords(text), want);
        }
    }

    proptest! {
        #[test]
        fn characters_stay_where_they_are(text in any::<String>()) {
            let shown = printable(&text);
            prop_assert_eq!(shown.chars().count(), text.chars().count());
            prop_assert!(!shown.chars().any(|c| c.is_control() && c != '\n' && c != '\t'));
            prop_assert!(matches!(printable(&shown), Cow::Borrowed(_)));
            without_passwords(&text);
        }
    }
}
