//! The commands of a script: what each does in its own folder, and the expected contents of its file `out`.
//!
//! Invariant: a command's result depends only on the home's files, not on earlier or parallel commands.

use super::home::{Home, LOGGED_IN, lines};

/// A command of the multiset.
pub struct Task {
    /// Its traditional name, as used in `scripts.without`.
    pub name: &'static str,
    /// Programs other than the shell and those of every system, with Debian's packages.
    pub needs: &'static [(&'static str, &'static str)],
    /// Number of occurrences in a script.
    pub times: u32,
    /// The shell command. The home is `../..`, `$T` is the folder's own name, and the first failing command ends the script.
    pub line: &'static str,
    pub expect: fn(&Home) -> String,
}

const CC: (&str, &str) = ("cc", "gcc");
/// The text contains this word, also as part of others.
const LOOKED_FOR: &str = "bel";

/// All commands.
pub const TASKS: &[Task] = &[
    Task {
        name: "cat",
        needs: &[],
        times: 3,
        line: "cat ../../text ../../words > both; cat both ../../old > out",
        expect: |h| [lines(&h.text), lines(&h.words), lines(&h.old)].concat(),
    },
    Task {
        name: "cc",
        needs: &[CC, ("ld", "binutils")],
        times: 1,
        line: "cc -O1 -o sum ../../src/main.c ../../src/sum.c; ./sum > out",
        expect: |h| format!("{}\n", h.sum()),
    },
    Task {
        name: "cd",
        needs: &[],
        times: 2,
        line: "cd ../../tree; for d in *; do cd $d; cd ..; echo $d; done > ../w/$T/out; cd ../w/$T",
        expect: |h| folders(h).iter().map(|f| format!("{f}\n")).collect(),
    },
    Task {
        name: "col",
        needs: &[("col", "bsdextrautils")],
        times: 1,
        line: "col -b < ../../over > out",
        expect: |h| lines(&h.over),
    },
    Task {
        name: "cp",
        needs: &[],
        times: 2,
        line: "cp ../../text copy; cp -r ../../tree .; cat copy tree/*/* > out",
        expect: |h| lines(&h.text) + &contents(h),
    },
    Task {
        name: "cpio",
        needs: &[("cpio", "cpio")],
        times: 1,
        line: "(cd ../../tree; find * -type f | sort | cpio -o -H newc --quiet) > all; cpio -it --quiet < all > out; \
               mkdir x; cd x; cpio -id --quiet < ../all; cat */* >> ../out; cd ..",
        expect: |h| names(h, "") + &contents(h),
    },
    Task {
        name: "date",
        needs: &[],
        times: 2,
        line: "date > now; [ -s now ]; date -u -d @86400 '+%Y-%m-%d %H:%M' > out",
        expect: |_| "1970-01-02 00:00\n".to_owned(),
    },
    Task {
        name: "diff",
        needs: &[("diff", "diffutils")],
        times: 1,
        line: "diff ../../old ../../new > out || [ $? -eq 1 ]",
        expect: |h| {
            let pairs = h.old.iter().zip(&h.new).enumerate().filter(|(_, (a, b))| a != b);
            pairs.map(|(n, (a, b))| format!("{0}c{0}\n< {a}\n---\n> {b}\n", n + 1)).collect()
        },
    },
    Task {
        name: "echo",
        needs: &[],
        times: 4,
        line: "for i in 1 2 3 4 5 6 7 8 9; do echo $i of nine; done > out",
        expect: |_| (1..10).map(|n| format!("{n} of nine\n")).collect(),
    },
    Task {
        name: "ed",
        needs: &[("ed", "ed")],
        times: 1,
        line: "cp ../../text out; printf '%s\\n' 'g/bel/s//LEB/g' w q | ed -s out",
        expect: |h| lines(&h.text).replace(LOOKED_FOR, "LEB"),
    },
    Task {
        name: "expr",
        needs: &[],
        times: 1,
        line: "i=0 s=0; while [ $i -lt 8 ]; do i=`expr $i + 1`; s=`expr $s + $i \\* $i`; done; echo $s > out",
        expect: |_| format!("{}\n", (1..=8).map(|n| n * n).sum::<u32>()),
    },
    Task {
        name: "find",
        needs: &[("find", "findutils")],
        times: 1,
        line: "find ../../tree -type f -name 'f[0-9]' | sort > out",
        expect: |h| names(h, "../../tree/"),
    },
    Task {
        name: "grep",
        needs: &[],
        times: 2,
        line: "grep -n bel ../../text > out; grep -c bel ../../text >> out",
        expect: |h| {
            let found: Vec<_> = h.text.iter().enumerate().filter(|(_, l)| l.contains(LOOKED_FOR)).collect();
            let list: String = found.iter().map(|(n, l)| format!("{}:{l}\n", n + 1)).collect();
            format!("{list}{}\n", found.len())
        },
    },
    Task {
        name: "ls",
        needs: &[],
        times: 3,
        line: "ls -l ../../tree > long; [ -s long ]; ls ../../tree/* > out",
        expect: |h| {
            let of = |folder: &String| {
                let files = h.tree.iter().filter_map(|(name, _)| name.strip_prefix(folder)?.strip_prefix('/'));
                format!("../../tree/{folder}:\n{}", files.map(|f| format!("{f}\n")).collect::<String>())
            };
            folders(h).iter().map(of).collect::<Vec<_>>().join("\n")
        },
    },
    Task {
        name: "make",
        needs: &[CC, ("ld", "binutils"), ("make", "make")],
        times: 1,
        line: "cp ../../src/* .; make -s; make -s; ./sum > out",
        expect: |h| format!("{}\n", h.sum()),
    },
    Task {
        name: "mkdir",
        needs: &[],
        times: 2,
        line: "mkdir -p a/b/c d; rmdir a/b/c; ls -R a d > out",
        expect: |_| "a:\nb\n\na/b:\n\nd:\n".to_owned(),
    },
    Task {
        name: "mv",
        needs: &[],
        times: 2,
        line: "cp ../../text one; mv one two; [ ! -e one ]; mv two out",
        expect: |h| lines(&h.text),
    },
    Task {
        name: "nroff",
        needs: &[("nroff", "groff-base")],
        times: 1,
        line: "nroff -Tascii ../../paper | grep . > out",
        expect: |h| lines(&h.set()),
    },
    Task {
        name: "pr",
        needs: &[],
        times: 1,
        line: "pr -t -n ../../old > out",
        expect: |h| h.old.iter().enumerate().map(|(n, l)| format!("{:>5}\t{l}\n", n + 1)).collect(),
    },
    Task {
        name: "ps",
        needs: &[("ps", "procps")],
        times: 1,
        line: "ps -e > all; [ -s all ]; [ `ps -o pid= -p $$` -eq $$ ]; echo found > out",
        expect: |_| "found\n".to_owned(),
    },
    Task {
        name: "rm",
        needs: &[],
        times: 2,
        line: "cp -r ../../tree .; rm -r tree/*/f[1-9]; ls tree/* > out; rm -r tree; [ ! -e tree ]",
        expect: |h| folders(h).iter().map(|f| format!("tree/{f}:\nf0\n")).collect::<Vec<_>>().join("\n"),
    },
    Task { name: "sh", needs: &[], times: 2, line: "sh ../../bin/fibonacci 24 > out", expect: |_| fibonacci(24) },
    Task {
        name: "spell",
        needs: &[],
        times: 1,
        line: "tr -cs a-z '\\n' < ../../text | sort -u | comm -23 - ../../words > out",
        expect: |h| {
            let mut used: Vec<&str> = h.text.iter().flat_map(|l| l.split(' ')).collect();
            used.sort_unstable();
            used.dedup();
            used.retain(|word| h.words.binary_search_by(|w| w.as_str().cmp(word)).is_err());
            used.iter().map(|w| format!("{w}\n")).collect()
        },
    },
    Task {
        name: "test",
        needs: &[],
        times: 2,
        line: "[ -f ../../text ]; [ -d ../../tree ]; /usr/bin/test 3 -lt 12; /usr/bin/test a != b; echo passed > out",
        expect: |_| "passed\n".to_owned(),
    },
    Task {
        name: "time",
        needs: &[],
        times: 1,
        line: "../../bin/fibonacci 12 > out; times > taken; [ -s taken ]",
        expect: |_| fibonacci(12),
    },
    Task {
        name: "touch",
        needs: &[],
        times: 2,
        line: "touch one two; [ ! -s one ]; touch -d '2001-02-03 04:05:06' two; date -r two '+%F %T' > out",
        expect: |_| "2001-02-03 04:05:06\n".to_owned(),
    },
    Task {
        name: "wc",
        needs: &[],
        times: 2,
        line: "(wc -l; wc -w < ../../text; wc -c < ../../text) < ../../text > out",
        expect: |h| {
            let words: usize = h.text.iter().map(|l| l.split(' ').count()).sum();
            format!("{}\n{words}\n{}\n", h.text.len(), lines(&h.text).len())
        },
    },
    Task {
        name: "who",
        needs: &[],
        times: 1,
        line: "who ../../utmp | cut -d' ' -f1 > out",
        expect: |_| LOGGED_IN.iter().map(|u| format!("{u}\n")).collect(),
    },
];

/// Programs that commands use besides the ones that they are named after and need: every system has them.
pub const ALWAYS: &str =
    "sh cat cp mkdir rmdir date echo printf expr sort grep ls mv pr rm tr comm test touch wc who cut";

fn folders(home: &Home) -> Vec<String> {
    let mut folders: Vec<String> =
        home.tree.iter().filter_map(|(n, _)| Some(n.split_once('/')?.0.to_owned())).collect();
    folders.dedup();
    folders
}

fn names(home: &Home, before: &str) -> String {
    home.tree.iter().map(|(name, _)| format!("{before}{name}\n")).collect()
}

fn contents(home: &Home) -> String {
    home.tree.iter().map(|(_, contents)| contents.as_str()).collect()
}

fn fibonacci(count: usize) -> String {
    let numbers = std::iter::successors(Some((0u64, 1u64)), |(a, b)| Some((*b, a + b)));
    numbers.take(count).map(|(a, _)| format!("{a}\n")).collect()
}
