//! Mappings and page faults.

use std::io;
use std::os::fd::AsFd;

use anyhow::ensure;
use rustix::fs::OFlags;

use super::bench::{Bench, DATA_BYTES, Window, timed};
use bigiron_sys::mapping::{Mapping, PAGE, Sharing};
use bigiron_sys::signal::WriteFaults;

/// Pages faulted in per mapping: 8 MiB, so that a small guest has room for it.
const PAGES: u64 = 2048;

/// Bytes of the file between two faults: the kernel maps up to 64 KiB of cached neighbours (`fault_around_bytes`) with each.
const FILE_STEP: u64 = 64 << 10;

pub fn map(b: &Bench<'_>) -> anyhow::Result<Window> {
    b.time(|| {
        drop(Mapping::anonymous(1 << 20, Sharing::Private)?);
        io::Result::Ok(())
    })
}

pub fn fault_anonymous(b: &Bench<'_>, sharing: Sharing) -> anyhow::Result<Window> {
    b.time_parts(PAGES, |n| {
        let mapping = Mapping::anonymous(PAGES as usize * PAGE, sharing)?;
        mapping.no_huge_pages()?;
        let mut offset = 0;
        timed(n, || {
            mapping.write(offset, 1);
            offset += PAGE;
            io::Result::Ok(())
        })
    })
}

pub fn fault_file(b: &Bench<'_>) -> anyhow::Result<Window> {
    let file = b.open_cached(OFlags::RDONLY)?;
    b.time_parts(DATA_BYTES / FILE_STEP, |n| {
        let mapping = Mapping::file(file.as_fd(), DATA_BYTES as usize)?;
        let (mut offset, mut sum) = (0, 0u64);
        let ns = timed(n, || {
            sum += u64::from(mapping.read(offset));
            offset += FILE_STEP as usize;
            io::Result::Ok(())
        })?;
        // The low byte of a block's header word, its offset, is 0 at every multiple of 64 KiB.
        ensure!(sum == 0, "The mapped file does not hold what was written to it");
        Ok(ns)
    })
}

pub fn fault_protection(b: &Bench<'_>) -> anyhow::Result<Window> {
    let mapping = Mapping::anonymous(PAGES as usize * PAGE, Sharing::Private)?;
    mapping.no_huge_pages()?;
    for page in 0..PAGES as usize {
        mapping.write(page * PAGE, 1);
    }
    let faults = WriteFaults::install(&mapping)?;
    b.time_parts(PAGES, |n| {
        let before = faults.handled();
        faults.mapping().protect()?;
        let mut offset = 0;
        let ns = timed(n, || {
            faults.mapping().write(offset, 2);
            offset += PAGE;
            io::Result::Ok(())
        })?;
        ensure!(faults.handled() - before == n, "{} of {n} faults were handled", faults.handled() - before);
        Ok(ns)
    })
}
