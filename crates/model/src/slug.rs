//! Names of folders and files for a question: its arms, and the beginning of its hash.

/// Maximum length of an arm's part.
const ARM: usize = 40;

/// Hexadecimal digits of the hash.
const DIGITS: usize = 8;

/// `debian-6.1-vs-debian-6.12-cb458e4b`.
pub fn of_question(arms: &[&str], question_sha256: &str) -> String {
    let arms = match arms {
        [a, b] => format!("{}-vs-{}", words(a), words(b)),
        [a, rest @ ..] => format!("{}-vs-{}-others", words(a), rest.len()),
        [] => String::new(),
    };
    format!("{arms}-{}", question_sha256.get(..DIGITS).unwrap_or(question_sha256))
}

/// The letters, digits and dots of a name, with hyphens between them.
pub fn words(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric() && c != '.').filter(|w| !w.is_empty());
    let mut slug = words.collect::<Vec<_>>().join("-");
    slug.truncate(ARM);
    slug
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_plain_characters_only() {
        assert_eq!(of_question(&["debian:6.1", "../x,a=b"], "0123456789ab"), "debian-6.1-vs-..-x-a-b-01234567");
        assert_eq!(of_question(&["a", "b", "c"], "0123456789ab"), "a-vs-2-others-01234567");
        assert!(of_question(&[&"long".repeat(30), "b"], "0123456789ab").len() < 60);
    }
}
