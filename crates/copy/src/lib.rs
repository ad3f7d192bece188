//! `memcpy`, `memmove`, `memcmp` and `bcmp` for bigiron's executable, in place of musl's.
//!
//! musl copies with `rep movsq`, whose startup costs more than copying one field of a row, and compares byte by byte. musl's `memcpy` took 70 % of
//! bigiron's CPU time in a load of PostgreSQL. An executable that names this crate (`use bigiron_copy as _;`) gets these functions instead: the
//! linker takes the first definition. The agent does not name it, so results of the exact clock do not depend on it.
//!
//! Invariant: up to 128 bytes, everything is loaded before anything is stored, so the areas may overlap; longer ones are copied in the
//! direction that never overwrites bytes before they are read.

#![cfg(all(target_arch = "x86_64", target_env = "musl"))]

use core::arch::asm;
use core::arch::x86_64::{__m128i, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_storeu_si128};

/// Bytes of a register.
const WIDE: usize = size_of::<__m128i>();
/// Bytes copied in a turn of a loop.
const TURN: usize = 4 * WIDE;
/// From this size on, the processor's own loop is faster.
const STRING: usize = 2048;

/// # Safety
/// `from` has 16 readable bytes.
#[inline(always)]
unsafe fn load(from: *const u8) -> __m128i {
    // SAFETY: the caller's.
    unsafe { _mm_loadu_si128(from.cast()) }
}

/// # Safety
/// `to` has 16 writable bytes.
#[inline(always)]
unsafe fn store(to: *mut u8, value: __m128i) {
    // SAFETY: the caller's.
    unsafe { _mm_storeu_si128(to.cast(), value) }
}

/// Copies `N` registers from the start and as many up to the end, which overlap for sizes between.
///
/// # Safety
/// Both areas have `n` bytes, at least `16 * N` and at most `32 * N`.
#[inline(always)]
unsafe fn ends<const N: usize>(to: *mut u8, from: *const u8, n: usize) {
    // SAFETY: every access is within the areas, by the caller's promise.
    unsafe {
        let first: [__m128i; N] = core::array::from_fn(|i| load(from.add(i * WIDE)));
        let last: [__m128i; N] = core::array::from_fn(|i| load(from.add(n - (i + 1) * WIDE)));
        for i in 0..N {
            store(to.add(i * WIDE), first[i]);
            store(to.add(n - (i + 1) * WIDE), last[i]);
        }
    }
}

/// Copies up to 128 bytes between areas that may overlap.
///
/// # Safety
/// Both areas have `n` bytes.
#[inline(always)]
unsafe fn short(to: *mut u8, from: *const u8, n: usize) {
    macro_rules! both_ends {
        ($word:ty) => {{
            let last = n - size_of::<$word>();
            let (a, b) = (from.cast::<$word>().read_unaligned(), from.add(last).cast::<$word>().read_unaligned());
            to.cast::<$word>().write_unaligned(a);
            to.add(last).cast::<$word>().write_unaligned(b);
        }};
    }
    // SAFETY: every access is within the areas.
    unsafe {
        match n {
            0 => {}
            1 => *to = *from,
            2..4 => both_ends!(u16),
            4..8 => both_ends!(u32),
            8..16 => both_ends!(u64),
            16..=32 => ends::<1>(to, from, n),
            33..=64 => ends::<2>(to, from, n),
            _ => ends::<4>(to, from, n),
        }
    }
}

/// Copies a turn of a loop.
///
/// # Safety
/// Both areas have 64 bytes.
#[inline(always)]
unsafe fn turn(to: *mut u8, from: *const u8) {
    // In assembly, or the compiler would make a call to `memcpy` of the loop.
    // SAFETY: within the areas.
    unsafe {
        asm!(
            "movups {a}, [{from}]",
            "movups {b}, [{from} + 16]",
            "movups {c}, [{from} + 32]",
            "movups {d}, [{from} + 48]",
            "movups [{to}], {a}",
            "movups [{to} + 16], {b}",
            "movups [{to} + 32], {c}",
            "movups [{to} + 48], {d}",
            a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
            from = in(reg) from, to = in(reg) to,
            options(nostack, preserves_flags),
        );
    }
}

/// Copies more than 128 bytes from the start to the end; `to` is not within the area after `from`.
///
/// # Safety
/// Both areas have `n` bytes.
#[inline(always)]
unsafe fn forward(to: *mut u8, from: *const u8, n: usize) {
    // SAFETY: within the areas. The last bytes are loaded before the loop can overwrite them.
    unsafe {
        let last: [__m128i; 4] = core::array::from_fn(|i| load(from.add(n - TURN + i * WIDE)));
        let mut at = 0;
        while at + TURN < n {
            turn(to.add(at), from.add(at));
            at += TURN;
        }
        for (i, value) in last.into_iter().enumerate() {
            store(to.add(n - TURN + i * WIDE), value);
        }
    }
}

/// Copies more than 128 bytes from the end to the start; `to` is within the area after `from`.
///
/// # Safety
/// Both areas have `n` bytes.
unsafe fn backward(to: *mut u8, from: *const u8, n: usize) {
    // SAFETY: within the areas. The first bytes are loaded before the loop can overwrite them.
    unsafe {
        let first: [__m128i; 4] = core::array::from_fn(|i| load(from.add(i * WIDE)));
        let mut left = n;
        while left > TURN {
            left -= TURN;
            turn(to.add(left), from.add(left));
        }
        for (i, value) in first.into_iter().enumerate() {
            store(to.add(i * WIDE), value);
        }
    }
}

/// # Safety
/// C's: both areas have `n` bytes and do not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, n: usize) -> *mut u8 {
    // SAFETY: the caller's.
    unsafe {
        match n {
            0..=128 => short(to, from, n),
            129..STRING => forward(to, from, n),
            _ => asm!(
                "rep movsb",
                inout("rcx") n => _, inout("rdi") to => _, inout("rsi") from => _,
                options(nostack, preserves_flags),
            ),
        }
    }
    to
}

/// # Safety
/// C's: both areas have `n` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, n: usize) -> *mut u8 {
    let ahead = to.addr().wrapping_sub(from.addr());
    // SAFETY: the caller's.
    unsafe {
        match n {
            0..=128 => short(to, from, n),
            _ if ahead < n => backward(to, from, n),
            // `to` lies before `from`, and may overlap it.
            _ => forward(to, from, n),
        }
    }
    to
}

/// # Safety
/// C's: both areas have `n` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, n: usize) -> i32 {
    let mut at = 0;
    // SAFETY: within the areas.
    unsafe {
        while at + WIDE <= n {
            let equal = _mm_movemask_epi8(_mm_cmpeq_epi8(load(a.add(at)), load(b.add(at))));
            if equal != 0xFFFF {
                at += (!equal).trailing_zeros() as usize;
                return i32::from(*a.add(at)) - i32::from(*b.add(at));
            }
            at += WIDE;
        }
        while at < n {
            let difference = i32::from(*a.add(at)) - i32::from(*b.add(at));
            if difference != 0 {
                return difference;
            }
            at += 1;
        }
    }
    0
}

/// # Safety
/// C's: both areas have `n` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, n: usize) -> i32 {
    // SAFETY: the caller's.
    unsafe { memcmp(a, b, n) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(n: usize) -> Vec<u8> {
        (0..n).map(|i| (i * 131 + i / 251) as u8).collect()
    }

    proptest! {
        #[test]
        fn areas_are_copied_and_nothing_else(n in prop_oneof![0..300_usize, 2000..5000_usize], from in 0..70_usize, to in 0..70_usize) {
            let source = bytes(6000);
            let mut target = vec![7; 6000];
            // SAFETY: both have 6000 bytes.
            unsafe { memcpy(target.as_mut_ptr().add(to), source.as_ptr().add(from), n) };
            for (i, byte) in target.into_iter().enumerate() {
                prop_assert_eq!(byte, if (to..to + n).contains(&i) { source[i - to + from] } else { 7 });
            }
        }

        #[test]
        fn areas_that_overlap_are_moved(n in prop_oneof![0..300_usize, 2000..5000_usize], from in 0..400_usize, to in 0..400_usize) {
            let source = bytes(6000);
            let mut area = source.clone();
            // SAFETY: it has 6000 bytes.
            unsafe { memmove(area.as_mut_ptr().add(to), area.as_ptr().add(from), n) };
            for (i, byte) in area.into_iter().enumerate() {
                prop_assert_eq!(byte, source[if (to..to + n).contains(&i) { i - to + from } else { i }]);
            }
        }

        #[test]
        fn the_first_different_byte_decides(n in 0..100_usize, at in 0..100_usize, other: u8) {
            let a = bytes(n);
            let mut b = a.clone();
            if let Some(byte) = b.get_mut(at) {
                *byte = other;
            }
            // SAFETY: both have `n` bytes.
            let compared = unsafe { [memcmp(a.as_ptr(), b.as_ptr(), n), bcmp(a.as_ptr(), b.as_ptr(), n)] };
            // Byte by byte: comparing slices would call the functions under test.
            let expected = if at < n { a[at].cmp(&other) } else { std::cmp::Ordering::Equal };
            prop_assert_eq!(compared.map(|c| c.cmp(&0)), [expected; 2]);
        }
    }
}
