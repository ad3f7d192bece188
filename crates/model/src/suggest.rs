//! Near misses: what a mistyped word was probably meant to be.

/// The candidate nearest to `word`, if it is near enough to be the intended one.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .into_iter()
        .map(|c| (strsim::damerau_levenshtein(word, c), c))
        .filter(|(distance, c)| *distance <= 1 + word.len().min(c.len()) / 4)
        // The first letter is seldom mistyped.
        .min_by_key(|(distance, c)| (*distance, c.chars().next() != word.chars().next()))
        .map(|(_, c)| c)
}

/// `` `a`, `b` or `c` ``.
pub fn list<S: AsRef<str>>(words: impl IntoIterator<Item = S>) -> String {
    let words: Vec<String> = words.into_iter().map(|w| format!("`{}`", w.as_ref())).collect();
    match words.split_last() {
        None => String::new(),
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_near_and_another_word_is_not() {
        assert_eq!(nearest("clock", ["block", "clocks"]), Some("clocks"));
        assert_eq!(nearest("pars", ["pairs", "seed", "clock"]), Some("pairs"));
        assert_eq!(nearest("dbism", ["micro", "dbsim"]), Some("dbsim"));
        assert_eq!(nearest("postgres", ["micro", "dbsim"]), None);
    }

    #[test]
    fn lists_read_as_sentences() {
        assert_eq!(list(["a"]), "`a`");
        assert_eq!(list(["a", "b", "c"]), "`a`, `b` or `c`");
    }
}
