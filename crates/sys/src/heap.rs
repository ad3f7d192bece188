//! A separate heap, like that of C programs: Doug Lea's allocator, which keeps freed memory up to a limit, whereas musl's returns it to the kernel at
//! once.
//!
//! Invariant: a piece lives no longer than its heap, and only bytes that were written can be read.

use std::cell::RefCell;
use std::ops::Deref;
use std::ptr::NonNull;

use dlmalloc::Dlmalloc;

/// Free memory that a heap keeps at its end; the rest goes back to the kernel. glibc's M_TRIM_THRESHOLD and M_TOP_PAD (mallopt(3)).
const KEPT: usize = 128 << 10;

/// A heap for one thread; dropping it returns all its memory to the kernel.
pub struct Heap(RefCell<Dlmalloc>);

impl Default for Heap {
    fn default() -> Self {
        let mut heap = Dlmalloc::new();
        // Memory is taken from the kernel in steps of the size that is kept.
        assert!(heap.set_granularity(KEPT), "a power of two");
        Self(RefCell::new(heap))
    }
}

impl Heap {
    /// `size` uninitialised bytes; `None` if the kernel has no more.
    pub fn piece(&self, size: usize) -> Option<Allocation<'_>> {
        // SAFETY: any size is accepted; the piece is given back once, by its `Drop`, to this heap, which outlives it.
        let start = NonNull::new(unsafe { self.0.borrow_mut().c_malloc(size) })?;
        Some(Allocation { heap: self, start, size, written: 0 })
    }

    /// `size` zeroed bytes; `None` if the kernel has no more.
    pub fn zeros(&self, size: usize) -> Option<Allocation<'_>> {
        // SAFETY: as above; the alignment is one that every piece has.
        let start = NonNull::new(unsafe { self.0.borrow_mut().calloc(size, 1) })?;
        Some(Allocation { heap: self, start, size, written: size })
    }

    /// Returns free memory beyond the kept amount to the kernel, and tells whether there was any.
    pub fn trim(&self) -> bool {
        // SAFETY: only touches memory that no piece lies in.
        unsafe { self.0.borrow_mut().trim(KEPT) }
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: no piece outlives the heap it borrows.
        unsafe { self.0.replace(Dlmalloc::new()).destroy() };
    }
}

/// Memory of a heap, freed when dropped. Its slice contains the bytes written so far.
pub struct Allocation<'h> {
    heap: &'h Heap,
    start: NonNull<u8>,
    size: usize,
    written: usize,
}

impl Allocation<'_> {
    /// Requested bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Writes `bytes` to its start.
    ///
    /// # Panics
    /// There is no room for them.
    pub fn write(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.size, "{} bytes into a piece of {}", bytes.len(), self.size);
        // SAFETY: the piece is ours alone, has that many bytes, and overlaps nothing that is borrowed.
        unsafe { self.start.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        self.written = self.written.max(bytes.len());
    }
}

impl Deref for Allocation<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: this many bytes of it were written.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.written) }
    }
}

impl Drop for Allocation<'_> {
    fn drop(&mut self) {
        // SAFETY: it came from this heap, and nobody has it any more.
        unsafe { self.heap.0.borrow_mut().c_free(self.start.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_shows_what_was_written() {
        let heap = Heap::default();
        let mut piece = heap.piece(5).unwrap();
        assert_eq!((&*piece, piece.size()), (&b""[..], 5));
        piece.write(b"abc");
        piece.write(b"x");
        assert_eq!(&*piece, b"xbc");
        assert_eq!(&*heap.zeros(3).unwrap(), [0; 3]);
    }

    #[test]
    fn pieces_do_not_overlap() {
        let heap = Heap::default();
        let mut pieces: Vec<_> = (1..200u8).map(|n| heap.piece(usize::from(n) * 37).unwrap()).collect();
        for (piece, n) in pieces.iter_mut().zip(1..) {
            piece.write(&vec![n; usize::from(n) * 37]);
        }
        assert!(pieces.iter().zip(1..).all(|(piece, n)| piece.iter().all(|b| *b == n)));
    }

    #[test]
    fn what_was_given_back_is_cleared_for_zeros() {
        let heap = Heap::default();
        for size in [24, 1000, 100_000] {
            heap.piece(size).unwrap().write(&vec![7; size]);
            assert!(heap.zeros(size).unwrap().iter().all(|b| *b == 0));
        }
    }

    #[test]
    fn what_is_beyond_the_limit_goes_back() {
        let heap = Heap::default();
        let pieces: Vec<_> = (0..100).map(|_| heap.piece(8 << 10).unwrap()).collect();
        assert!(!heap.trim());
        drop(pieces);
        assert!(heap.trim());
        assert!(!heap.trim());
    }

    #[test]
    #[should_panic(expected = "6 bytes into a piece of 5")]
    fn no_piece_is_written_beyond_its_end() {
        Heap::default().piece(5).unwrap().write(b"abcdef");
    }
}
