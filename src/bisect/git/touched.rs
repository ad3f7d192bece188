//! The facts reported about the commits at which the change was found: the files that each touches, and which of the functions
//! that cost more are in them.
//!
//! Invariant: they are kept in the bisection's folder, so that a report can be regenerated without the tree.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::SourceTree;
use crate::bisect::folder::{self, BisectError};

const FILE: &str = "touched.toml";

/// Maximum number of commits that are examined: nobody reads the files of a longer range.
const COMMITS: usize = 16;

/// Maximum number of files of a commit that are searched for functions.
const SEARCHED: usize = 200;

/// The known facts about the place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Touched {
    /// The place: the last commit before it and the first after it.
    pub good: String,
    pub bad: String,
    /// Number of functions whose cost was compared between the ends; `None` without a profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub functions: Option<u32>,
    pub commits: Vec<OfCommit>,
}

/// The facts about one commit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfCommit {
    pub commit: String,
    pub files: Vec<String>,
    /// For a merge: the merge base of the joined branch, and its last commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged: Option<(String, String)>,
    /// Functions defined in its files whose cost changed, the largest change first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<Function>,
}

/// A function whose cost changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Function {
    pub name: String,
    /// Additional nanoseconds per operation in the bad kernel.
    pub more_ns: f64,
    /// The file that defines it.
    #[serde(default)]
    pub file: String,
}

impl Touched {
    /// Examines `commits`, in their order after `good`; `functions` are those whose cost changed, if known.
    pub fn of(tree: &SourceTree, good: &str, commits: &[&str], functions: Option<&[Function]>) -> Touched {
        let one = |commit: &&str| {
            let files = tree.files(commit).unwrap_or_default();
            let texts: Vec<(&String, String)> = files
                .iter()
                .filter(|file| [".c", ".h", ".S"].iter().any(|end| file.ends_with(end)))
                .take(SEARCHED)
                .filter_map(|file| Some((file, tree.text(commit, file)?)))
                .collect();
            let place = |function: &Function| {
                let (file, _) = texts.iter().find(|(_, text)| defines(text, &function.name))?;
                Some(Function { file: (*file).clone(), ..function.clone() })
            };
            OfCommit {
                commit: (*commit).to_owned(),
                merged: tree.merged(commit),
                functions: functions.unwrap_or_default().iter().filter_map(place).collect(),
                files,
            }
        };
        Touched {
            good: good.to_owned(),
            bad: commits.last().copied().unwrap_or_default().to_owned(),
            functions: functions.map(|f| f.len() as u32),
            commits: commits.iter().rev().take(COMMITS).rev().map(one).collect(),
        }
    }

    /// Writes the facts to the bisection's folder `dir`.
    pub fn write(&self, dir: &Path) -> Result<(), BisectError> {
        folder::write(dir, FILE, self)
    }

    /// Reads the facts in `dir`.
    pub fn read(dir: &Path) -> Result<Option<Touched>, BisectError> {
        folder::read(dir, FILE)
    }
}

/// Whether C or assembly text defines a function, judged by the style of kernel sources: the name stands on an unindented line,
/// before its arguments, and no statement ends there. A macro defines a system call under its own name; another macro defines an
/// assembly function.
fn defines(text: &str, function: &str) -> bool {
    // The compiler derives the names of its variants from the function's.
    let name = function.split('.').next().unwrap_or(function);
    if name.is_empty() {
        return false;
    }
    let call = ["__x64_sys_", "__do_sys_", "__se_sys_", "__ia32_sys_"].iter().find_map(|p| name.strip_prefix(p));
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let named = |line: &str| {
        line.match_indices(name).any(|(at, _)| {
            let (before, after) = (&line[..at], &line[at + name.len()..]);
            !before.ends_with(is_part) && after.starts_with('(') && !before.contains(['(', '=', '#', '*', '"']) || {
                // The function may return a pointer.
                before.ends_with('*') && after.starts_with('(') && !before.contains(['(', '=', '#', '"', '/'])
            }
        })
    };
    text.lines().any(|line| {
        let macro_of = |macros: &str, name: &str| {
            line.strip_prefix(macros).is_some_and(|rest| {
                let inner = rest.split_once('(').map_or("", |(_, inner)| inner);
                inner.split([',', ')']).next().is_some_and(|first| first.trim() == name)
            })
        };
        if call.is_some_and(|call| macro_of("SYSCALL_DEFINE", call) || macro_of("COMPAT_SYSCALL_DEFINE", call)) {
            return true;
        }
        macro_of("SYM_", name) || (!line.starts_with([' ', '\t']) && !line.trim_end().ends_with(';') && named(line))
    })
}

#[cfg(test)]
mod tests {
    use super::super::history::tests::Repo;
    use super::*;

    const C: &str = "\
/* a comment on used(x) */
#define wrapped(x) other(x)
static int declared(int a);
static noinline void account(int tgid)
{
\tused(tgid);
}
struct page *grab(struct list *l,
\t\t  int n)
{
}
SYSCALL_DEFINE1(getpid, int, x)
{
}
SYSCALL_DEFINE0(fork)
SYM_CODE_START(entry_SYSCALL_64)
";

    #[test]
    fn definitions_are_told_from_calls() {
        for name in ["account", "account.constprop.0", "grab", "__do_sys_getpid", "__x64_sys_fork", "entry_SYSCALL_64"]
        {
            assert!(defines(C, name), "{name}");
        }
        for name in ["used", "declared", "wrapped", "count", "__do_sys_getppid", "tgid", "", "other"] {
            assert!(!defines(C, name), "{name}");
        }
    }

    #[test]
    fn it_is_read_as_it_was_written() {
        let repo = Repo::new();
        let one = repo.commit("a.c", "int a;\n");
        let two = repo.commit("kernel/sys.c", C);
        let tree = SourceTree::open(repo.dir()).unwrap();
        let function = |name: &str| Function { name: name.to_owned(), more_ns: 12.5, file: String::new() };
        let touched = Touched::of(&tree, &one, &[&two], Some(&[function("account"), function("do_syscall_64")]));
        assert_eq!(touched.commits[0].files, ["kernel/sys.c"]);
        let found: Vec<&str> = touched.commits[0].functions.iter().map(|f| f.name.as_str()).collect();
        assert_eq!((found, touched.functions), (vec!["account"], Some(2)));
        assert_eq!(touched.commits[0].functions[0].file, "kernel/sys.c");
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Touched::read(dir.path()).unwrap(), None);
        touched.write(dir.path()).unwrap();
        assert_eq!(Touched::read(dir.path()).unwrap(), Some(touched));
    }
}
