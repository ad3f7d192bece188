//! The page's sections and its table of contents, which stays at the top of the window.

use maud::{Markup, html};

/// A part of the page that the contents name.
pub struct Section {
    /// The anchor, which links from outside may use.
    id: &'static str,
    /// One or two words, so that the contents fit into one line of a wide window.
    name: &'static str,
    body: Markup,
}

impl Section {
    pub fn new(id: &'static str, name: &'static str, body: Markup) -> Section {
        Section { id, name, body }
    }
}

/// The contents, then the sections; empty ones are in neither.
pub fn sections(all: &[Section]) -> Markup {
    let all: Vec<&Section> = all.iter().filter(|s| !s.body.0.is_empty()).collect();
    html! {
        nav class="contents" aria-label="Contents" { @for s in &all { a href={ "#" (s.id) } { (s.name) } } }
        @for s in &all { section id=(s.id) { (s.body) } }
    }
}
