//! The commits between two commits, in an order in which each contains all before it.
//!
//! Invariant: a list is a chain of first parents, each with the good commit among its ancestors, so that "before the change" and
//! "after the change" mean the same for kernels as for places in the list.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{complaint, git};
use bigiron_model::refusal::Refusal;

/// Files that all kernel sources have from which bigiron can build a bootable kernel.
const KERNEL: [&str; 3] = ["Makefile", "Kconfig", "arch/x86/Makefile"];

/// A commit, as shown to users.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Commit {
    /// The full hash.
    pub hash: String,
    pub subject: String,
    /// Name and address.
    pub author: String,
    /// The author date, ISO 8601.
    pub date: String,
    /// Number of commits that it adds to the line: more than one for a merge. Commits that touch none of the given paths count as
    /// well.
    pub joins: u32,
}

/// The user's git repository.
#[derive(Clone, Debug)]
pub struct SourceTree {
    /// The folder, as named on the command line.
    dir: PathBuf,
}

impl SourceTree {
    /// Opens the repository in `dir`.
    ///
    /// # Errors
    /// If the folder does not exist or is not a repository.
    pub fn open(dir: &Path) -> Result<SourceTree, Refusal> {
        let shown = dir.display();
        if !dir.is_dir() {
            return Err(Refusal::new(format!("--git: `{shown}` is not a folder")));
        }
        let tree = SourceTree { dir: dir.to_path_buf() };
        let output = git(dir, ["rev-parse", "--git-dir"])?;
        if output.status.success() {
            return Ok(tree);
        }
        let why = complaint(&output);
        let message = match why.contains("not a git repository") {
            true => format!("--git: `{shown}` is not a git repository"),
            false => format!("--git: `{shown}` cannot be read: {why}"),
        };
        Err(Refusal::new(message).hint("Name a clone of a kernel tree; for a folder of builds use `--kernels DIR`"))
    }

    /// The folder, as named on the command line.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Runs git with `args` and returns its output.
    fn ask(&self, args: &[&str]) -> Result<String, Refusal> {
        let output = git(&self.dir, args)?;
        if !output.status.success() {
            let said = complaint(&output);
            return Err(Refusal::new(format!("`git {}` failed in `{}`: {said}", args[0], self.dir.display())));
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    }

    /// The folder of the objects, absolute.
    pub fn objects(&self) -> Result<PathBuf, Refusal> {
        let path = self.dir.join(self.ask(&["rev-parse", "--git-path", "objects"])?);
        path.canonicalize().map_err(|e| Refusal::new(format!("Cannot find `{}`: {e}", path.display())))
    }

    /// The hash function of object names: `sha1` or `sha256`.
    pub fn format(&self) -> Result<String, Refusal> {
        self.ask(&["rev-parse", "--show-object-format"])
    }

    /// The top of the work tree, if there is one.
    pub fn top(&self) -> Option<PathBuf> {
        self.ask(&["rev-parse", "--show-toplevel"]).ok().filter(|top| !top.is_empty()).map(PathBuf::from)
    }

    /// Resolves a revision to a commit; `option` is the option it was given with.
    ///
    /// # Errors
    /// If there is no such commit, or it has no kernel sources.
    pub fn revision(&self, option: &str, text: &str) -> Result<String, Refusal> {
        let shown = self.dir.display();
        let no = || {
            Refusal::new(format!("--{option}: `{text}` is not a commit of `{shown}`"))
                .hint("Name a tag, a branch or a hash, such as `v6.12`, and make sure that it was fetched")
        };
        if text.is_empty() || text.starts_with('-') {
            return Err(no());
        }
        let hash = self.ask(&["rev-parse", "--verify", "--quiet", &format!("{text}^{{commit}}")]).map_err(|_| no())?;
        for file in KERNEL {
            if self.ask(&["cat-file", "-e", &format!("{hash}:{file}")]).is_err() {
                let message =
                    format!("`{text}` of `{shown}` does not hold kernel sources for x86-64: it has no {file}");
                return Err(Refusal::new(message));
            }
        }
        Ok(hash)
    }

    /// `good`, the commits after it up to `bad` that touch one of `paths` (all if `paths` is empty), and `bad`.
    ///
    /// # Errors
    /// If they are equal, `good` is not an ancestor of `bad`, or no commit between them touches `paths`.
    pub fn between(&self, good: &str, bad: &str, paths: &[String]) -> Result<Vec<Commit>, Refusal> {
        let shown = self.dir.display();
        let (a, b) = (super::short(good), super::short(bad));
        if good == bad {
            return Err(Refusal::new(format!("Good and bad are the same commit, `{a}`; a change lies between two")));
        }
        let is_ancestor = |x: &str, y: &str| {
            git(&self.dir, ["merge-base", "--is-ancestor", x, y]).map(|output| output.status.success())
        };
        if !is_ancestor(good, bad)? {
            let refusal = Refusal::new(format!("Good, `{a}`, is not an ancestor of bad, `{b}`, in `{shown}`"));
            if is_ancestor(bad, good)? {
                return Err(refusal.hint(
                    "Exchange them: a bisection finds a change in either direction, `--good` only names the older side",
                ));
            }
            let base = self.ask(&["merge-base", good, bad]).unwrap_or_default();
            return Err(refusal.hint(match base.is_empty() {
                true => "They have no commit in common; is the clone a shallow one?".to_owned(),
                false => format!("Their merge base is `{}`; it may be the good commit", super::short(&base)),
            }));
        }
        let range = format!("{good}..{bad}");
        let holds_good: HashSet<String> =
            self.ask(&["rev-list", "--ancestry-path", &range])?.lines().map(str::to_owned).collect();
        let chain = self.log(&[&range], &[])?;
        let chain: Vec<Commit> = chain.into_iter().filter(|c| holds_good.contains(&c.hash)).collect();
        let mut inner = if paths.is_empty() {
            chain
        } else {
            let wanted: HashSet<String> = self.log(&[&range], paths)?.into_iter().map(|c| c.hash).collect();
            let (first, last) = (chain.first().cloned(), chain.last().cloned());
            let kept: Vec<Commit> = chain.into_iter().filter(|c| wanted.contains(&c.hash)).collect();
            if kept.is_empty() {
                let of = |c: Option<Commit>| c.map_or_else(String::new, |c| super::short(&c.hash).to_owned());
                return Err(Refusal::new(format!(
                    "No commit from `{}` to `{}` touches {}",
                    of(first),
                    of(last),
                    paths.join(" ")
                ))
                .hint("Paths are as for `git log -- PATH`, relative to the folder given with `--git`"));
            }
            kept
        };
        if inner.last().is_none_or(|last| last.hash != bad) {
            inner.extend(self.log(&["-1", bad], &[])?);
        }
        let mut list = self.log(&["-1", good], &[])?;
        list.append(&mut inner);
        self.count(&range, &mut list)?;
        Ok(list)
    }

    /// Counts the commits that each commit adds to those before it.
    fn count(&self, range: &str, list: &mut [Commit]) -> Result<(), Refusal> {
        let text = self.ask(&["rev-list", "--parents", range])?;
        let mut parents: HashMap<&str, Vec<&str>> = HashMap::new();
        for line in text.lines() {
            let mut hashes = line.split(' ');
            parents.insert(hashes.next().unwrap_or_default(), hashes.collect());
        }
        for commit in list.iter_mut().skip(1) {
            let (mut open, mut joins) = (vec![commit.hash.as_str()], 0);
            while let Some(hash) = open.pop() {
                // Removed, because it belongs to the first commit that contains it.
                if let Some(further) = parents.remove(hash) {
                    joins += 1;
                    open.extend(further);
                }
            }
            commit.joins = joins;
        }
        Ok(())
    }

    /// The first-parent commits, the oldest first.
    fn log(&self, what: &[&str], paths: &[String]) -> Result<Vec<Commit>, Refusal> {
        // The user's `git log` settings must not affect output that a program reads.
        let fixed = ["-c", "log.showSignature=false", "-c", "log.follow=false", "log", "--no-color", "--no-decorate"];
        let form =
            ["--first-parent", "--topo-order", "--reverse", "--format=%H%x1f%s%x1f%an <%ae>%x1f%aI", "--no-patch"];
        let args = fixed.iter().chain(&form).chain(what).copied().chain(["--"]).chain(paths.iter().map(String::as_str));
        let args: Vec<&str> = args.collect();
        let commit = |line: &str| {
            let mut parts = line.split('\x1f').map(str::to_owned);
            Some(Commit {
                hash: parts.next()?,
                subject: parts.next()?,
                author: parts.next()?,
                date: parts.next()?,
                joins: 1,
            })
        };
        let output = git(&self.dir, &args)?;
        if !output.status.success() {
            return Err(Refusal::new(format!("`git log` failed in `{}`: {}", self.dir.display(), complaint(&output))));
        }
        Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(commit).collect())
    }

    /// The files in which a commit differs from its first parent.
    pub fn files(&self, commit: &str) -> Result<Vec<String>, Refusal> {
        let parents = self.ask(&["rev-parse", &format!("{commit}^@")])?;
        let mut args = vec!["diff-tree", "-r", "--root", "--no-commit-id", "--name-only", "-z"];
        args.extend(parents.lines().next());
        args.push(commit);
        Ok(self.ask(&args)?.split('\0').filter(|f| !f.is_empty()).map(str::to_owned).collect())
    }

    /// The text of a file in a commit; `None` if the commit lacks the file.
    pub fn text(&self, commit: &str, file: &str) -> Option<String> {
        self.ask(&["cat-file", "blob", &format!("{commit}:{file}")]).ok()
    }

    /// The lines that match an extended regular expression in those files of a commit whose paths match `glob`: path, number from
    /// 1, text.
    pub fn grep(&self, commit: &str, expression: &str, glob: &str) -> Vec<(String, usize, String)> {
        let pathspec = format!(":(top){glob}");
        let args = ["grep", "--full-name", "--no-color", "-I", "-n", "-E", "-e", expression, commit, "--", &pathspec];
        // git exits with an error if nothing matches.
        let text = self.ask(&args).unwrap_or_default();
        let line = |line: &str| {
            let mut parts = line.strip_prefix(commit)?.strip_prefix(':')?.splitn(3, ':');
            Some((parts.next()?.to_owned(), parts.next()?.parse().ok()?, parts.next()?.to_owned()))
        };
        text.lines().filter_map(line).collect()
    }

    /// The commit of that hash.
    pub fn commit(&self, hash: &str) -> Result<Commit, Refusal> {
        let mut found = self.log(&["-1", hash], &[])?;
        found.pop().ok_or_else(|| Refusal::new(format!("`{hash}` is not a commit of `{}`", self.dir.display())))
    }

    /// The ends of a search among the commits that a merge joins; `None` if it is not a merge.
    pub fn merged(&self, commit: &str) -> Option<(String, String)> {
        let parents = self.ask(&["rev-parse", &format!("{commit}^@")]).ok()?;
        let [first, second] = parents.lines().collect::<Vec<_>>()[..] else { return None };
        let base = self.ask(&["merge-base", first, second]).ok()?;
        Some((base, second.to_owned()))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    /// A repository in a temporary folder.
    pub(crate) struct Repo(pub tempfile::TempDir);

    impl Repo {
        pub(crate) fn new() -> Repo {
            let repo = Repo(tempfile::tempdir().unwrap());
            repo.git(&["init", "-q", "-b", "main", "."]);
            for file in KERNEL {
                repo.write(file, "");
            }
            repo
        }

        pub(crate) fn dir(&self) -> &Path {
            self.0.path()
        }

        pub(crate) fn git(&self, args: &[&str]) -> String {
            let fixed = ["-c", "user.name=A", "-c", "user.email=a@b.test", "-c", "commit.gpgsign=false"];
            let output = git(self.dir(), fixed.iter().chain(args)).unwrap();
            assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        }

        pub(crate) fn write(&self, file: &str, text: impl AsRef<[u8]>) {
            let path = self.dir().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        /// Commits a new text of `file`; returns the hash.
        pub(crate) fn commit(&self, file: &str, text: impl AsRef<[u8]>) -> String {
            self.write(file, &text);
            self.git(&["add", "-A"]);
            let said = String::from_utf8_lossy(text.as_ref()).chars().take(8).collect::<String>().replace('\0', "");
            self.git(&["commit", "-q", "--allow-empty", "-m", &format!("{file}: {said}")]);
            self.git(&["rev-parse", "HEAD"])
        }
    }

    fn hashes(commits: &[Commit]) -> Vec<&str> {
        commits.iter().map(|c| c.hash.as_str()).collect()
    }

    #[test]
    fn a_line_of_first_parents_from_good_to_bad() {
        let repo = Repo::new();
        let one = repo.commit("a", "1");
        let two = repo.commit("mm/b", "2");
        repo.git(&["checkout", "-q", "-b", "side"]);
        let side = repo.commit("mm/c", "3");
        let side_too = repo.commit("mm/c", "4");
        repo.git(&["checkout", "-q", "main"]);
        let three = repo.commit("a", "5");
        repo.git(&["merge", "-q", "--no-ff", "-m", "Merge side", "side"]);
        let merge = repo.git(&["rev-parse", "HEAD"]);
        let last = repo.commit("a", "6");
        let tree = SourceTree::open(repo.dir()).unwrap();
        let list = |good: &str, bad: &str, paths: &[&str]| {
            tree.between(good, bad, &paths.iter().map(|p| (*p).to_owned()).collect::<Vec<_>>())
        };
        let all = list(&one, &last, &[]).unwrap();
        assert_eq!(hashes(&all), [&one, &two, &three, &merge, &last]);
        assert_eq!(all.iter().map(|c| c.joins).collect::<Vec<_>>(), [1, 1, 1, 3, 1]);
        assert_eq!((all[1].subject.as_str(), all[1].author.as_str()), ("mm/b: 2", "A <a@b.test>"));
        // A merge counts as the commits it adds; the bad end stays although it touches other files.
        assert_eq!(hashes(&list(&one, &last, &["mm"]).unwrap()), [&one, &two, &merge, &last]);
        // A commit that does not contain the good commit is not a candidate.
        assert_eq!(hashes(&list(&side, &last, &[]).unwrap()), [&side, &merge, &last]);
        assert_eq!(tree.merged(&merge), Some((two.clone(), side_too.clone())));
        assert_eq!(tree.merged(&last), None);
        assert_eq!(tree.files(&merge).unwrap(), ["mm/c"]);
        assert_eq!(tree.files(&one).unwrap().len(), 4);
        assert_eq!((tree.text(&two, "mm/b").as_deref(), tree.text(&two, "x")), (Some("2"), None));

        let said = |good: &str, bad: &str, paths: &[&str]| {
            let refusal = list(good, bad, paths).unwrap_err();
            format!("{} / {}", refusal.message, refusal.hint.unwrap_or_default())
        };
        assert!(said(&one, &one, &[]).contains("the same commit"));
        assert!(said(&last, &one, &[]).contains("Exchange them"));
        assert!(said(&three, &side, &[]).contains(&format!("Their merge base is `{}`", super::super::short(&two))));
        assert!(said(&one, &last, &["fs", "net"]).contains("touches fs net"));
        assert_eq!(tree.revision("good", "side").unwrap(), side_too);
        assert!(tree.revision("good", "v9").unwrap_err().message.contains("--good: `v9` is not a commit"));
    }

    #[test]
    fn what_is_no_kernel_tree_is_refused() {
        let plain = tempfile::tempdir().unwrap();
        let why = |dir: &Path| SourceTree::open(dir).unwrap_err().message;
        assert!(why(plain.path()).contains("is not a git repository"));
        assert!(why(&plain.path().join("x")).contains("is not a folder"));
        let repo = Repo::new();
        fs::remove_file(repo.dir().join("Kconfig")).unwrap();
        let one = repo.commit("a", "1");
        let tree = SourceTree::open(repo.dir()).unwrap();
        assert!(tree.revision("bad", &one).unwrap_err().message.contains("it has no Kconfig"));
        assert!(tree.top().is_some() && tree.objects().unwrap().is_dir());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(6))]
        #[test]
        fn every_commit_of_a_list_holds_those_before_it(steps in proptest::collection::vec(0..4u8, 3..9)) {
            let repo = Repo::new();
            let good = repo.commit("a", "first");
            for (n, step) in steps.iter().enumerate() {
                match step {
                    0 | 1 => {
                        repo.commit(&format!("d{step}/x"), n.to_string());
                    }
                    _ => {
                        let from = if *step == 2 { &good } else { "HEAD" };
                        repo.git(&["checkout", "-q", "--detach", from]);
                        let side = repo.commit(&format!("s{n}"), "side");
                        repo.git(&["checkout", "-q", "main"]);
                        repo.git(&["merge", "-q", "--no-ff", "-m", "Merge", &side]);
                    }
                }
            }
            let bad = repo.git(&["rev-parse", "HEAD"]);
            let tree = SourceTree::open(repo.dir()).unwrap();
            let all = tree.between(&good, &bad, &[]).unwrap();
            prop_assert_eq!(all.len(), steps.len() + 1);
            let joined: u32 = all[1..].iter().map(|c| c.joins).sum();
            let count: u32 = repo.git(&["rev-list", "--count", &format!("{good}..{bad}")]).parse().unwrap();
            prop_assert_eq!(joined, count);
            for pair in all.windows(2) {
                repo.git(&["merge-base", "--is-ancestor", &pair[0].hash, &pair[1].hash]);
            }
            if let Ok(some) = tree.between(&good, &bad, &["d0".to_owned()]) {
                let at = |c: &Commit| all.iter().position(|a| a.hash == c.hash).unwrap();
                prop_assert!(some.windows(2).all(|w| at(&w[0]) < at(&w[1])));
                let joined: u32 = some[1..].iter().map(|c| c.joins).sum();
                prop_assert_eq!(joined, count);
            }
        }
    }
}
