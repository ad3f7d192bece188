//! The mappings of this process, as `/proc/self/maps` lists them (proc(5)): `START-END PERMISSIONS OFFSET DEVICE INODE FILE`.

use crate::kernel;

/// The anonymous mapping in which an address lies: its first address, and its length.
pub(crate) fn anonymous(address: u64) -> Option<(u64, u64)> {
    let mut found = None;
    // SAFETY: the path ends with a zero.
    unsafe {
        kernel::lines(c"/proc/self/maps".as_ptr().cast(), &mut |line| match parsed(line) {
            Some((start, end, is_anonymous)) if (start..end).contains(&address) => {
                found = is_anonymous.then_some((start, end - start));
                true
            }
            _ => false,
        });
    }
    found
}

/// The first address, the end, and whether no file is behind it.
fn parsed(line: &[u8]) -> Option<(u64, u64, bool)> {
    let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let mut ends = words.next()?.split(|byte| *byte == b'-').map(hexadecimal);
    let (start, end) = (ends.next()??, ends.next()??);
    Some((start, end, words.nth(3)? == b"0"))
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).map(u64::from);
    digits.iter().try_fold(0_u64, |n, byte| n.checked_mul(16)?.checked_add(digit(byte)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let line = b"7f3e00000000-7f3e40000000 rw-p 00000000 00:00 0 ";
        assert_eq!(parsed(line), Some((0x7f3e_0000_0000, 0x7f3e_4000_0000, true)));
        let file = b"00400000-0045b000 r-xp 00001000 fd:00 1234                   /usr/bin/qemu";
        assert_eq!(parsed(file), Some((0x40_0000, 0x45_b000, false)));
        for wrong in [&b""[..], b"7f3e", b"x-y rw-p 0 0:0 0", b"1-2 rw-p"] {
            assert_eq!(parsed(wrong), None);
        }
    }

    #[test]
    fn memory_is_anonymous_and_code_is_not() {
        let memory = vec![1_u8; 64 << 20];
        let (start, bytes) = anonymous(memory.as_ptr() as u64 + 1000).unwrap();
        assert!(start <= memory.as_ptr() as u64 && bytes >= 64 << 20);
        assert_eq!(anonymous(lines_are_read as *const () as u64), None);
        assert_eq!(anonymous(8), None);
    }
}
