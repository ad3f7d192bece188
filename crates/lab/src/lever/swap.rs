//! `mm.swap=zram:SIZE[:ALGORITHM]`: a swap device in compressed memory.
//!
//! Invariant: a device in use is never touched: bigiron takes a device without a size, or adds one.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::undo::inverse::zrams;
use crate::undo::{ChangeLog, Inverse};
use bigiron_model::record::FileChange;
use bigiron_model::size;
use bigiron_sys as sys;
use bigiron_sys::kernel_file::{below, read, write};

const PAGE: u64 = 4096;
/// Smallest useful device.
const LEAST: u64 = 1 << 20;

/// A swap device to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swap {
    pub bytes: u64,
    /// `None`: the kernel's default.
    pub algorithm: Option<String>,
}

/// Reads `zram:SIZE[:ALGORITHM]`.
pub fn parse(text: &str) -> Result<Swap, String> {
    let form = || "write `zram:SIZE` or `zram:SIZE:ALGORITHM`, such as `zram:512M:zstd`".to_owned();
    let mut words = text.split(':');
    if words.next() != Some("zram") {
        return Err(form());
    }
    let bytes = size::parse_bytes(words.next().ok_or_else(form)?)?;
    let algorithm = words.next().map(str::to_owned);
    if words.next().is_some() || algorithm.as_ref().is_some_and(|a| a.is_empty() || a.contains(char::is_whitespace)) {
        return Err(form());
    }
    if bytes < LEAST || bytes % PAGE != 0 {
        return Err("its size must be whole pages of 4 KiB, 1M or more".to_owned());
    }
    Ok(Swap { bytes, algorithm })
}

/// The module of the crypto API that may contain a compressor.
pub(super) fn compressor(name: &str) -> Option<&'static str> {
    let modules = ["lzo", "lzo_rle", "lz4", "lz4hc", "zstd", "842", "deflate"];
    modules.into_iter().find(|module| *module == name.replace('-', "_"))
}

/// The same for a `value` of `mm.swap`.
pub(super) fn algorithm_module(value: &str) -> Option<&'static str> {
    parse(value).ok()?.algorithm.and_then(|name| compressor(&name))
}

/// Why the machine below `root` cannot have such a device; `None` if it can.
pub(super) fn missing(root: &Path) -> Option<String> {
    let has_zram = !zrams(root).is_empty() || below(root, Path::new("/sys/class/zram-control")).exists();
    (!has_zram).then(|| "this kernel has no zram (its module may have to be loaded: `modprobe zram`)".to_owned())
}

/// Creates the device and enables swapping on it.
pub(super) fn apply(what: &str, swap: &Swap, notes: &mut dyn ChangeLog) -> Result<Vec<FileChange>, String> {
    let root = notes.root().to_owned();
    let of = |index: u32, name: &str| PathBuf::from(format!("/sys/block/zram{index}/{name}"));
    let size = |index: u32| read(&below(&root, &of(index, "disksize"))).unwrap_or_default();
    let unused = zrams(&root).into_iter().find(|n| size(*n).trim() == "0");
    let index = match unused {
        Some(index) => {
            notes.note(what, Inverse::ResetZram { index }).map_err(|e| e.to_string())?;
            index
        }
        None => {
            notes.note(what, Inverse::RemoveNewZram { before: zrams(&root) }).map_err(|e| e.to_string())?;
            // Reading the file adds a device and returns its number.
            let added = read(&below(&root, Path::new("/sys/class/zram-control/hot_add")))
                .map_err(|e| format!("no zram device can be added: {e}"))?;
            let index = added.trim().parse().map_err(|_| format!("zram added `{}`", added.trim()))?;
            notes.note(what, Inverse::RemoveZram { index }).map_err(|e| e.to_string())?;
            index
        }
    };
    let set = |name: &str, value: &str| {
        write(&below(&root, &of(index, name)), value).map_err(|e| {
            let offered = read(&below(&root, &of(index, name))).unwrap_or_default().replace(['[', ']'], "");
            let offered = offered.split_whitespace().collect::<Vec<_>>().join(", ");
            match name {
                "comp_algorithm" => format!("the kernel offers {offered} for `{}`", of(index, name).display()),
                _ => format!("`{}` does not accept {value}: {e}", of(index, name).display()),
            }
        })
    };
    if let Some(algorithm) = &swap.algorithm {
        set("comp_algorithm", algorithm)?;
    }
    set("disksize", &swap.bytes.to_string())?;
    let device = PathBuf::from(format!("/dev/zram{index}"));
    let at = below(&root, &device);
    let format = || {
        let mut file = OpenOptions::new().write(true).open(&at)?;
        file.write_all(&header(swap.bytes))?;
        file.sync_all()
    };
    format().map_err(|e| format!("`{}` is not writable: {e}", device.display()))?;
    notes.note(what, Inverse::SwapOff { path: device.clone() }).map_err(|e| e.to_string())?;
    let before = swaps(&root);
    sys::swap::on(&at).map_err(|e| format!("the kernel does not swap on {}: {e}", device.display()))?;
    let after = swaps(&root);
    if !after.iter().any(|line| line.starts_with(&format!("{} ", device.display()))) {
        return Err(format!("/proc/swaps does not show {}", device.display()));
    }
    let algorithm = read(&below(&root, &of(index, "comp_algorithm"))).unwrap_or_default();
    let change = |path: &str, before: String, after: String| FileChange { path: path.to_owned(), before, after };
    Ok(vec![
        change("/proc/swaps", before.join("; "), after.join("; ")),
        change(
            &of(index, "comp_algorithm").display().to_string(),
            String::new(),
            crate::undo::chosen(&algorithm).to_owned(),
        ),
    ])
}

/// The swap devices in use, with type and size in KiB.
fn swaps(root: &Path) -> Vec<String> {
    let text = read(&below(root, Path::new("/proc/swaps"))).unwrap_or_default();
    let words = |line: &str| line.split_whitespace().take(3).collect::<Vec<_>>().join(" ");
    text.lines().skip(1).map(words).collect()
}

/// The first page of a swap device: version 1, without bad pages.
fn header(bytes: u64) -> Vec<u8> {
    let mut page = vec![0; PAGE as usize];
    let last = (bytes / PAGE - 1).min(u64::from(u32::MAX)) as u32;
    page[1024..1028].copy_from_slice(&1u32.to_le_bytes());
    page[1028..1032].copy_from_slice(&last.to_le_bytes());
    page[PAGE as usize - 10..].copy_from_slice(b"SWAPSPACE2");
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_swap_device_has_a_size_and_maybe_an_algorithm() {
        assert_eq!(parse("zram:64M").unwrap(), Swap { bytes: 64 << 20, algorithm: None });
        assert_eq!(parse("zram:1G:zstd").unwrap().algorithm.as_deref(), Some("zstd"));
        for wrong in ["zram", "zram:", "disk:1G", "zram:1G:", "zram:1G:a:b", "zram:12345", "zram:4K"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_header_is_one_that_mkswap_would_write() {
        let page = header(64 << 20);
        assert_eq!(&page[4086..], b"SWAPSPACE2");
        assert_eq!(&page[1024..1032], [1, 0, 0, 0, 0xff, 0x3f, 0, 0]);
    }
}
