//! The folder where commits become kernels: sources are checked out from the user's objects and built one after the other in a
//! single build folder.
//!
//! ```text
//! CACHE/git/KEY/repo/      a separate index over the objects of the user's repository
//! CACHE/git/KEY/tree/      the sources of the current commit
//! CACHE/git/KEY/build/     make's output; kept between commits, so that only changes are rebuilt
//! CACHE/git/KEY/building   exists while make runs
//! CACHE/git/KEY/lock       held by the process that builds here, and by its children
//! ```
//! Invariant: nothing is written to the user's repository, and no kernel is built from the remains of a killed build.

use std::cell::RefCell;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::make::{Arguments, Make, image};
use super::step::{BuildStep, configure, made, reason};
use super::{Recipe, SourceTree, complaint, git, short};
use bigiron_archive::error::doing;
use bigiron_archive::{Kernel, KernelError, KernelSpec, Store, hash};
use bigiron_model::folder_files::{self, Access};
use bigiron_model::refusal::Refusal;

/// Room for sources and build output, as a multiple of the sources' bytes.
const ROOM: f64 = 1.5;
/// As for a study's folder: a child that is being started also holds the lock until it executes its program.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// How a build ended.
#[derive(Debug)]
pub enum BuildEnd {
    Kernel {
        kernel: Box<Kernel>,
        /// Duration of make in seconds.
        seconds: f64,
    },
    Failed {
        why: String,
        seconds: f64,
    },
    Interrupted,
}

/// The result of configuring a tree.
#[derive(Debug)]
pub enum ConfigEnd {
    /// The `.config`.
    Text(String),
    /// Why there is no configuration.
    Failed(String),
    Interrupted,
}

/// The folder in which a tree's commits are built, locked by this process.
pub struct Workspace {
    dir: PathBuf,
    lock: File,
    /// The commit whose sources this process has checked out.
    checked_out: RefCell<String>,
}

impl Workspace {
    /// Opens the workspace of `tree` below `cache`.
    ///
    /// # Errors
    /// If another process holds it, or there is too little room.
    pub fn open(store: &Store, tree: &SourceTree, note: &dyn Fn(&str)) -> anyhow::Result<Workspace> {
        let objects = tree.objects()?;
        let key = &hash::of_bytes(objects.as_os_str().as_encoded_bytes())[..SHORT_KEY];
        let dir = store.dir().join("git").join(key);
        let lock = take(&dir, tree.dir(), note)?;
        let workspace = Workspace { dir, lock, checked_out: RefCell::default() };
        workspace.prepare(tree, &objects)?;
        Ok(workspace)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn prepare(&self, tree: &SourceTree, objects: &Path) -> anyhow::Result<()> {
        let (repo, sources) = (self.at("repo"), self.at("tree"));
        if !repo.join("HEAD").is_file() {
            discard(&repo)?;
            discard(&sources)?;
            let format = format!("--object-format={}", tree.format()?);
            let made = git(&self.dir, ["init", "-q", "--bare", "--template=", &format, "repo"])?;
            ensure!(made.status.success(), "Cannot create `{}`: {}", repo.display(), complaint(&made));
        }
        let alternates = repo.join("objects/info/alternates");
        fs::create_dir_all(repo.join("objects/info"))?;
        fs::write(&alternates, [objects.as_os_str().as_encoded_bytes(), b"\n"].concat())
            .with_context(|| format!("Cannot write `{}`", alternates.display()))?;
        fs::create_dir_all(&sources)?;
        if self.at("building").exists() {
            // A half-written object file may be newer than its source.
            discard(&self.at("build"))?;
            fs::remove_file(self.at("building"))?;
        }
        Ok(())
    }

    /// Refuses early if sources and build output do not fit.
    fn room(&self, commit: &str, store: &Store) -> anyhow::Result<()> {
        if self.at("build").exists() {
            return Ok(());
        }
        let list = self.git(&["ls-tree", "-r", "-l", "--full-tree", commit])?;
        let bytes = |line: &str| line.split('\t').next()?.split_whitespace().last()?.parse::<u64>().ok();
        let all: u64 = list.lines().filter_map(bytes).sum();
        Ok(store.needs((all as f64 * ROOM) as u64)?)
    }

    fn git(&self, args: &[&str]) -> anyhow::Result<String> {
        let (repo, sources) = (self.at("repo"), self.at("tree"));
        let mut all: Vec<&std::ffi::OsStr> = vec!["--git-dir".as_ref(), repo.as_ref()];
        all.extend(["--work-tree".as_ref(), sources.as_os_str()]);
        // The user's git settings are for the user's own trees: none may change a byte of the sources.
        for setting in
            ["core.autocrlf=false", "core.bare=false", "core.hooksPath=/dev/null", "core.attributesFile=/dev/null"]
        {
            all.extend(["-c", setting].map(std::ffi::OsStr::new));
        }
        all.extend(args.iter().map(|a| std::ffi::OsStr::new(*a)));
        let output = git(&sources, all)?;
        let said = complaint(&output);
        ensure!(output.status.success(), "`git {}` failed in `{}`: {said}", args[0], sources.display());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Checks out the sources of `commit`; unchanged files keep their times.
    fn check_out(&self, commit: &str) -> anyhow::Result<()> {
        match fs::remove_file(self.at("repo/index.lock")) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e.into()),
            _ => {}
        }
        // This also repairs what a killed checkout left, judged by the files' times and sizes.
        self.git(&["read-tree", "--reset", "-u", commit])?;
        self.git(&["clean", "-ffdxq"])?;
        Ok(())
    }

    /// Builds a kernel from `commit`, or takes it from the cache; the output goes to the file `log`.
    ///
    /// # Errors
    /// If the cause is not the commit: a full disk, a repository that cannot be read.
    pub fn build(
        &self,
        store: &Store,
        commit: &str,
        recipe: &Recipe,
        log: &Path,
        cancel: &AtomicBool,
        note: &dyn Fn(&str),
    ) -> anyhow::Result<BuildEnd> {
        let name = recipe.name(commit);
        if let Some(kernel) = cached(store, &name)? {
            return Ok(BuildEnd::Kernel { kernel: Box::new(kernel), seconds: 0.0 });
        }
        self.room(commit, store)?;
        let begun = Instant::now();
        let ended = self.making(commit, log, &recipe.arguments, cancel, |make, file| {
            // The image of an earlier commit must not pass for this one's.
            discard(&image(make.build))?;
            Ok(match configure(make, recipe, file)? {
                BuildStep::Done => made(make.run(&["bzImage"], file)?),
                other => other,
            })
        })?;
        let build = self.at("build");
        let seconds = begun.elapsed().as_secs_f64();
        let why = match ended {
            BuildStep::Interrupted => return Ok(BuildEnd::Interrupted),
            BuildStep::Failed(Some(why)) => Some(why),
            BuildStep::Failed(None) => Some(reason(log)?),
            BuildStep::Done if !image(&build).is_file() => Some("make built no arch/x86/boot/bzImage".to_owned()),
            BuildStep::Done => None,
        };
        if let Some(why) = why {
            return Ok(BuildEnd::Failed { why, seconds });
        }
        match store.add(&name, &KernelSpec::BuildTree(build), None, note) {
            Ok(_) => {}
            Err(e @ (KernelError::Image { .. } | KernelError::BuildTree { .. } | KernelError::OtherRelease { .. })) => {
                return Ok(BuildEnd::Failed { why: e.to_string(), seconds });
            }
            Err(e) => return Err(e.into()),
        }
        let kernel = cached(store, &name)?.context("The kernel that was built is not in the cache")?;
        Ok(BuildEnd::Kernel { kernel: Box::new(kernel), seconds })
    }

    /// Runs the Kconfig of `commit` on the recipe's configuration; the output goes to the file `log`.
    ///
    /// # Errors
    /// If the cause is not the configuration: a full disk, a repository that cannot be read.
    pub fn configure(
        &self,
        store: &Store,
        commit: &str,
        recipe: &Recipe,
        log: &Path,
        cancel: &AtomicBool,
    ) -> anyhow::Result<ConfigEnd> {
        self.room(commit, store)?;
        let ended = self.making(commit, log, &recipe.arguments, cancel, |make, file| configure(make, recipe, file))?;
        Ok(match ended {
            BuildStep::Interrupted => ConfigEnd::Interrupted,
            BuildStep::Failed(Some(why)) => ConfigEnd::Failed(why),
            BuildStep::Failed(None) => ConfigEnd::Failed(reason(log)?),
            BuildStep::Done => ConfigEnd::Text(fs::read_to_string(self.at("build").join(".config"))?),
        })
    }

    /// Runs `work` with make in the sources of `commit`.
    fn making(
        &self,
        commit: &str,
        log: &Path,
        arguments: &Arguments,
        cancel: &AtomicBool,
        work: impl FnOnce(&Make<'_>, &File) -> anyhow::Result<BuildStep>,
    ) -> anyhow::Result<BuildStep> {
        if *self.checked_out.borrow() != commit {
            self.checked_out.borrow_mut().clear();
            self.check_out(commit)?;
            commit.clone_into(&mut self.checked_out.borrow_mut());
        }
        let build = self.at("build");
        fs::create_dir_all(&build)?;
        let file = new_log(log).with_context(|| format!("Cannot write `{}`", log.display()))?;
        let marker = self.at("building");
        File::create(&marker)?.sync_all()?;
        let make = Make { tree: &self.at("tree"), build: &build, arguments, lock: &self.lock, cancel };
        let ended = work(&make, &file).with_context(|| format!("Cannot build {}", short(commit)))?;
        // make has ended and removed its unfinished targets.
        fs::remove_file(&marker)?;
        Ok(ended)
    }

    /// A temporary log file.
    pub fn log(&self) -> PathBuf {
        self.at("log")
    }

    /// Removes sources and build output; the kernels stay in the cache.
    pub fn remove(self) -> io::Result<()> {
        for name in ["build", "tree", "repo", "building", "log"] {
            discard(&self.at(name))?;
        }
        fs::remove_file(self.at("lock"))?;
        fs::remove_dir(&self.dir)
    }
}

/// Characters of a workspace's name.
const SHORT_KEY: usize = 12;

/// The kernel of that name, if it is in the cache and intact.
fn cached(store: &Store, name: &str) -> Result<Option<Kernel>, KernelError> {
    match store.resolve(&KernelSpec::Named(name.to_owned()), &|_| {}) {
        Ok(kernel) => store.get(&kernel.identity).map(Some),
        Err(KernelError::UnknownName { .. }) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Takes the lock of a workspace in which `tree` is built.
pub(crate) fn take(dir: &Path, tree: &Path, note: &dyn Fn(&str)) -> anyhow::Result<File> {
    let path = dir.join("lock");
    let patience = Instant::now() + LOCK_PATIENCE;
    loop {
        fs::create_dir_all(dir).map_err(doing("Cannot create", dir)).map_err(anyhow::Error::new)?;
        let mut file = File::options().create(true).read(true).append(true).open(&path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) if Instant::now() < patience => {
                thread::sleep(Duration::from_millis(20));
                continue;
            }
            Err(TryLockError::WouldBlock) => {
                let holder = fs::read_to_string(&path).unwrap_or_default().trim().to_owned();
                if Path::new("/proc").join(&holder).exists() {
                    let shown = tree.display();
                    return Err(Refusal::new(format!(
                        "`{shown}` is being built by another bigiron (process {holder})"
                    ))
                    .hint("One bigiron at a time builds from a tree")
                    .into());
                }
                note("Waiting for a killed build to end");
                file.lock()?;
            }
            Err(TryLockError::Error(e)) => return Err(KernelError::io("Cannot lock", &path, e).into()),
        }
        // The previous holder may have removed the file.
        let is_this = fs::metadata(&path).is_ok_and(|there| file.metadata().is_ok_and(|f| f.ino() == there.ino()));
        if is_this {
            file.set_len(0)?;
            write!(file, "{}", std::process::id())?;
            return Ok(file);
        }
    }
}

/// Removes a folder or a file that may not be there.
pub(crate) fn discard(path: &Path) -> io::Result<()> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// An empty log in the place of an earlier one, or of a link that came with a bisection's folder.
fn new_log(path: &Path) -> io::Result<File> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return File::create_new(path) };
    folder_files::remove_all(folder, name)?;
    folder_files::open(folder, name, Access::New, 0o666)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::super::config::Base;
    use super::super::history::tests::Repo;
    use super::*;
    use bigiron_archive::fixture::bzimage;

    /// A substitute for the kernel's Makefile: options are set as requested except those in the file `lacks`, the image is the
    /// file `image`, and with a file `broken` there is none. A file in the build folder records each object that is built.
    const MAKEFILE: &str = "\
tinyconfig:\n\techo CONFIG_TINY=y > $(O)/.config\n\
olddefconfig:\n\tif [ -f lacks ]; then grep -v -f lacks $(O)/.config > $(O)/.new; mv $(O)/.new $(O)/.config; fi\n\
bzImage: $(O)/object\n\tmkdir -p $(O)/arch/x86/boot\n\tcp $< $(O)/arch/x86/boot/bzImage\n\
$(O)/object: image\n\
\t@if [ -f broken ]; then echo 'x.c:1:2: error: no such thing' >&2; exit 1; fi\n\
\tcp $< $@\n\techo made >> $(O)/made\n";

    #[test]
    fn a_log_is_written_through_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let (log, outside) = (dir.path().join("0123.log"), dir.path().join("outside"));
        fs::write(&outside, "precious").unwrap();
        std::os::unix::fs::symlink(&outside, &log).unwrap();
        new_log(&log).unwrap().write_all(b"made").unwrap();
        assert_eq!((fs::read(&log).unwrap(), fs::read(&outside).unwrap()), (b"made".to_vec(), b"precious".to_vec()));
    }

    struct TestBuild {
        repo: Repo,
        store: Store,
        _cache: tempfile::TempDir,
        recipe: Recipe,
    }

    impl TestBuild {
        fn new() -> TestBuild {
            let (repo, cache) = (Repo::new(), tempfile::tempdir().unwrap());
            repo.write("Makefile", MAKEFILE);
            repo.write("Kconfig", "config DEVTMPFS\n\tbool\n");
            repo.commit("image", bzimage("6.9.0"));
            let arguments = Arguments::parse(&["-j1".to_owned()]).unwrap();
            let recipe = Recipe::new(Base::Target("tinyconfig".to_owned()), Vec::new(), arguments);
            TestBuild { repo, store: Store::at(cache.path()).unwrap(), _cache: cache, recipe }
        }

        fn open(&self) -> anyhow::Result<Workspace> {
            Workspace::open(&self.store, &SourceTree::open(self.repo.dir()).unwrap(), &|_| {})
        }

        fn build(&self, at: &Workspace, commit: &str) -> anyhow::Result<BuildEnd> {
            let log = self.store.dir().join("log");
            at.build(&self.store, commit, &self.recipe, &log, &AtomicBool::new(false), &|_| {})
        }
    }

    /// Number of objects built since the folder was created.
    fn made(at: &Workspace) -> usize {
        fs::read_to_string(at.at("build/made")).unwrap_or_default().lines().count()
    }

    fn kernel(done: BuildEnd) -> Kernel {
        match done {
            BuildEnd::Kernel { kernel, .. } => *kernel,
            other => panic!("{other:?}"),
        }
    }

    fn why(done: BuildEnd) -> String {
        match done {
            BuildEnd::Failed { why, .. } => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn commits_become_kernels_and_the_repository_stays_as_it_is() {
        let place = TestBuild::new();
        let one = place.repo.git(&["rev-parse", "HEAD"]);
        let two = place.repo.commit("comment", "nothing");
        let three = place.repo.commit("image", bzimage("6.9.1"));
        place.repo.write("image", "changed and not committed");
        let look = || {
            let mut files = String::new();
            let mut open = vec![place.repo.dir().to_path_buf()];
            while let Some(dir) = open.pop() {
                for entry in fs::read_dir(&dir).unwrap().map(Result::unwrap) {
                    let meta = entry.metadata().unwrap();
                    files += &format!("{} {} {:?}\n", entry.path().display(), meta.len(), meta.modified().unwrap());
                    open.extend(meta.is_dir().then(|| entry.path()));
                }
            }
            files
        };
        let before = look();
        let at = place.open().unwrap();
        let (first, second) = (kernel(place.build(&at, &one).unwrap()), kernel(place.build(&at, &two).unwrap()));
        assert_eq!((first.identity.release.as_str(), made(&at)), ("6.9.0", 1));
        assert_eq!(first.identity.image_sha256, second.identity.image_sha256);
        assert_eq!(first.identity.spec, place.recipe.name(&one));
        let third = kernel(place.build(&at, &three).unwrap());
        assert_eq!((third.identity.release.as_str(), made(&at)), ("6.9.1", 2));
        // From the cache, without make.
        assert_eq!(kernel(place.build(&at, &one).unwrap()).identity, first.identity);
        assert_eq!((made(&at), look()), (2, before));
        let dir = at.dir.clone();
        at.remove().unwrap();
        assert!(!dir.exists() && place.store.get(&first.identity).is_ok());
    }

    #[test]
    fn what_cannot_be_built_says_why() {
        let place = TestBuild::new();
        let broken = place.repo.commit("broken", "");
        place.repo.git(&["rm", "-q", "broken"]);
        place.repo.write("lacks", "CONFIG_DEVTMPFS\nCONFIG_EXT4_FS\n");
        let lacks = place.repo.commit("more", "");
        place.repo.git(&["rm", "-q", "lacks"]);
        let text = place.repo.commit("image", "no image");
        let gone = place.repo.commit("Makefile", "tinyconfig olddefconfig bzImage:\n\ttouch $(O)/.config\n");
        let at = place.open().unwrap();
        assert_eq!(why(place.build(&at, &broken).unwrap()), "x.c:1:2: error: no such thing");
        // No Kconfig of this tree knows EXT4_FS.
        assert!(why(place.build(&at, &lacks).unwrap()).contains("CONFIG_DEVTMPFS cannot be set"));
        assert!(why(place.build(&at, &text).unwrap()).contains("not a usable kernel image"));
        assert!(why(place.build(&at, &gone).unwrap()).contains("built no arch/x86/boot/bzImage"));
        assert!(place.build(&at, "0123456789012345678901234567890123456789").is_err());
        assert!(place.store.list().unwrap().is_empty());
    }

    #[test]
    fn one_works_there_at_a_time_and_what_a_killed_one_left_is_not_built_upon() {
        let place = TestBuild::new();
        let one = place.repo.git(&["rev-parse", "HEAD"]);
        let two = place.repo.commit("image", bzimage("6.9.1"));
        let at = place.open().unwrap();
        let said = place.open().err().unwrap().to_string();
        assert!(said.contains("is being built by another bigiron"), "{said}");
        kernel(place.build(&at, &one).unwrap());
        // The state that kill -9 leaves during a checkout and during make.
        for (name, text) in [("tree/image", "half"), ("tree/left", ""), ("repo/index.lock", ""), ("building", "")] {
            fs::write(at.at(name), text).unwrap();
        }
        fs::write(at.at("build/object"), "half").unwrap();
        let lock = at.at("lock");
        drop(at);
        // A child that another test starts holds the lock, too, until it executes its program.
        File::open(lock).unwrap().lock().unwrap();
        let notes = RefCell::new(Vec::new());
        let tree = SourceTree::open(place.repo.dir()).unwrap();
        let at = Workspace::open(&place.store, &tree, &|text| notes.borrow_mut().push(text.to_owned())).unwrap();
        assert!(!at.at("build").exists() && notes.borrow().is_empty());
        assert_eq!(kernel(place.build(&at, &two).unwrap()).identity.release, "6.9.1");
        assert!(!at.at("tree/left").exists());
        let cancel = AtomicBool::new(true);
        cancel.store(true, Ordering::Relaxed);
        let three = place.repo.commit("image", bzimage("6.9.2"));
        let done = at.build(&place.store, &three, &place.recipe, &at.at("log"), &cancel, &|_| {}).unwrap();
        assert!(matches!(done, BuildEnd::Interrupted) && !at.at("building").exists());
    }
}
