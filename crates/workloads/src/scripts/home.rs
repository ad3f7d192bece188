//! A user's home: the input files of a script's commands, the same for every user.
//!
//! Invariant: every byte is known here, so the correct result of a command can be computed without running the command.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use bigiron_sys::load::rng::SplitMix64;

/// Seed of the texts: homes are the same in every trial of every study.
const SEED: u64 = 0x5de7;
const LINES: usize = 240;
const FOLDERS: [&str; 4] = ["amber", "basil", "cedar", "dill"];
const FILES: usize = 6;
/// Lines of the two texts that `diff` compares, and the distance between those that differ.
const COMPARED: usize = 90;
const APART: usize = 9;
/// Users who are logged in, according to the home's own list.
pub const LOGGED_IN: [&str; 5] = ["ann", "bob", "cleo", "dora", "egon"];

/// The contents of a home.
pub struct Home {
    /// Lines of words.
    pub text: Vec<String>,
    /// A sorted word list that lacks some words of the text.
    pub words: Vec<String>,
    pub old: Vec<String>,
    pub new: Vec<String>,
    /// A paper: paragraphs of words without punctuation.
    pub paragraphs: Vec<Vec<String>>,
    /// Words that are printed twice over each other in the file `over`.
    pub over: Vec<String>,
    /// Names and contents of the files of a tree.
    pub tree: Vec<(String, String)>,
    /// Input of the program in `src`, see [`Home::sum`].
    numbers: Vec<u32>,
}

impl Home {
    pub fn new() -> Self {
        let mut rng = SplitMix64::stream(SEED, "home");
        let vocabulary = vocabulary(&mut rng);
        let mut line = |least: u64, more: u64| -> Vec<String> {
            (0..least + rng.below(more))
                .map(|_| vocabulary[rng.below(vocabulary.len() as u64) as usize].clone())
                .collect()
        };
        let text: Vec<String> = (0..LINES).map(|_| line(6, 6).join(" ")).collect();
        let old: Vec<String> = (0..COMPARED).map(|_| line(4, 4).join(" ")).collect();
        let paragraphs = (0..12).map(|_| line(40, 30)).collect();
        let over = (0..40).map(|_| line(3, 3).join(" ")).collect();
        let file = |folder: &str, n| (format!("{folder}/f{n}"), n);
        let names: Vec<_> = FOLDERS.iter().flat_map(|f| (0..FILES).map(|n| file(f, n))).collect();
        let tree = names
            .into_iter()
            .map(|(name, n)| (name, lines(&(0..=n).map(|_| line(5, 5).join(" ")).collect::<Vec<_>>())));
        let tree = tree.collect();
        let new = old
            .iter()
            .enumerate()
            .map(|(n, l)| if n % APART == APART / 2 { format!("{l} changed") } else { l.clone() });
        let new = new.collect();
        // Every seventh word is misspelt.
        let known = vocabulary.iter().enumerate().filter(|(n, _)| n % 7 != 3).map(|(_, w)| w.clone());
        let mut words: Vec<String> = known.collect();
        words.sort();
        let numbers = (0..64).map(|_| rng.next() as u32).collect();
        Self { text, words, old, new, paragraphs, over, tree, numbers }
    }

    /// Creates a home in `dir`, which must not exist.
    ///
    /// # Errors
    /// If there is no room; the message names the path.
    pub fn lay_out(&self, dir: &Path) -> anyhow::Result<()> {
        use anyhow::Context as _;
        self.write(dir).with_context(|| format!("Cannot create the home {}", dir.display()))
    }

    fn write(&self, dir: &Path) -> io::Result<()> {
        for folder in
            ["w", "src", "bin", "tree"].map(str::to_owned).into_iter().chain(FOLDERS.map(|f| format!("tree/{f}")))
        {
            fs::create_dir_all(dir.join(folder))?;
        }
        for (name, lines_of) in [("text", &self.text), ("words", &self.words), ("old", &self.old), ("new", &self.new)] {
            fs::write(dir.join(name), lines(lines_of))?;
        }
        for (name, contents) in &self.tree {
            fs::write(dir.join("tree").join(name), contents)?;
        }
        fs::write(dir.join("paper"), self.paper())?;
        fs::write(dir.join("over"), self.overstruck())?;
        fs::write(dir.join("utmp"), logged_in())?;
        for (name, contents) in self.sources() {
            fs::write(dir.join("src").join(name), contents)?;
        }
        let script = dir.join("bin/fibonacci");
        fs::write(&script, FIBONACCI)?;
        fs::set_permissions(script, fs::Permissions::from_mode(0o755))
    }

    /// The paper for `nroff`: filled lines of 60 columns, no hyphenation, no adjustment, no pages.
    fn paper(&self) -> String {
        let paragraphs: Vec<String> =
            self.paragraphs.iter().map(|p| lines(&p.chunks(9).map(|l| l.join(" ")).collect::<Vec<_>>())).collect();
        format!(".nh\n.ad l\n.ll {WIDTH}n\n.pl 1\n{}", paragraphs.join(".br\n"))
    }

    /// The lines of the formatted paper.
    pub fn set(&self) -> Vec<String> {
        let mut set = Vec::new();
        for paragraph in &self.paragraphs {
            let mut line = String::new();
            for word in paragraph {
                if !line.is_empty() && line.len() + 1 + word.len() > WIDTH {
                    set.push(std::mem::take(&mut line));
                }
                if !line.is_empty() {
                    line.push(' ');
                }
                line.push_str(word);
            }
            set.push(line);
        }
        set
    }

    /// Text printed in bold: each letter over itself.
    fn overstruck(&self) -> String {
        let strike = |c: char| if c == ' ' { " ".to_owned() } else { format!("{c}\u{8}{c}") };
        lines(&self.over.iter().map(|l| l.chars().map(strike).collect::<String>()).collect::<Vec<_>>())
    }

    /// A small program of three files.
    fn sources(&self) -> [(&'static str, String); 4] {
        let numbers: Vec<String> = self.numbers.iter().map(|n| format!("{n}u")).collect();
        let table = numbers.chunks(8).map(|l| l.join(", ")).collect::<Vec<_>>().join(",\n    ");
        [
            ("sum.h", format!("#define COUNT {COUNT}\nextern const unsigned numbers[COUNT];\nunsigned sum(unsigned rounds);\n")),
            (
                "sum.c",
                format!(
                    "#include \"sum.h\"\n\nconst unsigned numbers[COUNT] = {{\n    {table}\n}};\n\nunsigned sum(unsigned rounds) {{\n    unsigned s = 1, i, j;\n    \
                     for (i = 0; i < rounds; i++)\n        for (j = 0; j < COUNT; j++)\n            s = (s ^ numbers[j]) * 16777619u + (s >> 7) + i;\n    return s;\n}}\n",
                ),
            ),
            (
                "main.c",
                format!("#include <stdio.h>\n#include \"sum.h\"\n\nint main(void) {{\n    printf(\"%u\\n\", sum({ROUNDS}));\n    return 0;\n}}\n"),
            ),
            (
                "Makefile",
                "CC = cc\nCFLAGS = -O1\n\nsum: main.o sum.o\n\t$(CC) -o sum main.o sum.o\n\nmain.o: main.c sum.h\nsum.o: sum.c sum.h\n".to_owned(),
            ),
        ]
    }

    /// The output of the program.
    pub fn sum(&self) -> u32 {
        let round = |s: u32, i: u32| {
            self.numbers.iter().fold(s, |s, n| {
                // As C evaluates it: the right side uses the old value throughout.
                (s ^ n).wrapping_mul(16_777_619).wrapping_add(s >> 7).wrapping_add(i)
            })
        };
        (0..ROUNDS).fold(1, round)
    }
}

/// Columns of the paper.
const WIDTH: usize = 60;
const COUNT: usize = 64;
const ROUNDS: u32 = 50;

/// Prints this many numbers of the sequence.
const FIBONACCI: &str =
    "#!/bin/sh\na=0 b=1 n=$1\nwhile [ \"$n\" -gt 0 ]; do\n    echo $a\n    c=$((a + b)) a=$b b=$c n=$((n - 1))\ndone\n";

/// Lines as in a file.
pub fn lines(lines: &[String]) -> String {
    lines.iter().flat_map(|l| [l.as_str(), "\n"]).collect()
}

/// Distinct words made of syllables.
fn vocabulary(rng: &mut SplitMix64) -> Vec<String> {
    const STARTS: [&str; 12] = ["b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t"];
    const ENDS: [&str; 8] = ["a", "e", "i", "o", "u", "an", "el", "or"];
    let mut words: Vec<String> = Vec::new();
    while words.len() < 400 {
        let syllable =
            |rng: &mut SplitMix64| format!("{}{}", STARTS[rng.below(12) as usize], ENDS[rng.below(8) as usize]);
        let word: String = (0..2 + rng.below(3)).map(|_| syllable(rng)).collect();
        if !words.contains(&word) {
            words.push(word);
        }
    }
    words
}

/// A list of the logged-in users for `who` (utmp(5), 64 bits): type, process, line, id, user, and a time.
fn logged_in() -> Vec<u8> {
    const RECORD: usize = 384;
    const USER_PROCESS: u8 = 7;
    let mut all = Vec::new();
    for (n, user) in LOGGED_IN.iter().enumerate() {
        let mut record = [0; RECORD];
        let mut put = |at: usize, bytes: &[u8]| record[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &[USER_PROCESS]);
        put(4, &(100 + n as u32).to_le_bytes());
        put(8, format!("tty{n}").as_bytes());
        put(40, format!("{n}").as_bytes());
        put(44, user.as_bytes());
        put(340, &(1_000_000_000 + n as u32).to_le_bytes());
        all.extend(record);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn homes_are_all_the_same_and_words_are_missing_from_the_list() {
        let (a, b) = (Home::new(), Home::new());
        assert_eq!((&a.text, &a.tree, a.sum()), (&b.text, &b.tree, b.sum()));
        assert!(a.words.is_sorted() && a.words.len() < 400);
        assert!(a.set().iter().all(|l| l.len() <= WIDTH));
    }
}
