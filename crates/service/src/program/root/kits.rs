//! The files of this machine that programs may need: their folder, the programs, the usual tools, and for some programs the files that belong to
//! them.
//!
//! Invariant: the selection depends only on the request and on the machine's files.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::ProgramNeeds;
use super::selection::Selection;
use bigiron_image::find_tool;

/// Programs that any script may expect.
const USUAL: &str = "sh dash bash env true false test [ echo printf cat head tail wc tr cut paste sort uniq comm join split tee seq yes dd cp mv \
    rm ln ls mkdir rmdir mktemp touch chmod chown stat du df sync sleep timeout nice nproc date uname hostname id whoami basename dirname \
    readlink realpath pwd expr od md5sum sha256sum cksum base64 truncate shuf numfmt factor grep egrep fgrep sed awk mawk gawk find xargs \
    cmp diff patch tar gzip gunzip zcat bzip2 bunzip2 xz unxz zstd which time kill ps free nohup setsid taskset flock getconf perl";

/// The additions to a program: its names, further programs, files and folders.
struct Kit {
    names: &'static str,
    programs: &'static str,
    paths: &'static str,
    /// Whether the program needs the folder that contains its `bin`, as Java does, of which there may be several.
    home: bool,
}

const KITS: [Kit; 5] = [
    Kit {
        names: "make gmake ninja cmake cc gcc g++ c++ c99 cpp ld as",
        programs: "make gmake ninja cmake cc gcc g++ c++ c89 c99 cpp ld ld.bfd ld.gold as ar nm ranlib strip objcopy objdump readelf size \
            strings addr2line pkg-config m4 bison flex git",
        paths: "/usr/lib/gcc /usr/libexec/gcc /usr/include /usr/lib/bfd-plugins /usr/lib/x86_64-linux-gnu/ldscripts \
            /usr/lib/x86_64-linux-gnu/bfd-plugins /usr/share/cmake",
        home: false,
    },
    Kit { names: "python python3", programs: "python3", paths: "/usr/lib/python3", home: false },
    Kit {
        names: "nroff troff groff",
        programs: "groff troff grotty preconv tbl",
        paths: "/usr/share/groff",
        home: false,
    },
    Kit {
        names: "perl",
        programs: "perl",
        paths: "/usr/share/perl /usr/share/perl5 /usr/lib/x86_64-linux-gnu/perl5",
        home: false,
    },
    Kit { names: "java javac jar", programs: "", paths: "/usr/share/java", home: true },
];

/// Folders that begin with this hold files that a linker uses; their names follow.
const LINKED: &str = "/usr/lib/x86_64-linux-gnu";
const LINKED_NAMES: &str = "crt1.o crti.o crtn.o Scrt1.o gcrt1.o grcrt1.o rcrt1.o Mcrt1.o libc.so libc.a libc_nonshared.a libm.so libm.a \
    libm-2. libmvec libpthread. libdl. librt. libutil. libresolv. libanl. libstdc++ libgcc_s libz.so libz.a";

/// Folders below `/usr/include` that are larger than everything else, and that few programs include.
const LARGE: [&str; 3] = ["/usr/include/boost", "/usr/include/node", "/usr/include/llvm"];
/// Files of a Java development kit that no running program reads: its modules a second time, for linking, and its sources.
const LARGE_OF_HOME: [&str; 2] = ["jmods", "src.zip"];

/// Selects the files.
pub(super) fn select(wanted: &ProgramNeeds<'_>) -> Selection {
    let mut selection = Selection::default();
    let nothing = |_: &Path| false;
    selection.add(Path::new("/etc"), &|path| path.starts_with("/etc/ssl/private"));
    // Only root can read secrets, and programs do not need them.
    let secret: Vec<PathBuf> = selection
        .entries
        .iter()
        .filter(|(path, e)| path.starts_with("/etc") && e.mode & 0o004 == 0)
        .map(|(path, _)| path.clone())
        .collect();
    selection.entries.retain(|path, _| !secret.iter().any(|s| path.starts_with(s)));
    for link in ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/usr/bin", "/usr/lib"] {
        selection.add(Path::new(link), &|_| true);
    }
    if let Some(dir) = wanted.dir {
        selection.add(dir, &is_study);
    }
    let mut words = wanted.words.clone();
    let mut taken = 0;
    // A script may call programs that have a kit; the user must name scripts that a script calls.
    let scripts: Vec<String> = words.iter().filter_map(|w| script(wanted, w)).collect();
    words.extend(scripts.iter().flat_map(|text| tokens(text)).map(str::to_owned));
    words.extend(USUAL.split_whitespace().map(str::to_owned));
    while taken < words.len() {
        let word = words[taken].clone();
        taken += 1;
        if let Ok(path) = (wanted.find)(&word) {
            selection.add_program(&path);
        }
    }
    for kit in KITS.iter().filter(|k| words.iter().any(|w| is_among(w, k.names) && (wanted.find)(w).is_ok())) {
        for path in kit.programs.split_whitespace().filter_map(find_tool) {
            selection.add_program(&path);
        }
        for path in kit.paths.split_whitespace().flat_map(with_versions) {
            selection.add(&path, &|path| LARGE.iter().any(|l| path.to_string_lossy().starts_with(l)));
        }
        if kit.home {
            for home in homes(wanted, &words, kit.names) {
                selection.add(&home, &|path| LARGE_OF_HOME.iter().any(|large| path.ends_with(large)));
            }
        }
        if kit.names.starts_with("make") {
            linked(&mut selection);
        }
    }
    for path in wanted.roots {
        selection.add(path, &nothing);
    }
    selection
}

/// The folders that contain the `bin` of the programs with these names.
fn homes(wanted: &ProgramNeeds<'_>, words: &[String], names: &str) -> BTreeSet<PathBuf> {
    let found =
        words.iter().filter(|w| is_among(w, names)).filter_map(|w| fs::canonicalize((wanted.find)(w).ok()?).ok());
    found
        .filter_map(|program| Some(program.parent().filter(|bin| bin.ends_with("bin"))?.parent()?.to_owned()))
        .collect()
}

/// Studies in a program's folder do not concern it, and they change while it runs.
fn is_study(dir: &Path) -> bool {
    dir.file_name().is_some_and(|n| n == "bigiron-results") || dir.join("records.jsonl").exists()
}

fn is_among(word: &str, names: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or(word);
    // `gcc-12` and `python3.11` count as `gcc` and `python3`.
    let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.').trim_end_matches('-');
    names.split_whitespace().any(|n| n == name || (!plain.is_empty() && n == plain))
}

/// Words of a text that may be program names.
pub fn tokens(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || "_./+-".contains(c))).filter(|w| !w.is_empty() && *w != ".")
}

/// The text of a program that is a script in the folder.
fn script(wanted: &ProgramNeeds<'_>, word: &str) -> Option<String> {
    let dir = wanted.dir?;
    let path = (wanted.find)(word).ok().filter(|path| path.starts_with(dir))?;
    let bytes = fs::read(path).ok().filter(|bytes| bytes.starts_with(b"#!"))?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The path, and files beside it with the same name and a version.
fn with_versions(path: &str) -> Vec<PathBuf> {
    let path = Path::new(path);
    let (Some(dir), Some(name)) = (path.parent(), path.file_name().and_then(|n| n.to_str())) else { return Vec::new() };
    let is_version =
        |n: &str| n.strip_prefix(name).is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit() || c == '.'));
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> =
        entries.filter(|e| e.file_name().to_str().is_some_and(is_version)).map(|e| e.path()).collect();
    found.sort();
    found
}

fn linked(selection: &mut Selection) {
    for entry in fs::read_dir(LINKED).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if LINKED_NAMES.split_whitespace().any(|n| name.to_string_lossy().starts_with(n)) {
            selection.add(&entry.path(), &|_| true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn java_comes_with_its_home_and_what_its_libraries_need() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("home");
        for folder in ["bin", "lib/server", "jmods"] {
            fs::create_dir_all(home.join(folder)).unwrap();
        }
        let (shell, needed) = crate::program::root::selection::tests::library();
        fs::copy(shell, home.join("lib/server/libjvm.so")).unwrap();
        for file in ["bin/java", "jmods/java.base.jmod", "lib/modules"] {
            fs::write(home.join(file), "").unwrap();
        }
        let link = dir.path().join("java");
        std::os::unix::fs::symlink(home.join("bin/java"), &link).unwrap();
        let find = |word: &str| if word == "java" { Ok(link.clone()) } else { Err(String::new()) };
        let wanted = |words: &[&str]| {
            let words = words.iter().map(|&word| word.to_owned()).collect();
            select(&ProgramNeeds { whose: "the command", words, dir: None, find: &find, roots: &[], less: "" })
        };
        let selection = wanted(&["java", "-version"]);
        let has = |path: PathBuf| selection.entries.contains_key(&path);
        assert!(has(home.join("bin/java")) && has(home.join("lib/modules")) && has(home.join("lib/server/libjvm.so")));
        assert!(!has(home.join("jmods")), "only a linker of Java reads it");
        assert!(selection.entries.keys().any(|path| path.ends_with(&needed)), "{needed}");
        assert!(!wanted(&["other"]).entries.contains_key(&home.join("lib/modules")));
    }

    #[test]
    fn versions_of_a_name_are_that_name() {
        assert!(
            is_among("gcc-12", "cc gcc")
                && is_among("/usr/bin/python3.11", "python3 python")
                && is_among("make", "make")
        );
        assert!(!is_among("makeinfo", "make") && !is_among("3", "make"));
        assert_eq!(
            tokens("cd x && make -C 'src'; ./run.sh").collect::<Vec<_>>(),
            ["cd", "x", "make", "-C", "src", "./run.sh"]
        );
    }
}
