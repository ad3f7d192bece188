//! Thin archives (`vmlinux.a`): the names of the objects that a kernel is linked from, in the order of the link.
//!
//! Invariant: a file that is not a thin archive has no members; none is guessed.

use std::fs;
use std::io;
use std::path::Path;

const MAGIC: &[u8] = b"!<thin>\n";
/// Bytes of a member's header.
const HEADER: usize = 60;

/// The members of the thin archive at `path`, as paths relative to its folder.
///
/// # Errors
/// It cannot be read, or is not a thin archive.
pub(super) fn members(path: &Path) -> io::Result<Vec<String>> {
    parse(&fs::read(path)?).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it is not a thin archive"))
}

fn parse(bytes: &[u8]) -> Option<Vec<String>> {
    let mut rest = bytes.strip_prefix(MAGIC)?;
    let (mut long, mut members) = (&b""[..], Vec::new());
    while !rest.is_empty() {
        let (header, after) = rest.split_at_checked(HEADER)?;
        let name = std::str::from_utf8(&header[..16]).ok()?.trim_end();
        let size: usize = std::str::from_utf8(&header[48..58]).ok()?.trim_end().parse().ok()?;
        // Only tables are in the file; members are elsewhere.
        rest = after;
        if matches!(name, "/" | "//" | "/SYM64/") {
            let (table, after) = rest.split_at_checked(size)?;
            if name == "//" {
                long = table;
            }
            rest = if size.is_multiple_of(2) { after } else { after.strip_prefix(b"\n")? };
        } else if let Some(at) = name.strip_prefix('/') {
            // Where ar has moved a member, its number may be followed by another `/`.
            let at = at.split([' ', '/']).next()?;
            let name = long.get(at.parse::<usize>().ok()?..)?;
            let end = name.windows(2).position(|w| w == b"/\n")?;
            members.push(std::str::from_utf8(&name[..end]).ok()?.to_owned());
        } else {
            members.push(name.strip_suffix('/')?.to_owned());
        }
    }
    Some(members)
}

/// A thin archive of these members, for tests.
#[cfg(test)]
pub(super) fn fixture(members: &[&str]) -> Vec<u8> {
    let header = |name: &str, size: usize| format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, 0, 644);
    let table: String = members.iter().map(|member| format!("{member}/\n")).collect();
    let table = if table.len().is_multiple_of(2) { table } else { table + "\n" };
    let mut text = format!("!<thin>\n{}{table}", header("//", table.len()));
    let mut at = 0;
    for member in members {
        text += &header(&format!("/{at}"), 1234);
        at += member.len() + 2;
    }
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_read_in_the_order_of_the_link() {
        let names = ["init/main.o", "kernel/fork.o", "arch/x86/kernel/head_64.o"];
        let bytes = fixture(&names);
        assert_eq!(parse(&bytes).unwrap(), names);
        assert_eq!(parse(&fixture(&[])).unwrap(), Vec::<String>::new());
        assert_eq!(parse(b"!<arch>\n"), None);
        for cut in MAGIC.len()..bytes.len() {
            // A torn file is no shorter list, except where a header begins.
            let found = parse(&bytes[..cut]);
            assert!(found.is_none() || (bytes.len() - cut).is_multiple_of(HEADER) || cut == MAGIC.len(), "{cut}");
        }
    }

    #[test]
    fn ar_writes_what_is_read_here() {
        let Some(ar) = bigiron_image::find_tool("ar") else {
            eprintln!("SKIPPED: there is no ar");
            return;
        };
        let dir = tempfile::tempdir().unwrap();
        let names = ["a/b.o", "a/a-rather-long-name-of-an-object.o", "c.o"];
        for name in names {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "odd").unwrap();
        }
        let made = std::process::Command::new(ar).arg("cDPrST").arg("x.a").args(names).current_dir(dir.path()).status();
        assert!(made.unwrap().success());
        assert_eq!(members(&dir.path().join("x.a")).unwrap(), names);
        // As the kernel moves what has to be linked first; the name in the moved header then ends differently.
        let moved = std::process::Command::new("ar")
            .args(["mPiT", names[0], "x.a", "c.o", names[1]])
            .current_dir(dir.path())
            .status();
        assert!(moved.unwrap().success());
        assert_eq!(members(&dir.path().join("x.a")).unwrap().len(), 3);
        let padded = String::from_utf8(fixture(&names)).unwrap().replace("/0              ", "/0             /");
        assert_eq!(parse(padded.as_bytes()).unwrap(), names);
    }
}
