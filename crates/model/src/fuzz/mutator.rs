//! Changes inputs at random: bits, lengths, numbers, words, lines, and pieces of other inputs.

use std::ops::Range;

use super::random::Random;

/// Bytes of the largest input.
const MOST: usize = 64 << 10;

/// Numbers at which lengths, offsets and counts go wrong, as text.
const NUMBERS: [&str; 24] = [
    "0",
    "1",
    "-1",
    "2",
    "7",
    "8",
    "127",
    "128",
    "255",
    "256",
    "65535",
    "65536",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775808",
    "1e308",
    "1e-320",
    "0.5",
];

pub(super) struct Mutator {
    random: Random,
    words: &'static [&'static str],
}

impl Mutator {
    pub(super) fn new(seed: u64, words: &'static [&'static str]) -> Self {
        Self { random: Random::new(seed), words }
    }

    /// One of `pool`, changed in 1, 2, 4 or 8 places.
    pub(super) fn change(&mut self, pool: &[Vec<u8>]) -> Vec<u8> {
        // Half of the time a recent one: what follows from a new outcome is soon tried.
        let recent = if self.random.one_in(2) { pool.len().min(16) } else { pool.len() };
        let mut bytes = pool[pool.len() - 1 - self.random.below(recent)].clone();
        for _ in 0..1 << self.random.below(4) {
            let other = self.random.pick(pool);
            self.change_once(&mut bytes, other);
            bytes.truncate(MOST);
        }
        bytes
    }

    fn change_once(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        match self.random.below(14) {
            0 => {
                let bit = 1 << self.random.below(8);
                self.byte(bytes, |byte| byte ^ bit);
            }
            1 => {
                let value = self.random.next() as u8;
                self.byte(bytes, |_| value);
            }
            2 => {
                let range = self.range(bytes);
                bytes.drain(range);
            }
            3 => {
                let at = self.random.below(bytes.len() + 1);
                let inserted: Vec<u8> = (0..=self.random.below(8)).map(|_| self.random.next() as u8).collect();
                insert(bytes, at, &inserted);
            }
            4 => self.repeat(bytes),
            5 => {
                let (to, from) = (self.range(bytes), self.range(other));
                bytes.splice(to, other[from].iter().copied());
            }
            6 | 7 => self.overwrite_number(bytes),
            8 => {
                let number = *self.random.pick(&NUMBERS);
                self.replace_token(bytes, |b| b.is_ascii_digit() || matches!(b, b'-' | b'.'), number.as_bytes());
            }
            9 | 10 if !self.words.is_empty() => {
                let word = self.random.pick(self.words).as_bytes();
                if self.random.one_in(3) {
                    let at = self.random.below(bytes.len() + 1);
                    insert(bytes, at, word);
                } else {
                    self.replace_token(bytes, is_word, word);
                }
            }
            11 => {
                let at = self.random.below(bytes.len());
                bytes.truncate(at);
            }
            12 => self.lines(bytes, other),
            _ => {
                let word = token_at(other, self.random.below(other.len()), is_word);
                self.replace_token(bytes, is_word, &other[word]);
            }
        }
    }

    fn byte(&mut self, bytes: &mut [u8], change: impl Fn(u8) -> u8) {
        let at = self.random.below(bytes.len());
        if let Some(byte) = bytes.get_mut(at) {
            *byte = change(*byte);
        }
    }

    /// A part, mostly a short one.
    fn range(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.random.below(bytes.len());
        let longest = if self.random.one_in(4) { bytes.len() } else { 32 };
        start..(start + 1 + self.random.below(longest)).min(bytes.len())
    }

    /// Repeats a part, sometimes up to the largest input: deep nesting and long lists.
    fn repeat(&mut self, bytes: &mut Vec<u8>) {
        let range = self.range(bytes);
        let part = bytes[range.clone()].to_vec();
        if part.is_empty() {
            return;
        }
        let times = if self.random.one_in(32) { MOST / part.len() } else { 1 + self.random.below(6) };
        insert(bytes, range.end, &part.repeat(times));
    }

    /// Overwrites 1, 2, 4 or 8 bytes with a number at which a length or an offset may go wrong.
    fn overwrite_number(&mut self, bytes: &mut [u8]) {
        let width = 1 << self.random.below(4);
        let most = u64::MAX >> (64 - 8 * width);
        let near = self.random.below(17) as u64;
        let value = match self.random.below(7) {
            0 => near,
            1 => most - near,
            2 => (most / 2).wrapping_add(near).wrapping_sub(8),
            3 => (bytes.len() as u64).wrapping_add(near).wrapping_sub(8),
            4 => 1 << self.random.below(8 * width),
            5 => (1_u64 << self.random.below(8 * width)).wrapping_sub(1),
            _ => self.random.next(),
        };
        let all = if self.random.one_in(4) { value.to_be_bytes() } else { value.to_le_bytes() };
        let mut at = self.random.below(bytes.len());
        if self.random.one_in(2) {
            at = at / width * width;
        }
        if let Some(field) = bytes.get_mut(at..at + width) {
            field.copy_from_slice(&all[..width]);
        }
    }

    /// Replaces a word of bytes that `belongs` accepts, near a random place.
    fn replace_token(&mut self, bytes: &mut Vec<u8>, belongs: impl Fn(u8) -> bool, with: &[u8]) {
        let start = self.random.below(bytes.len());
        if let Some(at) = bytes.iter().skip(start).position(|b| belongs(*b)).map(|n| start + n) {
            let token = token_at(bytes, at, belongs);
            bytes.splice(token, with.iter().copied());
        }
    }

    /// Removes, doubles or moves a line, or takes one from another input.
    fn lines(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        let is_inner = |b: u8| b != b'\n';
        let line = token_at(bytes, self.random.below(bytes.len()), is_inner);
        let end = (line.end + 1).min(bytes.len());
        let text = bytes[line.start..end].to_vec();
        let kind = self.random.below(4);
        if matches!(kind, 0 | 1) {
            bytes.drain(line.start..end);
        }
        let place = token_at(bytes, self.random.below(bytes.len()), is_inner).start;
        match kind {
            0 => {}
            1 | 2 => insert(bytes, place, &text),
            _ => {
                let from = token_at(other, self.random.below(other.len()), is_inner);
                let line = [&other[from], b"\n"].concat();
                insert(bytes, place, &line);
            }
        }
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

/// The bytes around `at` that `belongs` accepts.
fn token_at(bytes: &[u8], at: usize, belongs: impl Fn(u8) -> bool) -> Range<usize> {
    let start = bytes[..at].iter().rposition(|b| !belongs(*b)).map_or(0, |n| n + 1);
    let end = bytes[at..].iter().position(|b| !belongs(*b)).map_or(bytes.len(), |n| at + n);
    start..end
}

fn insert(bytes: &mut Vec<u8>, at: usize, what: &[u8]) {
    bytes.splice(at..at, what.iter().copied());
}
