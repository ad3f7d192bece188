//! Near misses: what a mistyped word was probably meant to be.

/// The candidate nearest to `word`, if it is near enough to be the intended one.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = |c: &str| 1 + word.len().min(c.len()) / 4;
    let characters = word.chars().count();
    candidates
        .into_iter()
        // The distance takes time and memory by the product of both lengths, and is at least their difference.
        .filter(|c| characters.abs_diff(c.chars().count()) <= limit(c))
        .map(|c| (strsim::damerau_levenshtein(word, c), c))
        .filter(|(distance, c)| *distance <= limit(c))
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
    fn a_long_word_is_near_to_nothing() {
        // Its distance would take 12 GB.
        assert_eq!(nearest(&"x".repeat(200 << 20), ["pairs"]), None);
    }

    #[test]
    fn lists_read_as_sentences() {
        assert_eq!(list(["a"]), "`a`");
        assert_eq!(list(["a", "b", "c"]), "`a`, `b` or `c`");
    }
}
