//! Sorting and searching as in a C library: a merge sort and a binary search that call an opaque comparison function.
//!
//! Invariant: a table is in order after each sort, and a search finds a number if and only if it is in the table.

use std::hint::black_box;

use super::UserContext;
use super::verdict::{expect, wrong};

/// Numbers of the table: 0 to 9999.
const NUMBERS: usize = 10_000;
/// Distance between numbers searched for; they go to twice the largest, so that half of them are absent.
const STEP: usize = 10;

/// Below 0 if the first comes first, above 0 if the second does, as in C.
type Compare = fn(&i32, &i32) -> i32;

fn ascending(a: &i32, b: &i32) -> i32 {
    a.wrapping_sub(*b)
}

fn descending(a: &i32, b: &i32) -> i32 {
    b.wrapping_sub(*a)
}

/// Sorts `numbers`, with a buffer of the same size. The standard library's sort would detect a sorted or reversed table and do
/// little.
fn merge_sort(numbers: &mut [i32], room: &mut [i32], compare: Compare) {
    if numbers.len() < 2 {
        return;
    }
    let middle = numbers.len() / 2;
    let (left, right) = numbers.split_at_mut(middle);
    merge_sort(left, room, compare);
    merge_sort(right, room, compare);
    let (mut first, mut second) = (&*left, &*right);
    let mut taken = 0;
    for slot in room.iter_mut() {
        let (Some((a, rest)), Some((b, others))) = (first.split_first(), second.split_first()) else { break };
        if compare(a, b) > 0 {
            *slot = *b;
            second = others;
        } else {
            *slot = *a;
            first = rest;
        }
        taken += 1;
    }
    // The rest of the right half is already in place.
    let end = taken + first.len();
    room[taken..end].copy_from_slice(first);
    numbers[..end].copy_from_slice(&room[..end]);
}

/// Whether `number` is in a sorted table.
fn search(numbers: &[i32], number: i32, compare: Compare) -> bool {
    let (mut low, mut high) = (0, numbers.len());
    while low < high {
        let middle = low.midpoint(high);
        match compare(&number, &numbers[middle]) {
            0 => return true,
            order if order < 0 => high = middle,
            _ => low = middle + 1,
        }
    }
    false
}

/// Sorts 10,000 numbers in order up, down and up again, and searches for 2000; counted as 5 operations, twice.
pub fn sort(place: &mut UserContext<'_>) -> anyhow::Result<()> {
    let rounds = place.times(2);
    let numbers = &mut place.kept.sorted;
    if numbers.is_empty() {
        numbers.extend(0..NUMBERS as i32);
    }
    for _ in 0..rounds {
        for up in [true, false, true] {
            let mut room = vec![0; NUMBERS];
            merge_sort(numbers, &mut room, black_box(if up { ascending as Compare } else { descending }));
            let in_order = if up { numbers.is_sorted() } else { numbers.is_sorted_by(|a, b| a >= b) };
            if !in_order {
                return Err(wrong("A sorted table is not in order".to_owned()));
            }
        }
        let compare = black_box(ascending as Compare);
        let looked_for = (0..2 * NUMBERS as i32).step_by(STEP);
        let absent = looked_for.filter(|n| !search(numbers, *n, compare)).count();
        expect("Searching a table", absent, NUMBERS / STEP)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn it_sorts(mut numbers in proptest::collection::vec(-1_000_000..1_000_000i32, 0..200)) {
            let mut right = numbers.clone();
            right.sort();
            let mut room = vec![0; numbers.len()];
            merge_sort(&mut numbers, &mut room, ascending);
            assert_eq!(numbers, right);
            merge_sort(&mut numbers, &mut room, descending);
            right.reverse();
            assert_eq!(numbers, right);
        }
    }

    #[test]
    fn what_is_there_is_found() {
        let numbers: Vec<i32> = (0..7).map(|n| 2 * n).collect();
        assert!((0..14).all(|n| search(&numbers, n, ascending) == (n % 2 == 0)));
        assert!(!search(&[], 0, ascending));
    }
}
