//! Lays out a page for a terminal: headings in bold, lists and tables within the width, links followed by their target.
//!
//! Invariant: only lines of code, which keep their form, may be wider than the width.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::table::Table;
use super::words::{Line, Style, Words};
use crate::pages;

/// Columns by which code is indented.
const CODE: usize = 4;

/// The lines of a page of Markdown. Without styles, headings keep their marks.
pub(super) fn lines(markdown: &str, width: usize, is_styled: bool) -> Vec<Line> {
    let mut page = Layout { width, is_styled, ..Layout::default() };
    for event in Parser::new_ext(markdown, Options::ENABLE_TABLES) {
        page.take(event);
    }
    page.end_block();
    page.lines
}

/// The state of the layout.
#[derive(Debug, Default)]
struct Layout {
    width: usize,
    is_styled: bool,
    lines: Vec<Line>,
    /// The paragraph, heading or cell being read.
    text: Words,
    style: Style,
    /// The current indentation, in columns.
    indent: usize,
    /// The mark of the list item that begins.
    mark: Option<String>,
    /// The number of the next item of each enclosing list; `None` without numbers.
    lists: Vec<Option<u64>>,
    /// Whether a block has ended, so that a blank line precedes the next.
    has_block: bool,
    is_code: bool,
    table: Option<Table>,
    row: Vec<Words>,
    /// The targets of the enclosing links, shown after their texts.
    targets: Vec<Option<String>>,
}

impl Layout {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) if self.is_code => self.code(&text),
            Event::Text(text) | Event::InlineHtml(text) => self.text.push(self.style, &text),
            Event::Code(text) => self.text.push(self.style, &format!("`{text}`")),
            Event::SoftBreak => self.text.space(),
            Event::HardBreak => self.end_block(),
            Event::Html(text) => self.code(&text),
            Event::Rule => {
                self.gap();
                self.push(Line { text: "─".repeat(self.width), columns: self.width });
                self.has_block = true;
            }
            _ => {}
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph => self.gap(),
            Tag::Heading { level, .. } => {
                self.gap();
                self.style.bold = true;
                if !self.is_styled {
                    self.text.push(Style::default(), &format!("{} ", "#".repeat(level as usize)));
                }
            }
            Tag::CodeBlock(_) => {
                self.end_block();
                self.gap();
                self.is_code = true;
            }
            Tag::BlockQuote(_) => self.indent += 2,
            Tag::List(first) => {
                self.end_block();
                if self.lists.is_empty() {
                    self.gap();
                }
                self.has_block = false;
                self.lists.push(first);
            }
            Tag::Item => {
                let number = self.lists.last_mut().and_then(Option::as_mut);
                let mark = number.map_or_else(
                    || "- ".to_owned(),
                    |number| {
                        *number += 1;
                        format!("{}. ", *number - 1)
                    },
                );
                self.indent += mark.len();
                self.mark = Some(mark);
            }
            Tag::Table(alignments) => {
                self.gap();
                self.table = Some(Table { alignments, ..Table::default() });
            }
            Tag::TableHead => self.style.bold = true,
            Tag::Emphasis => self.style.italic = true,
            Tag::Strong => self.style.bold = true,
            Tag::Link { dest_url, .. } => {
                self.targets.push(target(&dest_url));
                self.style.underlined = true;
            }
            Tag::Image { .. } => {
                self.targets.push(None);
                self.text.push(self.style, "[picture: ");
            }
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph => self.end_block(),
            TagEnd::Heading(_) => {
                self.style.bold = false;
                self.end_block();
            }
            TagEnd::CodeBlock => {
                self.is_code = false;
                self.has_block = true;
            }
            TagEnd::BlockQuote(_) => {
                self.end_block();
                self.indent -= 2;
            }
            TagEnd::List(_) => {
                self.lists.pop();
                self.has_block = true;
            }
            TagEnd::Item => self.end_item(),
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.text);
                self.row.push(cell);
            }
            TagEnd::TableHead => {
                self.style.bold = false;
                let row = std::mem::take(&mut self.row);
                self.table.get_or_insert_default().head = row;
            }
            TagEnd::TableRow => {
                let row = std::mem::take(&mut self.row);
                self.table.get_or_insert_default().rows.push(row);
            }
            TagEnd::Table => {
                let table = self.table.take().unwrap_or_default();
                for line in table.lines(self.width.saturating_sub(self.indent), self.is_styled) {
                    self.push(line);
                }
                self.has_block = true;
            }
            TagEnd::Emphasis => self.style.italic = false,
            // A heading of a table is bold as a whole.
            TagEnd::Strong => self.style.bold = false,
            TagEnd::Link => {
                self.style.underlined = false;
                if let Some(Some(target)) = self.targets.pop() {
                    self.text.push(self.style, &format!(" ({target})"));
                }
            }
            TagEnd::Image => {
                self.targets.pop();
                self.text.push(self.style, "]");
            }
            _ => {}
        }
    }

    /// A blank line after the preceding block.
    fn gap(&mut self) {
        if self.has_block && self.lines.last().is_some_and(|line| !line.text.is_empty()) {
            self.lines.push(Line::default());
        }
        self.has_block = false;
    }

    /// Ends the text being read.
    fn end_block(&mut self) {
        if self.text.is_empty() {
            return;
        }
        let text = std::mem::take(&mut self.text);
        for line in text.lines(self.width.saturating_sub(self.indent), self.is_styled) {
            self.push(line);
        }
        self.has_block = true;
    }

    fn end_item(&mut self) {
        let is_tight = !self.text.is_empty();
        self.end_block();
        if self.mark.is_some() {
            self.push(Line::default());
        }
        if is_tight {
            self.has_block = false;
        }
        let number = self.lists.last().copied().flatten();
        self.indent -= number.map_or(2, |next| format!("{}. ", next - 1).len());
    }

    /// Adds a line behind the indentation or the item's mark.
    fn push(&mut self, line: Line) {
        let mark = self.mark.take().unwrap_or_default();
        let blank = self.indent - mark.len();
        self.lines.push(Line {
            text: format!("{:blank$}{mark}{}", "", line.text).trim_end().to_owned(),
            columns: self.indent + line.columns,
        });
    }

    fn code(&mut self, text: &str) {
        for line in text.lines() {
            let columns = if line.is_empty() { 0 } else { CODE + line.chars().count() };
            let text = if line.is_empty() { String::new() } else { format!("{:CODE$}{line}", "") };
            self.push(Line { text, columns });
        }
    }
}

/// The target of a link as a reader can use it; `None` for a part of the same page.
fn target(url: &str) -> Option<String> {
    let file = url.split('#').next().unwrap_or(url);
    if file.is_empty() {
        return None;
    }
    let name = file.rsplit('/').next().unwrap_or(file);
    match name.strip_suffix(".md").and_then(pages::find) {
        Some(page) => Some(format!("`bigiron doc {}`", page.name)),
        None => Some(url.trim_start_matches("../").to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(markdown: &str, width: usize, is_styled: bool) -> String {
        let lines: Vec<String> = lines(markdown, width, is_styled).into_iter().map(|line| line.text).collect();
        lines.join("\n")
    }

    #[test]
    fn blocks_are_apart_and_within_the_width() {
        let page = "# Title\nSome *text* with `code` and a\n[link](../concepts/clocks.md#x).\n\n- one two three\n- two\n  1. in\n  2. side\n\n\
             After:\n\n    bigiron compare a b   # a long line of code\n\n- loose\n\n- list\n\n  more\n";
        let want = "# Title\n\nSome text with `code`\nand a link (`bigiron\ndoc clocks`).\n\n- one two three\n- two\n  1. in\n  2. side\n\n\
             After:\n\n    bigiron compare a b   # a long line of code\n\n- loose\n\n- list\n\n  more";
        assert_eq!(shown(page, 22, false), want);
    }

    #[test]
    fn styles_stand_for_headings_emphasis_and_links() {
        let page = "## Title\n*a* **b** [c](d.md) [e](#e)";
        let want = "\x1b[1mTitle\x1b[0m\n\n\x1b[3ma\x1b[0m \x1b[1mb\x1b[0m \x1b[4mc\x1b[0m (d.md) \x1b[4me\x1b[0m";
        assert_eq!(shown(page, 80, true), want);
    }

    #[test]
    fn no_page_has_a_line_wider_than_the_terminal_except_code() {
        for width in [80, 60] {
            for page in pages::all() {
                let code: Vec<&str> = page.text.lines().map(str::trim).collect();
                for line in lines(page.text, width, true) {
                    let is_code = code.contains(&line.text.trim());
                    // On a narrow terminal also a word that is too long for any line.
                    let is_word = width < 80 && !line.text.trim().contains(' ');
                    assert!(line.columns <= width || is_code || is_word, "{} at {width}: {}", page.name, line.text);
                    assert_eq!(line.columns, columns(&line.text), "{}: {}", page.name, line.text);
                }
            }
        }
    }

    /// The columns of a text without its escape sequences.
    fn columns(text: &str) -> usize {
        text.split('\x1b')
            .enumerate()
            .map(|(i, part)| {
                let part = if i == 0 { part } else { part.split_once('m').map_or("", |(_, rest)| rest) };
                part.chars().count()
            })
            .sum()
    }
}
