//! Text in styles, and its lines.
//!
//! Invariant: a word is never cut; a line is longer than the width only if it is one word.

/// How text is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Style {
    pub bold: bool,
    pub italic: bool,
    pub underlined: bool,
}

/// Parts of a word, in their styles.
#[derive(Clone, Debug, Default)]
struct Word {
    parts: Vec<(Style, String)>,
    columns: usize,
}

/// A run of text without line breaks of its own.
#[derive(Clone, Debug, Default)]
pub(super) struct Words {
    words: Vec<Word>,
    /// Whether the next text continues the last word.
    is_open: bool,
}

/// A line: its text with escape sequences (ECMA-48), and its columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    pub text: String,
    pub columns: usize,
}

impl Words {
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    pub fn push(&mut self, style: Style, text: &str) {
        for (i, piece) in text.split([' ', '\n']).enumerate() {
            if i > 0 {
                self.space();
            }
            if piece.is_empty() {
                continue;
            }
            if !self.is_open {
                self.words.push(Word::default());
            }
            let word = self.words.last_mut().expect("a word is open");
            word.columns += piece.chars().count();
            match word.parts.last_mut() {
                Some((last, text)) if *last == style => text.push_str(piece),
                _ => word.parts.push((style, piece.to_owned())),
            }
            self.is_open = true;
        }
    }

    pub fn space(&mut self) {
        self.is_open = false;
    }

    /// The same words, all in bold or none.
    pub fn in_bold(&self, is_bold: bool) -> Words {
        let mut words = self.clone();
        words.words.iter_mut().flat_map(|word| &mut word.parts).for_each(|(style, _)| style.bold = is_bold);
        words
    }

    /// The columns of the longest word.
    pub fn longest(&self) -> usize {
        self.words.iter().map(|word| word.columns).max().unwrap_or(0)
    }

    /// The columns of all of it in one line.
    pub fn columns(&self) -> usize {
        let words: usize = self.words.iter().map(|word| word.columns).sum();
        words + self.words.len().saturating_sub(1)
    }

    /// Its lines, each as long as `width` allows.
    pub fn lines(&self, width: usize, is_styled: bool) -> Vec<Line> {
        let mut lines: Vec<Vec<&Word>> = Vec::new();
        let mut columns = 0;
        for word in &self.words {
            match lines.last_mut().filter(|_| columns + 1 + word.columns <= width) {
                Some(line) => {
                    line.push(word);
                    columns += 1 + word.columns;
                }
                None => {
                    lines.push(vec![word]);
                    columns = word.columns;
                }
            }
        }
        lines.iter().map(|words| line(words, is_styled)).collect()
    }
}

/// A line of words. A style goes on over the space between two words that have it.
fn line(words: &[&Word], is_styled: bool) -> Line {
    let mut line = Line::default();
    let mut now = Style::default();
    let mut turn = |text: &mut String, to: Style| {
        if is_styled && to != now {
            if now != Style::default() {
                text.push_str("\x1b[0m");
            }
            for (is_set, code) in [(to.bold, "\x1b[1m"), (to.italic, "\x1b[3m"), (to.underlined, "\x1b[4m")] {
                if is_set {
                    text.push_str(code);
                }
            }
            now = to;
        }
    };
    for (i, word) in words.iter().enumerate() {
        if i > 0 {
            let (before, after) = (words[i - 1].parts.last(), word.parts.first());
            let is_same = before.zip(after).is_some_and(|(before, after)| before.0 == after.0);
            if !is_same {
                turn(&mut line.text, Style::default());
            }
            line.text.push(' ');
            line.columns += 1;
        }
        for (style, text) in &word.parts {
            turn(&mut line.text, *style);
            line.text.push_str(text);
        }
        line.columns += word.columns;
    }
    turn(&mut line.text, Style::default());
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_style_is_on_for_its_words_alone_and_ends_with_the_line() {
        let mut words = Words::default();
        let bold = Style { bold: true, ..Style::default() };
        words.push(Style::default(), "one ");
        words.push(bold, "two three");
        words.push(Style::default(), ", four");
        let shown = |width, is_styled| -> Vec<String> {
            words.lines(width, is_styled).into_iter().map(|line| line.text).collect()
        };
        assert_eq!(shown(80, true), ["one \x1b[1mtwo three\x1b[0m, four"]);
        assert_eq!(shown(8, true), ["one \x1b[1mtwo\x1b[0m", "\x1b[1mthree\x1b[0m,", "four"]);
        assert_eq!(shown(8, false), ["one two", "three,", "four"]);
        assert_eq!((words.longest(), words.columns()), (6, 19));
        assert_eq!(shown(1, false), ["one", "two", "three,", "four"]);
    }
}
