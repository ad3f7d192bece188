//! A build tree whose kernel can be linked again.
//!
//! Invariant: the objects are those of the tree's image, and its sources have not changed since make compiled them; otherwise images linked from the
//! objects would belong to neither the image nor the sources.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use bigiron_model::refusal::Refusal;

use super::thin;

/// The compiled objects' list, which the kernel's own link uses.
pub(super) const ARCHIVE: &str = "vmlinux.a";
/// The linker script, as make wrote it.
pub(super) const SCRIPT: &str = "arch/x86/kernel/vmlinux.lds";
/// The makefile of the link alone, which Linux has since 6.1.
const LINK: &str = "scripts/Makefile.vmlinux";
pub(super) const IMAGE: &str = "arch/x86/boot/bzImage";

/// A build tree, checked.
#[derive(Debug)]
pub(super) struct BuildTree {
    /// The folder in which make built the kernel, without links on the way.
    pub dir: PathBuf,
    /// The folder of the sources: another one, if the kernel was built with `make O=`.
    pub source: PathBuf,
    /// The objects of the link, relative to `dir`.
    pub objects: Vec<String>,
    /// Variables for make that name the tools with which it was built.
    pub tools: Vec<String>,
    /// Whether the kernel is linked from one object (link-time optimisation, indirect-branch tracking), in which the objects' order is settled.
    pub is_one_object: bool,
}

impl BuildTree {
    /// Opens and checks the tree `named` by the user.
    ///
    /// # Errors
    /// What make has to do there first, or why this tree cannot be linked again.
    pub(super) fn open(named: &Path) -> Result<BuildTree, Refusal> {
        let refuse =
            |why: String| Refusal::new(format!("The kernel in `{}` cannot be linked again: {why}", named.display()));
        let make =
            |why: String| refuse(why).hint("Run `make` there with the same options as before, then repeat the command");
        let dir = named.canonicalize().map_err(|e| refuse(e.to_string()))?;
        let source = if dir.join("Kbuild").is_file() { Ok(dir.clone()) } else { dir.join("source").canonicalize() };
        let source = source.map_err(|e| {
            refuse(format!(
                "its sources are not found: the folder has no `Kbuild`, and its link `source`, which `make O=` creates, leads nowhere ({e})"
            ))
        })?;
        if !source.join(LINK).is_file() {
            return Err(refuse(format!("its sources have no `{LINK}`, which Linux has since 6.1")));
        }
        let members = thin::members(&dir.join(ARCHIVE));
        let objects =
            members.map_err(|e| make(format!("the list of its objects, `{ARCHIVE}`, cannot be read: {e}")))?;
        if objects.is_empty() || !dir.join(SCRIPT).is_file() {
            return Err(make(format!("it has no objects, or no `{SCRIPT}`")));
        }
        let config =
            fs::read_to_string(dir.join(".config")).map_err(|e| make(format!("`.config` cannot be read: {e}")))?;
        let tree = BuildTree {
            tools: tools(&dir).map_err(&make)?,
            is_one_object: ["CONFIG_LTO_CLANG=y", "CONFIG_X86_KERNEL_IBT=y"]
                .iter()
                .any(|option| config.lines().any(|line| line == *option)),
            dir,
            source,
            objects,
        };
        tree.check_times().map_err(make)?;
        Ok(tree)
    }

    /// Checks that nothing is newer than what make made of it.
    fn check_times(&self) -> Result<(), String> {
        let time = |name: &str| modified(&self.dir.join(name)).ok_or_else(|| format!("`{name}` is missing"));
        // Newer first: each is made from those after it.
        for (made, from) in
            [(IMAGE, "vmlinux"), ("vmlinux", ARCHIVE), ("vmlinux", SCRIPT), ("include/config/auto.conf", ".config")]
        {
            if time(from)? > time(made)? {
                return Err(format!("`{from}` is newer than `{made}`, which make builds from it"));
            }
        }
        let linked = time("vmlinux")?;
        let mut times = Times { dir: &self.dir, known: HashMap::new() };
        for object in &self.objects {
            let at = time(object)?;
            if at > linked {
                return Err(format!("`{object}` is newer than `vmlinux`, which is linked from it"));
            }
            let rules = fs::read_to_string(self.dir.join(rules_of(object))).unwrap_or_default();
            for (name, may_lack) in inputs(&rules) {
                match times.of(name) {
                    Some(changed) if changed > at => {
                        return Err(format!("`{name}` has changed since make compiled `{object}` from it"));
                    }
                    None if !may_lack => return Err(format!("`{name}`, from which make compiled `{object}`, is gone")),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// When files changed, each looked up once: thousands of objects share their headers.
struct Times<'a> {
    dir: &'a Path,
    known: HashMap<String, Option<SystemTime>>,
}

impl Times<'_> {
    fn of(&mut self, name: &str) -> Option<SystemTime> {
        if let Some(known) = self.known.get(name) {
            return *known;
        }
        let found = modified(&self.dir.join(name));
        self.known.insert(name.to_owned(), found);
        found
    }
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|meta| meta.modified()).ok()
}

/// The file in which make keeps an object's command and inputs: `kernel/.fork.o.cmd`.
fn rules_of(object: &str) -> String {
    let (folder, name) = object.rsplit_once('/').map_or(("", object), |(folder, name)| (folder, name));
    let slash = if folder.is_empty() { "" } else { "/" };
    format!("{folder}{slash}.{name}.cmd")
}

/// The inputs in such a file, and whether each may be missing: options that are off have no file.
fn inputs(rules: &str) -> impl Iterator<Item = (&str, bool)> {
    let source = rules.lines().filter(|line| line.starts_with("source_")).filter_map(|line| line.split_once(":= "));
    let depends = rules.lines().skip_while(|line| !line.starts_with("deps_")).skip(1);
    let depends =
        depends.take_while(|line| line.starts_with(' ')).map(|line| line.trim().trim_end_matches('\\').trim());
    let depends = depends.filter(|name| !name.is_empty()).map(|name| {
        match name.strip_prefix("$(wildcard ").and_then(|name| name.strip_suffix(')')) {
            Some(option) => (option, true),
            None => (name, false),
        }
    });
    source.map(|(_, name)| (name.trim(), false)).chain(depends)
}

/// The tools with which the tree was built, from the commands that make keeps.
fn tools(dir: &Path) -> Result<Vec<String>, String> {
    let read = |name: &str| {
        fs::read_to_string(dir.join(name)).map_err(|e| format!("make's command file `{name}` cannot be read: {e}"))
    };
    let first =
        |text: &str| text.lines().next().and_then(|line| line.split_once(":= ")).map(|(_, command)| command.to_owned());
    let compile =
        first(&read("init/.main.o.cmd")?).ok_or("make's command file `init/.main.o.cmd` contains no command")?;
    let link = first(&read(".vmlinux.cmd")?).ok_or("make's command file `.vmlinux.cmd` contains no command")?;
    let cc = compile.split(" -Wp,").next().unwrap_or_default().trim();
    let ld = link.split('"').nth(1).unwrap_or_default().trim();
    if cc.is_empty() || ld.is_empty() {
        return Err("make's command files name no compiler or no linker".to_owned());
    }
    // Make runs Kconfig again if it gets another name of the architecture than the first time.
    let notes = fs::read_to_string(dir.join("include/config/auto.conf.cmd")).unwrap_or_default();
    let arch = notes.lines().find_map(|line| line.strip_prefix("ifneq \"$(ARCH)\" \"")?.strip_suffix('"'));
    let arch = arch.filter(|name| ["x86", "x86_64", "i386"].contains(name)).map(|name| format!("ARCH={name}"));
    // One variable names all tools of LLVM, with their version.
    let version = |tool: &str, name: &str| tool.rsplit_once(name).map(|(_, version)| version.to_owned());
    let tools = match (version(cc, "clang"), version(ld, "ld.lld")) {
        (Some(of_cc), Some(of_ld)) if of_cc == of_ld => {
            vec![
                format!("LLVM={}", if of_cc.is_empty() { "1" } else { &of_cc }),
                format!("CC={cc}"),
                format!("LD={ld}"),
            ]
        }
        _ => vec![format!("CC={cc}"), format!("LD={ld}")],
    };
    Ok(tools.into_iter().chain(arch).collect())
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::*;

    const RULES: &str = "savedcmd_init/main.o := gcc-12 -Wp,-MMD,init/.main.o.d -nostdinc -c -o init/main.o ../linux/init/main.c\n\n\
        source_init/main.o := ../linux/init/main.c\n\ndeps_init/main.o := \\\n    $(wildcard include/config/SMP) \\\n  ../linux/include/a.h \\\n\n\
        init/main.o: $(deps_init/main.o)\n\n$(deps_init/main.o):\n";

    /// Sources `linux` and their build tree `build` below `dir`, with all files of one age.
    pub(in super::super) fn place(dir: &Path) -> PathBuf {
        let write = |name: &str, bytes: &[u8]| {
            let path = dir.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, bytes).unwrap();
        };
        write("linux/scripts/Makefile.vmlinux", b"");
        write("linux/init/main.c", b"int main;");
        write("linux/include/a.h", b"");
        fs::create_dir_all(dir.join("build")).unwrap();
        std::os::unix::fs::symlink("../linux", dir.join("build/source")).unwrap();
        write("build/.config", b"CONFIG_SMP=y\n");
        write("build/init/main.o", b"object");
        write("build/init/.main.o.cmd", RULES.as_bytes());
        write(
            "build/.vmlinux.cmd",
            b"savedcmd_vmlinux := scripts/link-vmlinux.sh \"ld.bfd\" \"-m elf_x86_64\"; true\n",
        );
        write("build/vmlinux.a", &thin::fixture(&["init/main.o"]));
        write(
            "build/arch/x86/kernel/vmlinux.lds",
            b".text : { *(.text) } .rodata : { *(.rodata) } .data : { *(.data) } .bss : { *(.bss) }",
        );
        write("build/include/config/auto.conf", b"");
        write("build/vmlinux", b"");
        write("build/arch/x86/boot/bzImage", b"");
        dir.join("build")
    }

    fn touch(path: &Path) {
        let file = fs::File::options().append(true).open(path).unwrap();
        file.set_modified(SystemTime::now() + Duration::from_secs(100)).unwrap();
    }

    fn why(build: &Path) -> String {
        BuildTree::open(build).unwrap_err().to_string()
    }

    #[test]
    fn a_tree_says_what_it_was_built_with() {
        let dir = tempfile::tempdir().unwrap();
        let build = place(dir.path());
        let tree = BuildTree::open(&build).unwrap();
        assert_eq!(tree.tools, ["CC=gcc-12", "LD=ld.bfd"]);
        assert_eq!((tree.objects.as_slice(), tree.is_one_object), (&["init/main.o".to_owned()][..], false));
        assert_eq!(tree.source, dir.path().canonicalize().unwrap().join("linux"));
        fs::write(build.join(".vmlinux.cmd"), "cmd_vmlinux := sh link \"ld.lld-15\" \"\"").unwrap();
        fs::write(build.join("init/.main.o.cmd"), RULES.replace("gcc-12", "ccache clang-15")).unwrap();
        assert_eq!(BuildTree::open(&build).unwrap().tools, ["LLVM=-15", "CC=ccache clang-15", "LD=ld.lld-15"]);
        let notes = "ifneq \"$(ARCH)\" \"x86_64\"\ninclude/config/auto.conf: FORCE\nendif\n";
        fs::write(build.join("include/config/auto.conf.cmd"), notes).unwrap();
        assert_eq!(BuildTree::open(&build).unwrap().tools.last().unwrap(), "ARCH=x86_64");
        fs::write(build.join(".vmlinux.cmd"), "").unwrap();
        assert!(why(&build).contains("`.vmlinux.cmd` contains no command"), "{}", why(&build));
    }

    #[test]
    fn a_file_that_make_has_to_rebuild_is_named() {
        for (newer, want) in [
            ("linux/init/main.c", "`../linux/init/main.c` has changed since make compiled `init/main.o` from it"),
            ("linux/include/a.h", "`../linux/include/a.h` has changed since make compiled `init/main.o`"),
            ("build/init/main.o", "`init/main.o` is newer than `vmlinux`"),
            ("build/vmlinux.a", "`vmlinux.a` is newer than `vmlinux`"),
            ("build/arch/x86/kernel/vmlinux.lds", "vmlinux.lds` is newer than `vmlinux`"),
            ("build/vmlinux", "`vmlinux` is newer than `arch/x86/boot/bzImage`"),
            ("build/.config", "`.config` is newer than `include/config/auto.conf`"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let build = place(dir.path());
            touch(&dir.path().join(newer));
            let refusal = BuildTree::open(&build).unwrap_err();
            assert!(refusal.message.contains(want), "{refusal}");
            assert!(refusal.hint.is_some_and(|hint| hint.starts_with("Run `make` there")));
        }
        // An option that was switched on, and a header that is gone.
        let dir = tempfile::tempdir().unwrap();
        let build = place(dir.path());
        fs::write(build.join("include/config/SMP"), "").unwrap();
        touch(&build.join("include/config/SMP"));
        assert!(why(&build).contains("include/config/SMP"));
        fs::remove_file(build.join("include/config/SMP")).unwrap();
        fs::remove_file(dir.path().join("linux/include/a.h")).unwrap();
        assert!(why(&build).contains("a.h`, from which make compiled `init/main.o`, is gone"));
    }

    #[test]
    fn a_folder_that_is_not_a_build_tree_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let build = place(dir.path());
        fs::write(build.join("vmlinux.a"), "!<arch>\n").unwrap();
        assert!(why(&build).contains("`vmlinux.a`, cannot be read: it is not a thin archive"));
        fs::remove_file(dir.path().join("linux/scripts/Makefile.vmlinux")).unwrap();
        assert!(why(&build).contains("which Linux has since 6.1"));
        fs::remove_dir_all(dir.path().join("linux")).unwrap();
        assert!(why(&build).contains("its sources are not found"));
        assert!(why(&dir.path().join("none")).contains("cannot be linked again"));
    }
}
