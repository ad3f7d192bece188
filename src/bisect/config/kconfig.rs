//! The facts about options that a report takes from a tree's Kconfig files: where each is defined, its prompt, and which options
//! are members of one choice.
//!
//! Invariant: these facts serve only readers and the order of links. The tree's own Kconfig decides whether an option can be set.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::options::OptionChange;
use crate::bisect::git::SourceTree;

/// Lines that begin a relevant entry.
const ENTRIES: &str = "^[[:space:]]*(menuconfig|config|choice|endchoice)([[:space:]]|$)";

/// Maximum number of lines of an entry that are searched for its prompt.
const LINES: usize = 40;

/// Places of definitions, and choices.
#[derive(Clone, Debug, Default)]
pub struct Kconfig {
    /// File and line, from 1, of every definition.
    defined: HashMap<String, Vec<(String, usize)>>,
    /// For each option that is a member of a choice, the number of the choice.
    choices: HashMap<String, usize>,
}

/// An option and the known facts about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Described {
    /// Without `CONFIG_`.
    pub option: String,
    pub from: String,
    pub to: String,
    /// Whether it was switched itself; otherwise it follows from those that were.
    pub switched: bool,
    /// Its prompt in the menu.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Where it is defined: `FILE:LINE`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defined: Option<String>,
}

impl Kconfig {
    /// Reads the Kconfig files of a tree at a commit.
    pub fn of(tree: &SourceTree, commit: &str) -> Kconfig {
        Kconfig::parse(tree.grep(commit, ENTRIES, "*Kconfig*").into_iter())
    }

    /// Parses lines that begin entries: file, number, text; lines of one file in order.
    pub fn parse(lines: impl Iterator<Item = (String, usize, String)>) -> Kconfig {
        let mut read = Kconfig::default();
        let (mut choice, mut choices, mut within) = (None, 0, String::new());
        for (file, number, text) in lines.filter(|(file, ..)| is_built(file)) {
            if file != within {
                (choice, within) = (None, file.clone());
            }
            let mut words = text.split_whitespace();
            match (words.next(), words.next()) {
                (Some("choice"), _) => {
                    choices += 1;
                    choice = Some(choices);
                }
                (Some("endchoice"), _) => choice = None,
                (Some("config" | "menuconfig"), Some(name)) => {
                    read.choices.extend(choice.map(|choice| (name.to_owned(), choice)));
                    read.defined.entry(name.to_owned()).or_default().push((file, number));
                }
                _ => {}
            }
        }
        read
    }

    /// The choice of which an option is a member.
    pub fn choice(&self, option: &str) -> Option<usize> {
        self.choices.get(option).copied()
    }

    /// The known facts about a changed option; of several definitions, those of the first with a prompt.
    pub fn describe(&self, tree: &SourceTree, commit: &str, change: &OptionChange, switched: bool) -> Described {
        let places = self.defined.get(&change.option).map_or(&[][..], Vec::as_slice);
        let asked = places.iter().find_map(|(file, line)| {
            let text = tree.text(commit, file)?;
            Some((prompt(&text, *line)?, format!("{file}:{line}")))
        });
        let first = places.first().map(|(file, line)| format!("{file}:{line}"));
        let (prompt, defined) = asked.map_or((None, first), |(prompt, place)| (Some(prompt), Some(place)));
        Described { prompt, defined, ..Described::unknown(change, switched) }
    }
}

impl Described {
    /// A changed option about which nothing more is known.
    pub fn unknown(change: &OptionChange, switched: bool) -> Described {
        let OptionChange { option, from, to } = change.clone();
        Described { option, from, to, switched, prompt: None, defined: None }
    }
}

/// Whether a file's options belong to an x86 kernel.
fn is_built(file: &str) -> bool {
    !file.starts_with("scripts/")
        && !file.starts_with("Documentation/")
        && (!file.starts_with("arch/") || file.starts_with("arch/x86/") || file.matches('/').count() == 1)
}

/// The prompt of the entry at `line`, from 1.
fn prompt(text: &str, line: usize) -> Option<String> {
    let entry = text.lines().skip(line).take(LINES);
    // An entry ends where the next begins; its own lines are indented.
    let entry = entry.take_while(|l| l.trim().is_empty() || l.starts_with([' ', '\t', '#']));
    let ask = |line: &str| {
        let (word, rest) = line.trim().split_once([' ', '\t'])?;
        let rest = rest.trim_start();
        let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        let asks = matches!(word, "bool" | "tristate" | "int" | "hex" | "string" | "prompt");
        asks.then(|| rest[1..].split(quote).next().unwrap_or_default().to_owned())
    };
    entry.take_while(|l| l.trim() != "help" && l.trim() != "---help---").find_map(ask)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bisect::git::history::tests::Repo;

    const KCONFIG: &str = "\
config A
\tbool
\tdefault y

config A
\tbool \"Ask for A\" if EXPERT
\thelp
\t  bool \"not this\"

choice
\tprompt \"Timer\"
\tdefault SLOW
config SLOW
\tbool 'Slow'
  config FAST
\t\tbool
\t\tprompt \"Fast\"
endchoice
menuconfig B
\tdef_bool y
";

    #[test]
    fn options_are_found_where_they_are_defined() {
        let repo = Repo::new();
        repo.write("arch/arm/Kconfig", "config B\n\tbool \"Another B\"\n");
        let commit = repo.commit("lib/Kconfig.debug", KCONFIG);
        let tree = SourceTree::open(repo.dir()).unwrap();
        let kconfig = Kconfig::of(&tree, &commit);
        assert!(kconfig.choice("FAST").is_some() && kconfig.choice("SLOW") == kconfig.choice("FAST"));
        assert_eq!((kconfig.choice("A"), kconfig.choice("B")), (None, None));
        let of = |option: &str| {
            let change = OptionChange { option: option.to_owned(), from: "n".to_owned(), to: "y".to_owned() };
            let found = kconfig.describe(&tree, &commit, &change, true);
            (found.prompt.unwrap_or_default(), found.defined.unwrap_or_default())
        };
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(of("A"), pair("Ask for A", "lib/Kconfig.debug:5"));
        assert_eq!(of("SLOW"), pair("Slow", "lib/Kconfig.debug:13"));
        assert_eq!(of("FAST"), pair("Fast", "lib/Kconfig.debug:15"));
        assert_eq!(of("B"), pair("", "lib/Kconfig.debug:19"));
        assert_eq!(of("C"), pair("", ""));
    }
}
