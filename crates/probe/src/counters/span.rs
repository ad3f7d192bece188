//! The edges of a measurement: a mark for the profiler, and a reading of all counters before the first edge and after the last.
//!
//! A separate process takes the readings ([`super::reader`]), before the clock is read at the beginning and after it is read at the end, so they are
//! outside measured time.
//!
//! Invariant: unless [`arm`] was called, an edge is only its clock and its mark. A window's counters are stored for the process that called [`arm`],
//! whichever of its descendants cuts the window.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::reader::{Order, Reader};
use bigiron_model::counters::Counted;
use bigiron_sys::mark;
use bigiron_sys::shared_memory::SharedMemory;

/// Bytes for the counters of all windows; they take no memory until touched.
const BYTES: usize = 4 << 20;

/// The stored counters of windows: the number of used bytes, then the length and text of each window, padded to whole words.
static KEPT: OnceLock<SharedMemory> = OnceLock::new();

static READER: OnceLock<Reader> = OnceLock::new();

/// From now on, counters are read for this process and all that it forks; with `own` also the counts of the measuring process and its descendants
/// alone. A second call has no effect.
///
/// # Errors
/// There is no memory for the counters, or no process to read them.
pub fn arm(own: bool) -> io::Result<()> {
    if READER.get().is_some() {
        return Ok(());
    }
    let memory = SharedMemory::new(BYTES)?;
    let memory = KEPT.get_or_init(|| memory);
    let _ = READER.set(Reader::start(own, |counted| keep(memory, counted))?);
    Ok(())
}

/// Begins a measurement at the returned time.
#[inline(always)]
pub fn open<T>(clock: impl FnOnce() -> T) -> T {
    before();
    let time = clock();
    mark::begin();
    time
}

/// Ends a measurement at the returned time; another span may follow.
#[inline(always)]
pub fn close<T>(clock: impl FnOnce() -> T) -> T {
    mark::end();
    let time = clock();
    after();
    time
}

/// Ends a window, which consists of the spans since the last cut.
pub fn cut() {
    mark::cut();
    ask(Order::Cut);
}

/// Reads the counters at the beginning of a span that the caller marks itself.
pub fn before() {
    ask(Order::Before);
}

/// Reads the counters at its end.
pub fn after() {
    ask(Order::After);
}

#[cold]
#[inline(never)]
fn ask(order: Order) {
    if let Some(reader) = READER.get() {
        reader.ask(order);
    }
}

const WORD: usize = 8;

/// Stores a window's counters. If there is no room for a window, it and all later ones are lost.
fn keep(memory: &SharedMemory, counted: Option<&Counted>) {
    let mut text = serde_json::to_vec(&counted).expect("counters have string keys only");
    let len = text.len();
    text.resize(len.next_multiple_of(WORD), b' ');
    let at = memory.at::<AtomicU64>(0).fetch_add((WORD + text.len()) as u64, Ordering::AcqRel) as usize;
    if WORD + at + WORD + text.len() <= memory.len() {
        memory.copy_in(2 * WORD + at, &text);
        memory.at::<AtomicU64>(WORD + at).store(len as u64, Ordering::Release);
    }
}

/// The counters of every window cut since [`arm`], in order, beginning with number `first`; `None` for a window in which nothing was read.
pub fn windows(first: usize) -> Vec<Option<Counted>> {
    KEPT.get().map_or_else(Vec::new, |memory| read(memory).into_iter().skip(first).collect())
}

fn read(memory: &SharedMemory) -> Vec<Option<Counted>> {
    let end = memory.at::<AtomicU64>(0).load(Ordering::Acquire) as usize;
    let (mut at, mut windows) = (0, Vec::new());
    while at < end && 2 * WORD + at <= memory.len() {
        let len = memory.at::<AtomicU64>(WORD + at).load(Ordering::Acquire) as usize;
        if len == 0 || 2 * WORD + at + len.next_multiple_of(WORD) > memory.len() {
            break;
        }
        let mut text = vec![0; len.next_multiple_of(WORD)];
        memory.copy_out(2 * WORD + at, &mut text);
        windows.push(serde_json::from_slice(&text[..len]).ok().flatten());
        at += WORD + text.len();
    }
    windows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_come_back_in_order_and_one_without_room_ends_them() {
        let memory = SharedMemory::new(4096).unwrap();
        let counted = |n: u64| Counted { events: [("vm.pgfault".to_owned(), Some(n))].into(), ..Counted::default() };
        assert_eq!(read(&memory), []);
        keep(&memory, Some(&counted(7)));
        keep(&memory, None);
        assert_eq!(read(&memory), [Some(counted(7)), None]);
        (0..200).for_each(|n| keep(&memory, Some(&counted(n))));
        let all = read(&memory);
        assert!((30..100).contains(&all.len()), "{}", all.len());
        assert_eq!(all[2..6], [0, 1, 2, 3].map(|n| Some(counted(n))));
    }

    /// Runs in a separate process, so that the measurements of other tests are not counted.
    #[test]
    fn what_a_forked_child_measures_is_known_to_its_parent() {
        let child = bigiron_sys::process::fork_child(|| {
            if open(|| 1) != 1 || !windows(0).is_empty() || arm(false).is_err() {
                return 1;
            }
            let grandchild = bigiron_sys::process::fork_child(|| {
                open(|| ());
                // The first touch of a page is a fault that every kernel counts.
                let page = SharedMemory::new(4096).unwrap();
                page.touch();
                close(|| ());
                cut();
                0
            });
            if grandchild.and_then(bigiron_sys::process::Child::wait).is_err() {
                return 2;
            }
            cut();
            match &windows(0)[..] {
                [Some(counted), None] => {
                    let faults = counted.events.get("vm.pgfault").copied().flatten();
                    if faults > Some(0) && counted.amounts.contains_key("mem.PageTables") { 0 } else { 3 }
                }
                _ => 4,
            }
        });
        assert_eq!(child.unwrap().wait().unwrap(), bigiron_sys::process::Exit::Status(0));
    }
}
