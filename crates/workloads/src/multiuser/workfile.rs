//! A workfile: the tests of a mix, their weights, the size of their files. The format is ReAIM's own.
//!
//! Invariant: the printed form parses to the same mix; a line that ReAIM would ignore is refused, and the error names it.

use std::fmt;

use super::work::{self, Test};
use bigiron_model::refusal::Refusal;
use bigiron_model::suggest;

/// The largest file size or pool, in KiB: 4 TiB.
pub const MOST_KIB: u64 = 1 << 32;

/// A mix of tests.
#[derive(Clone, Default)]
pub struct Workfile {
    /// `FILESIZE`, in KiB.
    pub file_kib: Option<u64>,
    /// `POOLSIZE`, in KiB.
    pub pool_kib: Option<u64>,
    /// In the order of their lines, each test once; at least one weight is above 0.
    pub weights: Vec<Weight>,
}

/// A line of a workfile.
#[derive(Clone, Copy)]
pub struct Weight {
    pub weight: u32,
    pub test: &'static Test,
}

impl Workfile {
    /// Parses `text`; `name` is its name in errors.
    ///
    /// # Errors
    /// If a line is neither a size nor a weight and a test's name, a test is unknown, or no weight is above 0.
    pub fn parse(name: &str, text: &str) -> Result<Self, Refusal> {
        let mut file = Self { file_kib: None, pool_kib: None, weights: Vec::new() };
        for (number, line) in lines(text) {
            file.take(line).map_err(|e| Refusal::new(e).at(Some(format!("{name}:{number}"))))?;
        }
        let refuse = |message: &str| Err(Refusal::new(message).at(Some(name.to_owned())));
        match () {
            () if file.weights.is_empty() => refuse("No line has a weight and a test; write one such as `10 disk_rd`"),
            () if file.weights.iter().all(|w| w.weight == 0) => refuse("All weights are 0; one must be at least 1"),
            () => Ok(file),
        }
    }

    fn take(&mut self, line: &str) -> Result<(), String> {
        let (first, rest) = words(line);
        if let Some(key) = size_key(first) {
            let kib = size(rest).map_err(|e| format!("`{key}` {e}"))?;
            *(if key == FILE { &mut self.file_kib } else { &mut self.pool_kib }) = Some(kib);
            return Ok(());
        }
        let weight = first.parse().map_err(|_| {
            format!(
                "`{line}` is neither a size nor a test; write `WEIGHT TEST`, such as `10 disk_rd`, or `FILESIZE: 10K`"
            )
        })?;
        let test = find(rest)?;
        match self.weights.iter_mut().find(|w| w.test.name == test.name) {
            // As in ReAIM, the last line of a test counts.
            Some(earlier) => earlier.weight = weight,
            None => self.weights.push(Weight { weight, test }),
        }
        Ok(())
    }
}

/// The test that a workfile calls `name`. The error says what would be right.
pub fn find(name: &str) -> Result<&'static Test, String> {
    if name.is_empty() {
        return Err("A weight is followed by the name of a test, such as `10 disk_rd`".to_owned());
    }
    work::find(name).ok_or_else(|| match suggest::nearest(name, work::catalogue().iter().map(|t| t.name)) {
        Some(near) => format!("There is no test `{name}`; did you mean `{near}`?"),
        None => format!("There is no test `{name}`; `bigiron doc multiuser` lists them"),
    })
}

/// The two keys of sizes, which a config file has too.
pub const FILE: &str = "FILESIZE";
pub const POOL: &str = "POOLSIZE";

/// The size key that `word` is, in any case, with or without a colon.
pub fn size_key(word: &str) -> Option<&'static str> {
    let word = word.strip_suffix(':').unwrap_or(word);
    [FILE, POOL].into_iter().find(|key| word.eq_ignore_ascii_case(key))
}

/// Parses `10K`, `25m`, in KiB. The error continues after the key.
pub fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("cannot be `{text}`; write kilobytes or megabytes, such as `10K` or `25M`");
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().map_err(|_| wrong())?;
    let kib = match text[digits..].trim_start() {
        "K" | "k" => Some(number),
        "M" | "m" => number.checked_mul(1024),
        _ => return Err(wrong()),
    };
    kib.filter(|n| *n <= MOST_KIB).ok_or_else(|| format!("cannot be `{text}`; the maximum is {}M", MOST_KIB / 1024))
}

/// The shortest form of this many KiB that [`size`] accepts.
pub fn print_size(kib: u64) -> String {
    if kib > 0 && kib.is_multiple_of(1024) { format!("{}M", kib / 1024) } else { format!("{kib}K") }
}

/// The lines that are neither empty nor comments, with their numbers.
pub fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let numbered = text.lines().enumerate().map(|(n, line)| (n + 1, line.trim()));
    numbered.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

/// A line's first word and the rest.
pub fn words(line: &str) -> (&str, &str) {
    line.split_once(char::is_whitespace).map_or((line, ""), |(first, rest)| (first, rest.trim_start()))
}

impl fmt::Debug for Workfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

impl fmt::Display for Workfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (key, kib) in [(FILE, self.file_kib), (POOL, self.pool_kib)] {
            if let Some(kib) = kib {
                writeln!(f, "{key}: {}", print_size(kib))?;
            }
        }
        self.weights.iter().try_for_each(|w| writeln!(f, "{} {}", w.weight, w.test.name))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn same(a: &Workfile, b: &Workfile) -> bool {
        let weights = |w: &Workfile| w.weights.iter().map(|w| (w.weight, w.test.name)).collect::<Vec<_>>();
        (a.file_kib, a.pool_kib, weights(a)) == (b.file_kib, b.pool_kib, weights(b))
    }

    #[test]
    fn the_ancestors_workfiles_are_read() {
        let text = "# a comment\nFILESIZE: 10k\npoolsize: 25M\n\n05 add_short\n10\tdisk_rd \n20 add_short\n";
        let file = Workfile::parse("w", text).map_err(|e| e.to_string()).unwrap();
        assert_eq!((file.file_kib, file.pool_kib), (Some(10), Some(25 << 10)));
        let weights: Vec<_> = file.weights.iter().map(|w| (w.weight, w.test.name)).collect();
        assert_eq!(weights, [(20, "add_short"), (10, "disk_rd")]);
        // Without sizes, as most of them are.
        assert_eq!(Workfile::parse("w", "10 sieve").map_err(|e| e.to_string()).unwrap().file_kib, None);
    }

    #[test]
    fn a_bad_line_is_named_with_what_would_be_right() {
        let refuse = |text: &str| Workfile::parse("mine", text).err().unwrap().to_string();
        assert_eq!(
            refuse("10 sieve\n# x\n10 disk_rdd\n"),
            "mine:3: There is no test `disk_rdd`; did you mean `disk_rd`?"
        );
        assert!(refuse("10 frobnicate").ends_with("`bigiron doc multiuser` lists them"));
        assert_eq!(
            refuse("sieve 10\n"),
            "mine:1: `sieve 10` is neither a size nor a test; write `WEIGHT TEST`, such as `10 disk_rd`, or `FILESIZE: 10K`"
        );
        assert_eq!(refuse("-1 sieve").split(" is ").next().unwrap(), "mine:1: `-1 sieve`");
        assert_eq!(refuse("\n10\n"), "mine:2: A weight is followed by the name of a test, such as `10 disk_rd`");
        assert_eq!(
            refuse("FILESIZE: 10\n10 sieve"),
            "mine:1: `FILESIZE` cannot be `10`; write kilobytes or megabytes, such as `10K` or `25M`"
        );
        assert!(refuse("POOLSIZE: 99999999M\n10 sieve").ends_with("the maximum is 4194304M"));
        assert_eq!(refuse("0 sieve\n0 add_int"), "mine: All weights are 0; one must be at least 1");
        assert_eq!(refuse("# nothing\n"), "mine: No line has a weight and a test; write one such as `10 disk_rd`");
    }

    fn workfiles() -> impl Strategy<Value = Workfile> {
        let size = || proptest::option::of(0..=MOST_KIB);
        let tests = proptest::sample::subsequence((0..work::catalogue().len()).collect::<Vec<_>>(), 1..20);
        (size(), size(), tests, proptest::collection::vec(0..10_000_u32, 20)).prop_map(
            |(file, pool, tests, weights)| {
                let weight = |(n, (test, weight)): (usize, (usize, u32))| Weight {
                    weight: weight.max(u32::from(n == 0)),
                    test: &work::catalogue()[test],
                };
                let weights = tests.into_iter().zip(weights).enumerate().map(weight).collect();
                Workfile { file_kib: file, pool_kib: pool, weights }
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(file in workfiles()) {
            let again = Workfile::parse("printed", &file.to_string()).map_err(|e| e.to_string()).unwrap();
            prop_assert!(same(&file, &again), "{file}\n{again}");
        }
    }
}
