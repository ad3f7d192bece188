//! One boot by systemd-boot: an entry of bigiron's, named by UEFI's variable LoaderEntryOneShot, which the boot loader deletes before it boots.
//!
//! Invariant: loader.conf and the variables of the default entry are never written, and the entry is sorted behind all others, so that it is no
//! default. Everything of bigiron's on the boot partition is in [`ENTRY`] and the folder [`FILES`].

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use bigiron_model::folder_files;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::boot::{program, run};
use super::folder::{self, TargetFolder};
use super::look::hex;

const VARIABLES: &str = "/sys/firmware/efi/efivars";
/// The vendor of systemd-boot's variables.
const VENDOR: &str = "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f";

/// The bit of LoaderFeatures that says that an entry can be booted once.
const ONE_SHOT: u64 = 1 << 3;

/// The entry. Among entries without a sort key the names with the highest versions come first, and `0` is the lowest.
const ENTRY: &str = "0-bigiron-once.conf";
/// The folder of its image and initramfs.
const FILES: &str = "bigiron-once";
/// Sorted behind the keys of all distributions.
const SORT_KEY: &str = "zz-bigiron";

const PROOF: &str = "systemd-boot.json";

/// The entries for which it was shown that the boot loader boots one of them once.
#[derive(Debug, Serialize, Deserialize)]
struct Proof {
    menu: String,
}

/// The value of a variable of the boot loader; `None` if it is not set.
fn variable(name: &str) -> Option<Vec<u8>> {
    variable_in(Path::new(VARIABLES), name)
}

fn variable_in(variables: &Path, name: &str) -> Option<Vec<u8>> {
    // Four bytes of attributes come first.
    Some(fs::read(variables.join(format!("{name}-{VENDOR}"))).ok()?.get(4..)?.to_vec())
}

/// A variable's strings in UTF-16, each with a zero at its end.
fn strings(bytes: &[u8]) -> Vec<String> {
    let units: Vec<u16> = bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
    units.split(|unit| *unit == 0).filter(|one| !one.is_empty()).map(String::from_utf16_lossy).collect()
}

fn string(name: &str) -> Option<String> {
    strings(&variable(name)?).into_iter().next()
}

/// Whether systemd-boot can boot an entry once here.
///
/// # Errors
/// Why not.
pub(super) fn possible() -> Result<(), String> {
    if !Path::new("/sys/firmware/efi").exists() {
        return Err("the firmware is not UEFI".to_owned());
    }
    can_boot_once(Path::new(VARIABLES))?;
    if program("bootctl").is_none() {
        return Err("bootctl is not installed; Debian has it in the package systemd-boot".to_owned());
    }
    let folder = boot_folder().map_err(|e| format!("{e:#}"))?;
    let loader = fs::read_to_string(folder.join("loader/loader.conf")).unwrap_or_default();
    // Others' entries must be there, for one of them must stay the default.
    if others(&folder).is_empty() {
        return Err(format!("{} has no entries", folder.join("loader/entries").display()));
    }
    default_is_apart(&loader)
}

/// Whether the boot loader is systemd-boot, and one that knows one-shot entries.
fn can_boot_once(variables: &Path) -> Result<(), String> {
    let loader = variable_in(variables, "LoaderInfo").and_then(|bytes| strings(&bytes).into_iter().next());
    if !loader.as_ref().is_some_and(|loader| loader.starts_with("systemd-boot")) {
        return Err("systemd-boot is not the boot loader".to_owned());
    }
    let features = variable_in(variables, "LoaderFeatures").and_then(|bytes| bytes.try_into().ok());
    match features.map(u64::from_le_bytes) {
        Some(features) if features & ONE_SHOT != 0 => Ok(()),
        _ => Err("this systemd-boot cannot boot an entry once".to_owned()),
    }
}

/// Whether the pattern for the default in loader.conf is none that the entry of bigiron matches.
fn default_is_apart(loader: &str) -> Result<(), String> {
    let default = loader.lines().find_map(|line| line.trim().strip_prefix("default")).map(str::trim);
    let Some(pattern) = default else { return Ok(()) };
    // Up to its first wildcard.
    let literal = pattern.split(['*', '?', '[', '\\']).next().unwrap_or_default();
    if ENTRY.starts_with(literal) {
        return Err(format!("`default {pattern}` in loader.conf could name an entry of bigiron's"));
    }
    Ok(())
}

/// The partition from which kernels are booted: the one of the boot loader's, or another for larger kernels.
fn boot_folder() -> anyhow::Result<PathBuf> {
    let path = PathBuf::from(run("bootctl", &["--print-boot-path"])?.trim());
    ensure!(path.is_absolute() && path.is_dir(), "bootctl names no boot partition");
    Ok(path)
}

/// The texts of the entries that are not bigiron's, by name.
fn others(folder: &Path) -> Vec<(String, String)> {
    let entries = fs::read_dir(folder.join("loader/entries")).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()))
        .filter(|(name, _)| name.ends_with(".conf") && name != ENTRY)
        .filter_map(|(name, path)| Some((name, fs::read_to_string(path).ok()?)))
        .collect();
    found.sort();
    found
}

/// The text of the entry. Entries with a sort key come before those without one.
fn entry(others: &[(String, String)], line: &str) -> anyhow::Result<String> {
    ensure!(!line.contains('\n'), "An entry cannot pass on the command line `{line}`");
    let has_key = |text: &str| text.lines().any(|line| line.trim_start().starts_with("sort-key"));
    let all_have_keys = others.iter().all(|(_, text)| has_key(text));
    let key = if all_have_keys { format!("sort-key {SORT_KEY}\n") } else { String::new() };
    Ok(format!("title bigiron, once\n{key}linux /{FILES}/image\ninitrd /{FILES}/initrd\noptions {line}\n"))
}

/// Makes the next boot, and only that one, start this kernel.
pub(super) fn arm(image: &Path, initrd: &Path, line: &str) -> anyhow::Result<()> {
    let folder = boot_folder()?;
    let text = entry(&others(&folder), line)?;
    let files = folder.join(FILES);
    let need: u64 = [image, initrd].iter().map(|file| fs::metadata(file).map_or(0, |m| m.len())).sum();
    // What is there is written over.
    remove(&files)?;
    let free = rustix::fs::statvfs(&folder).map_or(0, |stat| stat.f_bavail * stat.f_frsize);
    ensure!(
        free > need + (1 << 20),
        "{} has {} MiB free, and image and initramfs have {} MiB",
        folder.display(),
        free >> 20,
        need >> 20
    );
    fs::create_dir_all(&files).with_context(|| format!("Cannot make {}", files.display()))?;
    for (from, name) in [(image, "image"), (initrd, "initrd")] {
        fs::copy(from, files.join(name)).with_context(|| format!("Cannot copy {}", from.display()))?;
    }
    folder_files::write_whole(&folder.join("loader/entries"), ENTRY, text.as_bytes(), 0o600)
        .context("Cannot write the entry")?;
    rustix::fs::sync();
    run("bootctl", &["set-oneshot", ENTRY])?;
    ensure!(string("LoaderEntryOneShot").as_deref() == Some(ENTRY), "bootctl has not named the entry of the next boot");
    Ok(())
}

/// Checks after a boot that the boot loader has deleted LoaderEntryOneShot; deletes it otherwise, so that the machine boots its default again.
pub(super) fn check_cleared() -> anyhow::Result<()> {
    if string("LoaderEntryOneShot").as_deref() != Some(ENTRY) {
        return Ok(());
    }
    run("bootctl", &["set-oneshot", ""])?;
    bail!(
        "The boot loader has not deleted LoaderEntryOneShot: it would have booted the kernel under test for ever. It is deleted now"
    )
}

/// What decides which entry is the default.
fn menu(folder: &Path) -> String {
    let mut digest = Sha256::new();
    digest.update(fs::read(folder.join("loader/loader.conf")).unwrap_or_default());
    for (name, text) in others(folder) {
        digest.update(name);
        digest.update(text);
    }
    digest.update(variable("LoaderEntryDefault").unwrap_or_default());
    digest.update(variable("LoaderInfo").unwrap_or_default());
    hex(&digest.finalize())
}

/// Notes that the boot loader boots an entry once here, and that another entry is the default: after a boot of the entry.
pub(super) fn prove(folder: &TargetFolder) -> anyhow::Result<()> {
    // An entry that may be the default must not stay.
    proof(folder).inspect_err(|_| drop(restore()))
}

fn proof(folder: &TargetFolder) -> anyhow::Result<()> {
    check_cleared()?;
    ensure!(string("LoaderEntrySelected").as_deref() == Some(ENTRY), "The boot loader has booted another entry");
    // In the order of the menu, whose first entry is the default unless one is named.
    let listed = variable("LoaderEntries").map(|bytes| strings(&bytes)).unwrap_or_default();
    let first = listed.first().context("The boot loader does not say which entries it has")?;
    ensure!(first != ENTRY, "The boot loader has made bigiron's entry its default, since it is the first");
    folder::write(folder.path(), PROOF, &Proof { menu: menu(&boot_folder()?) })
}

/// Whether that was shown with these entries.
pub(super) fn is_proved(folder: &TargetFolder) -> bool {
    let Ok(boot) = boot_folder() else { return false };
    folder::read::<Proof>(folder.path(), PROOF).ok().flatten().is_some_and(|proof| proof.menu == menu(&boot))
}

/// Removes the entry and its files.
pub(super) fn restore() -> anyhow::Result<()> {
    if program("bootctl").is_none() || !Path::new(VARIABLES).exists() {
        return Ok(());
    }
    // A boot that was asked for and never came.
    if string("LoaderEntryOneShot").as_deref() == Some(ENTRY) {
        run("bootctl", &["set-oneshot", ""])?;
    }
    let Ok(folder) = boot_folder() else { return Ok(()) };
    let entry = folder.join("loader/entries").join(ENTRY);
    match fs::remove_file(&entry) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            return Err(e).with_context(|| format!("Cannot remove {}", entry.display()));
        }
        _ => {}
    }
    remove(&folder.join(FILES))
}

fn remove(files: &Path) -> anyhow::Result<()> {
    match fs::remove_dir_all(files) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(e).with_context(|| format!("Cannot remove {}", files.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utf16(text: &str) -> Vec<u8> {
        text.encode_utf16().flat_map(u16::to_le_bytes).collect()
    }

    #[test]
    fn a_boot_loader_is_known_by_its_variables() {
        let dir = tempfile::tempdir().unwrap();
        let set = |name: &str, value: &[u8]| {
            fs::write(dir.path().join(format!("{name}-{VENDOR}")), [&[6, 0, 0, 0], value].concat()).unwrap();
        };
        let none = "systemd-boot is not the boot loader";
        assert_eq!(can_boot_once(dir.path()).unwrap_err(), none);
        // GRUB 2.12 sets it, too.
        set("LoaderInfo", &utf16("GRUB 2.12\0"));
        assert_eq!(can_boot_once(dir.path()).unwrap_err(), none);
        set("LoaderInfo", &utf16("systemd-boot 252.39\0"));
        assert!(can_boot_once(dir.path()).unwrap_err().contains("cannot boot an entry once"));
        set("LoaderFeatures", &0x3fu64.to_le_bytes());
        can_boot_once(dir.path()).unwrap();
    }

    #[test]
    fn the_entry_is_sorted_behind_all_others() {
        let other = |text: &str| ("debian.conf".to_owned(), text.to_owned());
        let keyed = entry(&[other("title Debian\nsort-key debian\n")], "root=UUID=1 ro").unwrap();
        assert_eq!(
            keyed,
            "title bigiron, once\nsort-key zz-bigiron\nlinux /bigiron-once/image\ninitrd /bigiron-once/initrd\noptions root=UUID=1 ro\n"
        );
        // With a key it would come before one without.
        let mixed = entry(&[other("title Debian\nsort-key debian\n"), other("title own\n")], "ro").unwrap();
        assert!(!mixed.contains("sort-key"));
        assert!(entry(&[], "ro\ndefault x").is_err());
    }

    #[test]
    fn a_default_that_could_be_the_entry_is_refused() {
        for (loader, is_apart) in [
            ("", true),
            ("#default *\ntimeout 3\n", true),
            ("default debian-*\n", true),
            ("default 0cf4cae867ced4a78a0ef0d5237a511f-*\n", true),
            ("default @saved\n", true),
            ("default *.conf\n", false),
            ("timeout 3\n default 0*\n", false),
        ] {
            assert_eq!(default_is_apart(loader).is_ok(), is_apart, "{loader}");
        }
    }

    #[test]
    fn a_variable_has_strings_with_zeros() {
        assert_eq!(strings(&utf16("a.conf\0b.conf\0")), ["a.conf", "b.conf"]);
        assert_eq!(strings(&utf16("a.conf")), ["a.conf"]);
        assert_eq!(strings(&[]), Vec::<String>::new());
    }
}
