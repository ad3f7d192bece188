//! Memory: allocated and freed, filled, copied, compared; the program break; page faults.
//!
//! Invariant: the last copy is checked.

use std::hint::black_box;
use std::io;

use anyhow::Context as _;

use super::verdict::expect;
use super::{UserContext, values};
use bigiron_sys::program_break;
use bigiron_sys::program_break::{Moves, PIECES};

/// Sizes of blocks, roughly those that programs allocate; of 40, the first and third ten are the same, and so are the second and
/// fourth.
const SIZES: [usize; 20] = [1, 3, 5, 7, 9, 11, 33, 65, 129, 1024, 1025, 1023, 8192, 4096, 4095, 11, 33, 65, 129, 1024];
/// The largest of them.
const LARGEST: usize = 8192;
/// Alignments of copies.
const WORD: usize = size_of::<f64>();

const TEXT: &[u8] = b"One more string of a common length: 44 bytes";
/// Strings and pairs of blocks allocated before any is freed.
const STRINGS: usize = 100;

/// 100 times: copies 100 strings and allocates 200 blocks, half of them zeroed, touches them and frees them in another order;
/// then the heap returns its free memory to the kernel.
pub fn allocate(place: &mut UserContext<'_>) -> anyhow::Result<()> {
    let rounds = place.times(100);
    let heap = &**place.kept.heap.get_or_insert_default();
    let no_memory = || io::Error::from(io::ErrorKind::OutOfMemory);
    for _ in 0..rounds {
        let mut blocks = Vec::with_capacity(STRINGS);
        for i in 0..STRINGS {
            let (plain, zeroed) = (SIZES[i % SIZES.len()], SIZES[(i + 1) % SIZES.len()]);
            let mut string = heap.piece(TEXT.len() + 1).ok_or_else(no_memory)?;
            string.write(black_box(TEXT));
            let block = heap.piece(black_box(plain)).ok_or_else(no_memory)?;
            blocks.push([string, block, heap.zeros(black_box(zeroed)).ok_or_else(no_memory)?]);
        }
        for ([_, block, _], mark) in blocks.iter_mut().zip(0..) {
            block.write(&[mark]);
        }
        let touched = blocks
            .iter()
            .map(|[string, block, zeroed]| u64::from(string[0]) + u64::from(block[0]) + u64::from(zeroed[0]))
            .sum::<u64>();
        expect(
            "Touching allocated memory",
            touched,
            STRINGS as u64 * u64::from(TEXT[0]) + (0..STRINGS as u64).sum::<u64>(),
        )?;
        while let Some([string, block, zeroed]) = blocks.pop() {
            drop(string);
            drop(zeroed);
            drop(block);
        }
        heap.trim();
    }
    Ok(())
}

/// 100 times: fills two blocks, searches for a byte in one, compares, copies and moves them, at changing alignments.
pub fn block_operations(place: &mut UserContext<'_>) -> anyhow::Result<()> {
    let (mut left, mut right) = ([0u8; LARGEST + WORD], [0u8; LARGEST + WORD]);
    for n in 0..place.times(100) as usize {
        let (a, b, size) = (n % WORD, n / WORD % WORD, SIZES[n % SIZES.len()]);
        left[a..][..size].fill(b'A');
        right[b..][..size].fill(b'A');
        let odd = n % size;
        left[a..][..size][odd] = b'Z';
        let (one, other) = (black_box(&left[a..a + size]), black_box(&right[b..b + size]));
        let found = one.iter().position(|x| *x == b'Z');
        let order = one.cmp(other);
        expect("Searching and comparing a block", (found, order), (Some(odd), std::cmp::Ordering::Greater))?;
        left[a..][..size].copy_from_slice(&right[b..][..size]);
        right[a..][..size].copy_from_slice(&left[b..][..size]);
        black_box((&mut left, &mut right));
        expect("Copying a block", left[a + odd], b'A')?;
    }
    Ok(())
}

/// Sizes of 100 copies: mostly at most a word, sometimes more, once up to 64 KiB.
const COPIES: [usize; 93] = {
    let (small, sevens, lines) = ([1, 2, 3, 4, 5, 6], [7; 6], [8, 9, 11, 17, 33, 63]);
    let large = [127, 256, 1001, 1200, 1492, 1500, 1024, 2048, 3172, 4096, 8192, 16384, 32768, 65536, 512];
    let rows = [&small, &sevens, &lines, &sevens, &small, &sevens];
    let after = [&sevens, &small, &sevens, &lines, &sevens, &small, &sevens];
    let mut sizes = [0; 93];
    let (mut at, mut row) = (0, 0);
    while row < rows.len() + after.len() {
        let six = if row < rows.len() { rows[row] } else { after[row - rows.len()] };
        let mut i = 0;
        while i < six.len() {
            sizes[at] = six[i];
            at += 1;
            i += 1;
        }
        row += 1;
        if row == rows.len() {
            let mut i = 0;
            while i < large.len() {
                sizes[at] = large[i];
                at += 1;
                i += 1;
            }
        }
    }
    assert!(at == sizes.len());
    sizes
};

/// 100 copies of 1 byte to 64 KiB, most of 7 bytes, from and to all alignments.
pub fn copies(place: &mut UserContext<'_>) -> anyhow::Result<()> {
    let (from, to) = (values::bytes(), &mut place.kept.copies);
    to.resize(from.len(), 0);
    for n in 0..place.scale.times(100) as usize {
        let size = COPIES[n % COPIES.len()];
        let (source, target) = (n / WORD % WORD, n % WORD);
        to[target..][..size].copy_from_slice(black_box(&from[source..][..size]));
        let last = black_box(&to[target..][..size])[size - 1];
        expect("Copying memory", last, ((source + size - 1) % values::PERIOD) as u8)?;
    }
    Ok(())
}

fn moves(place: &UserContext<'_>, full: u64, touch: bool) -> anyhow::Result<()> {
    let rounds = place.times(full);
    let done = program_break::exercise(rounds, touch).context("Cannot move the program break")?;
    let pieces = rounds * PIECES as u64;
    // A piece of 4 KiB is written every 128 bytes.
    expect(
        "Moving the program break",
        done,
        Moves { moves: rounds + pieces, touched: if touch { pieces * 32 } else { 0 } },
    )
}

/// 1000 times: moves the program break down by 64 KiB, and up again by 4 KiB at a time.
pub fn program_break(place: &mut UserContext<'_>) -> anyhow::Result<()> {
    moves(place, 1000, false)
}

/// 100 times the same, touching every piece.
pub fn pages(place: &mut UserContext<'_>) -> anyhow::Result<()> {
    moves(place, 100, true)
}
