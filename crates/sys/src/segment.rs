//! Anonymous memory that a family of processes shares, carved into typed parts before they are forked.
//!
//! Invariant: no two carved parts overlap. Parts are atomics, or bytes that are accessed only through their own latch, so a reference to plain bytes
//! never meets a writer in another process.

use std::cell::Cell;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::AtomicU8;

use crate::latch::{Held, Latch, RwLatch};
use crate::shared_memory::{Shared, SharedMemory};

/// Declares a struct of atomics that may be in a [`Segment`]. It must have no padding; the compiler checks.
#[macro_export]
macro_rules! shared_struct {
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($(#[$fmeta:meta])* $fvis:vis $field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[repr(C)]
        $vis struct $name { $($(#[$fmeta])* $fvis $field: $type,)* }
        const _: () = {
            const fn shared<T: $crate::shared_memory::Shared>() {}
            $(shared::<$type>();)*
            assert!(size_of::<$name>() == 0 $(+ size_of::<$type>())*, "has padding");
        };
        // SAFETY: repr(C) without padding, and every field is `Shared` (both checked above).
        unsafe impl $crate::shared_memory::Shared for $name {}
    };
}
pub use shared_struct;

/// Bytes of a cache line: each part begins on one, so that unrelated parts do not share it.
const LINE: usize = 64;
/// Bytes of a page: byte areas begin on one, as direct I/O requires.
pub const PAGE: usize = 4096;

/// A shared mapping and the number of bytes carved from it.
pub struct Segment {
    memory: SharedMemory,
    used: Cell<usize>,
}

impl Segment {
    /// `len` bytes of zeroes. Untouched pages cost nothing.
    pub fn new(len: usize) -> io::Result<Self> {
        Ok(Self::of(SharedMemory::new(len)?))
    }

    /// A segment of all of `memory`.
    pub fn of(memory: SharedMemory) -> Self {
        Self { memory, used: Cell::new(0) }
    }

    /// The underlying memory.
    pub fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    /// Bytes carved so far.
    pub fn used(&self) -> usize {
        self.used.get()
    }

    fn carve<T: Shared>(&self, count: usize, align: usize) -> &[T] {
        let start = self.used.get().next_multiple_of(align);
        let part = self.memory.slice(start, count);
        self.used.set(start + size_of_val(part));
        part
    }

    /// A new part holding one zeroed `T`. Panics if the segment is full, as do the functions below.
    pub fn one<T: Shared>(&self) -> &T {
        &self.many(1)[0]
    }

    /// A new part holding `count` zeroed `T`.
    pub fn many<T: Shared>(&self, count: usize) -> &[T] {
        self.carve(count, LINE)
    }

    /// A new part of `len` bytes under one latch.
    pub fn latched(&self, len: usize) -> LatchedBytes<'_> {
        LatchedBytes { latch: self.one(), bytes: self.carve(len, PAGE) }
    }

    /// A new part of `count` frames of `size` bytes, each under a latch of its own.
    pub fn frames(&self, count: usize, size: usize) -> Frames<'_> {
        Frames { latches: self.many(count), bytes: self.carve(count * size, PAGE), size }
    }
}

/// Bytes that one process at a time can access.
pub struct LatchedBytes<'s> {
    latch: &'s Latch,
    bytes: &'s [AtomicU8],
}

impl LatchedBytes<'_> {
    /// Takes the latch, sleeping if another process has it.
    pub fn lock(&self) -> LockedBytes<'_> {
        LockedBytes { _held: self.latch.lock(), bytes: self.bytes }
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// [`LatchedBytes`] whose latch is held.
pub struct LockedBytes<'a> {
    _held: Held<'a>,
    bytes: &'a [AtomicU8],
}

impl Deref for LockedBytes<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: carved once, reached only through the latch, which is held: nobody writes while this borrow lives.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr().cast(), self.bytes.len()) }
    }
}

impl DerefMut for LockedBytes<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` makes this the only borrow; atomics may be written through a shared pointer.
        unsafe { std::slice::from_raw_parts_mut(self.bytes.as_ptr().cast::<u8>().cast_mut(), self.bytes.len()) }
    }
}

/// Frames of equal size, each with a latch for many readers or one writer.
pub struct Frames<'s> {
    latches: &'s [RwLatch],
    bytes: &'s [AtomicU8],
    size: usize,
}

impl Frames<'_> {
    /// How many frames there are.
    pub fn count(&self) -> usize {
        self.latches.len()
    }

    /// The frame's bytes for reading; waits while a writer has them or waits for them.
    pub fn shared(&self, frame: usize) -> SharedFrame<'_> {
        self.latches[frame].lock_shared();
        SharedFrame { latch: &self.latches[frame], bytes: self.bytes_of(frame) }
    }

    /// The frame's bytes for writing; waits while any other process has them.
    pub fn exclusive(&self, frame: usize) -> ExclusiveFrame<'_> {
        self.latches[frame].lock_exclusive();
        ExclusiveFrame { latch: &self.latches[frame], bytes: self.bytes_of(frame) }
    }

    /// Bytes that `count` frames of `size` bytes need of a segment.
    pub fn bytes(count: usize, size: usize) -> usize {
        count * (size_of::<RwLatch>() + size) + LINE + PAGE
    }

    fn bytes_of(&self, frame: usize) -> &[AtomicU8] {
        &self.bytes[frame * self.size..][..self.size]
    }
}

/// A frame latched against writers.
pub struct SharedFrame<'a> {
    latch: &'a RwLatch,
    bytes: &'a [AtomicU8],
}

impl Deref for SharedFrame<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: carved once, reached only through the latch, which is held against writers while this borrow lives.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr().cast(), self.bytes.len()) }
    }
}

impl Drop for SharedFrame<'_> {
    fn drop(&mut self) {
        self.latch.unlock_shared();
    }
}

/// A frame latched against everybody else.
pub struct ExclusiveFrame<'a> {
    latch: &'a RwLatch,
    bytes: &'a [AtomicU8],
}

impl Deref for ExclusiveFrame<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: carved once, reached only through the latch, which is held against everybody while this borrow lives.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr().cast(), self.bytes.len()) }
    }
}

impl DerefMut for ExclusiveFrame<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` makes this the only borrow; atomics may be written through a shared pointer.
        unsafe { std::slice::from_raw_parts_mut(self.bytes.as_ptr().cast::<u8>().cast_mut(), self.bytes.len()) }
    }
}

impl Drop for ExclusiveFrame<'_> {
    fn drop(&mut self) {
        self.latch.unlock_exclusive();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Exit, fork_child};
    use std::sync::atomic::AtomicU64;

    #[test]
    fn parts_do_not_overlap() {
        let segment = Segment::new(5 * PAGE).unwrap();
        let word = segment.one::<AtomicU8>();
        let bytes = segment.latched(PAGE);
        let frames = segment.frames(2, PAGE);
        bytes.lock().fill(1);
        frames.exclusive(0).fill(2);
        frames.exclusive(1).fill(3);
        assert_eq!(word.load(std::sync::atomic::Ordering::SeqCst), 0);
        assert!(bytes.lock().iter().all(|b| *b == 1));
        assert!(frames.shared(0).iter().all(|b| *b == 2));
        assert!(frames.shared(1).iter().all(|b| *b == 3));
    }

    #[test]
    #[should_panic(expected = "of 4096")]
    fn a_segment_can_be_used_up() {
        let segment = Segment::new(4096).unwrap();
        segment.many::<AtomicU64>(500);
        segment.many::<AtomicU64>(500);
    }

    #[test]
    fn a_frame_is_never_seen_half_written() {
        let segment = Segment::new(4 * PAGE).unwrap();
        let frames = segment.frames(1, PAGE);
        let writer = fork_child(|| {
            for i in 0..5_000u32 {
                frames.exclusive(0).fill(i as u8);
            }
            0
        })
        .unwrap();
        for _ in 0..5_000 {
            let frame = frames.shared(0);
            assert!(frame.iter().all(|b| *b == frame[0]));
        }
        assert_eq!(writer.wait().unwrap(), Exit::Status(0));
    }
}
