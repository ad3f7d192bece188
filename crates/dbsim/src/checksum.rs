//! CRC-32C (the polynomial of RFC 3720) of blocks and journals.
//!
//! Processors have an instruction for it, and so does what a window measures: `crc32c::crc32c`. An emulator executes that instruction bit by bit,
//! which made a third of a trial's CPU time of laying out and verifying data. There it is computed from tables.

use bigiron_sys::emulation::is_emulated;
use crc::{CRC_32_ISCSI, Crc, Table};

static TABLES: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);

/// The checksum, by what takes the host the least time: not for measured windows, since under the exact clock it takes the guest more
/// instructions.
pub fn unmeasured(bytes: &[u8]) -> u32 {
    if is_emulated() { TABLES.checksum(bytes) } else { crc32c::crc32c(bytes) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn tables_and_instruction_agree(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(TABLES.checksum(&bytes), crc32c::crc32c(&bytes));
        }
    }
}
