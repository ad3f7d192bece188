//! One boot by GRUB: an entry of bigiron's in custom.cfg, which the menu includes, named by `next_entry`, which GRUB clears before it boots.
//!
//! Invariant: grub.cfg and its default entry are never written. An entry of somebody else's custom.cfg is never touched.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use bigiron_model::folder_files;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::boot::{program, run};
use super::folder::{self, TargetFolder};
use super::look::{self, hex};

const FOLDER: &str = "/boot/grub";
const CUSTOM: &str = "custom.cfg";
const ENTRY: &str = "bigiron-once";
const MARK: &str = "# bigiron's, and removed by it";
const PROOF: &str = "grub.json";

/// The menu for which it was shown that GRUB clears `next_entry`.
#[derive(Debug, Serialize, Deserialize)]
struct Proof {
    menu: String,
}

/// Whether GRUB can boot an entry once here.
///
/// # Errors
/// Why not.
pub(super) fn possible() -> Result<(), String> {
    let folder = Path::new(FOLDER);
    let menu = match fs::read_to_string(folder.join("grub.cfg")) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Err("there is no /boot/grub/grub.cfg".to_owned()),
        read => read.map_err(|e| format!("/boot/grub/grub.cfg cannot be read: {e}"))?,
    };
    if !menu.contains("next_entry") || !menu.contains(CUSTOM) {
        return Err("/boot/grub/grub.cfg does not read `next_entry` and custom.cfg".to_owned());
    }
    if let Some(missing) =
        ["grub-reboot", "grub-probe", "grub-mkrelpath", "grub-editenv"].iter().find(|p| program(p).is_none())
    {
        return Err(format!("{missing} is not installed"));
    }
    if fs::read_to_string(folder.join(CUSTOM)).is_ok_and(|text| !text.starts_with(MARK)) {
        return Err("/boot/grub/custom.cfg has entries that bigiron did not write".to_owned());
    }
    look::grub_can_write(folder)
}

/// The text of custom.cfg; `root` is the UUID of the file system that contains both files.
fn entry(root: &str, image: &str, initrd: &str, line: &str) -> anyhow::Result<String> {
    ensure!(!line.contains(['\'', '\n']), "GRUB cannot pass on the command line `{line}`");
    let words: Vec<String> = line.split_whitespace().map(|word| format!("'{word}'")).collect();
    Ok(format!(
        "{MARK}\nmenuentry 'bigiron' --id {ENTRY} {{\n\tinsmod part_msdos\n\tinsmod part_gpt\n\tsearch --no-floppy --fs-uuid --set=root {root}\n\
         \tlinux '{image}' {}\n\tinitrd '{initrd}'\n}}\n",
        words.join(" ")
    ))
}

/// Makes the next boot, and only that one, start this kernel.
pub(super) fn arm(image: &Path, initrd: &Path, line: &str) -> anyhow::Result<()> {
    let of = |tool: &str, args: &[&str]| run(tool, args).map(|out| out.trim().to_owned());
    let path = |path: &Path| of("grub-mkrelpath", &[&path.display().to_string()]);
    let root = |path: &Path| of("grub-probe", &["--target=fs_uuid", &path.display().to_string()]);
    ensure!(root(image)? == root(initrd)?, "The image and the initramfs are on two file systems");
    let text = entry(&root(image)?, &path(image)?, &path(initrd)?, line)?;
    folder_files::write_whole(Path::new(FOLDER), CUSTOM, text.as_bytes(), 0o644).context("Cannot write custom.cfg")?;
    run("grub-reboot", &[ENTRY])?;
    ensure!(next_entry()?.as_deref() == Some(ENTRY), "grub-reboot did not set the next entry");
    Ok(())
}

/// The entry of the next boot, if one is named.
fn next_entry() -> anyhow::Result<Option<String>> {
    let listed = run("grub-editenv", &["-", "list"])?;
    let named = listed.lines().find_map(|line| line.strip_prefix("next_entry=")).filter(|name| !name.is_empty());
    Ok(named.map(str::to_owned))
}

/// Checks after a boot that GRUB has cleared `next_entry`; clears it otherwise, so that the machine boots its default again.
pub(super) fn check_cleared() -> anyhow::Result<()> {
    if next_entry()?.as_deref() != Some(ENTRY) {
        return Ok(());
    }
    run("grub-editenv", &["-", "unset", "next_entry"])?;
    bail!(
        "GRUB did not clear `next_entry`, so each boot would have started the kernel under test; bigiron has cleared it"
    )
}

fn menu() -> String {
    hex(&Sha256::digest(fs::read(Path::new(FOLDER).join("grub.cfg")).unwrap_or_default()))
}

/// Notes that GRUB clears `next_entry` here.
pub(super) fn prove(folder: &TargetFolder) -> anyhow::Result<()> {
    check_cleared()?;
    folder::write(folder.path(), PROOF, &Proof { menu: menu() })
}

/// Whether that was shown with this menu.
pub(super) fn is_proved(folder: &TargetFolder) -> bool {
    folder::read::<Proof>(folder.path(), PROOF).ok().flatten().is_some_and(|proof| proof.menu == menu())
}

/// The environment block, to be written back.
pub(super) fn environment() -> Option<Vec<u8>> {
    fs::read(Path::new(FOLDER).join("grubenv")).ok()
}

/// Removes the entry, and writes the environment block back.
pub(super) fn restore(environment: Option<&Vec<u8>>) -> anyhow::Result<()> {
    let folder = Path::new(FOLDER);
    if fs::read_to_string(folder.join(CUSTOM)).is_ok_and(|text| text.starts_with(MARK)) {
        fs::remove_file(folder.join(CUSTOM)).context("Cannot remove custom.cfg")?;
    }
    if let Some(bytes) = environment.filter(|bytes| self::environment().as_ref() != Some(*bytes)) {
        // GRUB knows the file's blocks, not its name: it is written in place.
        let write = || -> std::io::Result<()> {
            let file = fs::OpenOptions::new().write(true).truncate(false).open(folder.join("grubenv"))?;
            std::os::unix::fs::FileExt::write_all_at(&file, bytes, 0)?;
            file.sync_all()
        };
        write().context("Cannot write grubenv back")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_has_the_whole_command_line_as_words() {
        let text = entry("ab-1", "/root/image", "/root/initrd", "ro console=ttyS0 a;b $c").unwrap();
        assert!(text.starts_with(MARK));
        assert!(
            text.contains("\tlinux '/root/image' 'ro' 'console=ttyS0' 'a;b' '$c'\n\tinitrd '/root/initrd'\n}\n"),
            "{text}"
        );
        assert!(entry("ab-1", "/i", "/r", "x='y'").is_err());
    }
}
