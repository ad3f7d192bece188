//! Tables: side by side if the columns fit, else each row as a list of its cells.

use pulldown_cmark::Alignment;

use super::words::{Line, Words};

/// Columns between two columns of a table.
const GAP: usize = 2;
/// Maximum lines of a cell in a table of three or more columns. Longer cells are easier to read as lists.
const HIGHEST: usize = 7;

/// A table of text.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub alignments: Vec<Alignment>,
    pub head: Vec<Words>,
    pub rows: Vec<Vec<Words>>,
}

impl Table {
    pub fn lines(&self, width: usize, is_styled: bool) -> Vec<Line> {
        let grid = self.widths(width).map(|widths| self.grid(&widths, is_styled));
        grid.flatten().unwrap_or_else(|| self.lists(width, is_styled))
    }

    fn all(&self) -> impl Iterator<Item = &Vec<Words>> {
        std::iter::once(&self.head).chain(&self.rows)
    }

    /// The width of each column; `None` if a line would not hold the longest word of each.
    fn widths(&self, width: usize) -> Option<Vec<usize>> {
        let count = self.head.len();
        let most = |of: fn(&Words) -> usize| -> Vec<usize> {
            (0..count).map(|i| self.all().filter_map(|row| row.get(i)).map(of).max().unwrap_or(0)).collect()
        };
        let (least, whole) = (most(Words::longest), most(Words::columns));
        let room = width.checked_sub(GAP * count.saturating_sub(1))?;
        let mut rest = room.checked_sub(least.iter().sum())?;
        let mut widths = least.clone();
        // Narrow columns get their full width; the others share the rest in proportion to what they lack.
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by_key(|&i| whole[i] - least[i]);
        for (done, &i) in order.iter().enumerate() {
            let wanted: usize = order[done..].iter().map(|&i| whole[i] - least[i]).sum();
            let fair = rest / (count - done);
            let share = (rest * (whole[i] - least[i])).checked_div(wanted).unwrap_or(0);
            let more = share.max(fair).min(whole[i] - least[i]).min(rest);
            widths[i] += more;
            rest -= more;
        }
        Some(widths)
    }

    /// The table with columns of these widths; `None` if it would be hard to read.
    fn grid(&self, widths: &[usize], is_styled: bool) -> Option<Vec<Line>> {
        let cells = |row: &Vec<Words>| -> Vec<Vec<Line>> {
            row.iter().zip(widths).map(|(cell, width)| cell.lines(*width, is_styled)).collect()
        };
        let rows: Vec<Vec<Vec<Line>>> = self.all().map(cells).collect();
        let height = |row: &Vec<Vec<Line>>| row.iter().map(Vec::len).max().unwrap_or(0);
        if widths.len() > 2 && rows.iter().any(|row| height(row) > HIGHEST) {
            return None;
        }
        // If names wrap, only a blank line shows where the next row begins.
        let is_loose = rows.iter().skip(1).any(|row| row.first().is_some_and(|cell| cell.len() > 1));
        let mut lines = Vec::new();
        for (number, row) in rows.iter().enumerate() {
            if number > 1 && is_loose {
                lines.push(Line::default());
            }
            for i in 0..height(row) {
                lines.push(self.beside(row, i, widths));
            }
            if number == 0 {
                let rules: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
                let text = rules.join(&" ".repeat(GAP));
                lines.push(Line { columns: text.chars().count(), text });
            }
        }
        Some(lines)
    }

    /// Line `i` of each cell of a row.
    fn beside(&self, row: &[Vec<Line>], i: usize, widths: &[usize]) -> Line {
        let mut line = Line::default();
        let mut at = 0;
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            if let Some(part) = cell.get(i) {
                let is_right = self.alignments.get(column) == Some(&Alignment::Right);
                let start = at + if is_right { width.saturating_sub(part.columns) } else { 0 };
                line.text.push_str(&" ".repeat(start - line.columns));
                line.text.push_str(&part.text);
                line.columns = start + part.columns;
            }
            at += width + GAP;
        }
        line
    }

    /// Each row as a paragraph: its first cell, and below it the others, each after its column's name.
    fn lists(&self, width: usize, is_styled: bool) -> Vec<Line> {
        const INDENT: usize = 4;
        // A single column below the first needs no name.
        let head = if self.head.len() > 2 { &self.head[..] } else { &[] };
        let names: Vec<Vec<Line>> = head.iter().map(|name| name.in_bold(false).lines(usize::MAX, is_styled)).collect();
        let name_of = |i: usize| names.get(i).and_then(|lines| lines.first()).cloned().unwrap_or_default();
        let named = (1..names.len()).map(|i| name_of(i).columns).max().unwrap_or(0);
        // Beside the names if half of the line is left for the cells.
        let is_beside = named == 0 || INDENT + named + GAP <= width / 2;
        let start = match (named, is_beside) {
            (0, _) => INDENT,
            (_, true) => INDENT + named + GAP,
            (_, false) => INDENT * 2,
        };
        let mut lines = Vec::new();
        for row in &self.rows {
            if !lines.is_empty() {
                lines.push(Line::default());
            }
            let (first, others) = row.split_first().expect("a row has cells");
            lines.extend(first.in_bold(true).lines(width, is_styled));
            for (i, cell) in others.iter().enumerate() {
                let name = name_of(i + 1);
                // Below the name if a word would not fit beside it.
                let is_beside = is_beside && start + cell.longest() <= width;
                let start = if is_beside { start } else { (INDENT * 2).min(width.saturating_sub(cell.longest())) };
                let mut head = format!("{:INDENT$}{}", "", name.text);
                let mut columns = INDENT + name.columns;
                for part in cell.lines(width.saturating_sub(start), is_styled) {
                    if !is_beside && columns > INDENT {
                        lines.push(Line { text: std::mem::take(&mut head), columns });
                        columns = 0;
                    }
                    let pad = start.saturating_sub(columns);
                    let text = format!("{head}{:pad$}{}", "", part.text);
                    lines.push(Line { columns: columns.max(start) + part.columns, text });
                    (head, columns) = (String::new(), 0);
                }
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::super::words::Style;
    use super::*;

    fn table(rows: &[&[&str]]) -> Table {
        let cell = |text: &&str| {
            let mut words = Words::default();
            words.push(Style::default(), text);
            words
        };
        let mut rows: Vec<Vec<Words>> = rows.iter().map(|row| row.iter().map(cell).collect()).collect();
        Table { alignments: vec![Alignment::None, Alignment::Right], head: rows.remove(0), rows }
    }

    fn shown(table: &Table, width: usize) -> Vec<String> {
        table.lines(width, false).into_iter().map(|line| line.text).collect()
    }

    #[test]
    fn cells_wrap_and_words_are_whole() {
        let table = table(&[&["name", "n", "what it does"], &["long-name", "12", "one two three four five"]]);
        let wide = ["name        n  what it does", "─────────  ──  ───────────────────────"];
        assert_eq!(shown(&table, 80), [wide[0], wide[1], "long-name  12  one two three four five"]);
        let narrow = shown(&table, 26);
        assert_eq!(narrow[3..], ["long-name  12  one two", "               three four", "               five"]);
        assert!(narrow.iter().all(|line| line.chars().count() <= 26), "{narrow:?}");
    }

    #[test]
    fn a_table_that_does_not_fit_becomes_lists() {
        let table = table(&[&["name", "width", "use"], &["alphabetical", "10", "a b c"]]);
        assert_eq!(shown(&table, 20), ["alphabetical", "    width", "        10", "    use", "        a b c"]);
        assert_eq!(shown(&table, 22), ["alphabetical", "    width  10", "    use    a b c"]);
    }

    #[test]
    fn a_list_of_one_column_has_no_names() {
        let table = table(&[&["name", "what it is"], &["alphabetical", "one two"]]);
        assert_eq!(shown(&table, 15), ["alphabetical", "    one two"]);
    }
}
