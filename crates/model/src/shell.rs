//! Words of a POSIX shell.

/// Quotes a text as one word of a POSIX shell.
pub fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_split_them() {
        assert_eq!(quote("debian:6.12,boot.mitigations=off"), "debian:6.12,boot.mitigations=off");
        assert_eq!(quote("my kernel's"), r"'my kernel'\''s'");
        assert_eq!(quote(""), "''");
    }
}
