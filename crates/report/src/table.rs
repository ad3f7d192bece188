//! Lays text out in columns and in lines of at most 80 characters.
//!
//! Invariant: no line is longer than [`WIDTH`] unless a single word is.

/// The widest line of a text report; it leaves room for a backslash at its end.
pub const WIDTH: usize = 78;

/// Width on a terminal, counting each character as one column: the reports use no wide characters of their own.
pub fn width(text: &str) -> usize {
    text.chars().count()
}

/// `text` in lines of at most [`WIDTH`] columns: the first line begins with `first`, the others with `rest`.
pub fn wrap(text: &str, first: &str, rest: &str) -> String {
    wrap_at(WIDTH, text, first, rest)
}

/// The same in lines of at most `columns` columns.
pub fn wrap_at(columns: usize, text: &str, first: &str, rest: &str) -> String {
    let mut out = String::new();
    let mut line = first.to_owned();
    let mut empty = true;
    for word in text.split_whitespace() {
        if !empty && width(&line) + 1 + width(word) > columns {
            out.push_str(&line);
            out.push('\n');
            line = rest.to_owned();
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    out.push_str(line.trim_end());
    out.push('\n');
    out
}

/// `text` shortened to `columns` with an ellipsis.
pub fn clip(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    text.chars().take(columns.saturating_sub(1)).chain(['…']).collect()
}

/// A line of a table.
pub enum Line {
    /// One cell per column.
    Cells(Vec<String>),
    /// A heading over the lines that follow.
    Heading(String),
}

/// Lays a table out with two spaces between columns. `right[i]` right-aligns column `i`. If the table is too wide, the spaces shrink, from the left;
/// then a first cell that is too wide stands on a line of its own above the others, because a name that is cut may be any of several.
pub fn table(right: &[bool], lines: &[Line]) -> String {
    table_of_width(WIDTH, right, lines)
}

/// The same in at most `columns` columns.
pub fn table_of_width(columns: usize, right: &[bool], lines: &[Line]) -> String {
    let mut widths = vec![0; right.len()];
    for line in lines {
        if let Line::Cells(cells) = line {
            for (w, cell) in widths.iter_mut().zip(cells) {
                *w = (*w).max(width(cell));
            }
        }
    }
    let gaps = right.len().saturating_sub(1);
    let excess = (widths.iter().sum::<usize>() + 2 * gaps).saturating_sub(columns);
    let single = excess.min(gaps);
    if let Some(first) = widths.first_mut() {
        *first = first.saturating_sub(excess - single).max(4.min(*first));
    }
    let mut out = String::new();
    for line in lines {
        match line {
            Line::Heading(text) => out.push_str(text),
            Line::Cells(cells) => {
                let mut text = String::new();
                for (column, ((cell, &w), &right)) in cells.iter().zip(&widths).zip(right).enumerate() {
                    text.push_str(match column {
                        0 => "",
                        n if n <= single => " ",
                        _ => "  ",
                    });
                    let too_wide = column == 0 && width(cell) > w && cells.len() > 1;
                    if too_wide {
                        out.push_str(cell.trim_end());
                        out.push('\n');
                    }
                    let cell = if too_wide { "" } else { cell };
                    text.push_str(&if right { format!("{cell:>w$}") } else { format!("{cell:<w$}") });
                }
                out.push_str(text.trim_end());
            }
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wraps_between_words_and_never_within() {
        let long = "word ".repeat(50);
        let text = wrap(&long, "- ", "  ");
        assert!(text.lines().all(|l| width(l) <= WIDTH));
        assert_eq!(text.split_whitespace().filter(|w| *w == "word").count(), 50);
        assert_eq!(wrap("", "x", ""), "x\n");
        let one = "x".repeat(150);
        assert_eq!(wrap(&one, "", "  ").lines().count(), 1);
    }

    #[test]
    fn spaces_give_way_before_names() {
        let row = |name: &str| Line::Cells(vec![name.to_owned(), "1".repeat(29), "2".repeat(29)]);
        let text = table(&[false, true, true], &[row(&"n".repeat(18))]);
        assert_eq!(text.trim_end(), format!("{} {} {}", "n".repeat(18), "1".repeat(29), "2".repeat(29)));
        let text = table(&[false, true, true], &[row(&"n".repeat(17))]);
        assert_eq!(text.trim_end(), format!("{} {}  {}", "n".repeat(17), "1".repeat(29), "2".repeat(29)));
    }

    #[test]
    fn a_name_that_is_too_wide_stands_alone_and_whole() {
        let row = |name: &str| Line::Cells(vec![name.to_owned(), "1".repeat(50)]);
        let text = table(&[false, true], &[row(&"n".repeat(40)), row("short")]);
        let (alone, rest) = text.split_once('\n').unwrap();
        assert_eq!(alone, "n".repeat(40));
        assert!(rest.lines().all(|l| width(l) <= WIDTH && l.ends_with(&"1".repeat(50))), "{text}");
    }
}
