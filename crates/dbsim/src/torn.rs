//! Blocks that are read past the cache while a database writer may be writing them.
//!
//! Invariant: a block counts as broken only if it is still broken after the writes in flight.

use anyhow::Result;

use bigiron_sys::segment::Frames;

use super::block::{self, Address};
use super::cache::Cache;
use super::files::DataFiles;

/// A block that is being written while it is read may be torn, as in any database that is copied online. It is read again after
/// the batch in flight; after this many torn reads it counts as broken.
const REREADS: usize = 100;

/// Checks `block`, which was read from `address`, and rereads it into frame 0 of `page` while it is torn. Returns whether it was
/// torn: then the whole block is in the frame.
///
/// # Errors
/// The block's error, if it persists, or that of reading it.
pub fn reread_if_torn(
    block: &[u8],
    address: Address,
    cache: &Cache<'_>,
    files: &DataFiles,
    page: &Frames<'_>,
) -> Result<bool> {
    let mut result = block::check(block, address);
    if result.is_ok() {
        return Ok(false);
    }
    for _ in 0..REREADS {
        cache.wait_written();
        let mut page = page.exclusive(0);
        files.read(address, &mut page)?;
        result = block::check(&page, address);
        if result.is_ok() {
            break;
        }
    }
    result?;
    Ok(true)
}
