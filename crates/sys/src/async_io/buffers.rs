//! The engines' buffers.
//!
//! Invariant: a buffer in flight cannot be borrowed, so only the kernel touches it.

use std::io;
use std::ptr::NonNull;

use super::Request;

const PAGE: usize = 4096;

/// Anonymous pages for `depth` buffers of `block` bytes, each beginning on a page: suitable for direct I/O.
pub(super) struct Buffers {
    base: NonNull<u8>,
    block: usize,
    /// Bytes from one buffer to the next.
    stride: usize,
    in_flight: Vec<bool>,
    pending: usize,
}

// SAFETY: the mapping is private to this value; nothing in it depends on the thread.
unsafe impl Send for Buffers {}

impl Buffers {
    pub(super) fn new(depth: usize, block: usize) -> io::Result<Self> {
        let stride = block.next_multiple_of(PAGE);
        // SAFETY: a fresh anonymous mapping, no existing memory is touched.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                depth * stride,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mmap returned page 0"))?;
        Ok(Self { base, block, stride, in_flight: vec![false; depth], pending: 0 })
    }

    /// Number of buffers.
    pub(super) fn depth(&self) -> usize {
        self.in_flight.len()
    }

    /// All buffers in pieces of at most `bytes`: the number of buffers in each piece, and the pieces.
    pub(super) fn pieces(&self, bytes: usize) -> (usize, Vec<libc::iovec>) {
        let each = (bytes / self.stride).clamp(1, self.depth());
        let piece = |first: usize| libc::iovec {
            iov_base: self.pointer(first).cast(),
            iov_len: each.min(self.depth() - first) * self.stride,
        };
        (each, (0..self.depth()).step_by(each).map(piece).collect())
    }

    /// Bytes of each.
    pub(super) fn block(&self) -> usize {
        self.block
    }

    pub(super) fn get(&mut self, slot: usize) -> &mut [u8] {
        assert!(!self.in_flight[slot], "buffer {slot} is in flight");
        // SAFETY: in range, not in flight (the kernel does not touch it), and borrowed mutably from self.
        unsafe { std::slice::from_raw_parts_mut(self.pointer(slot), self.block) }
    }

    /// Where a slot's buffer begins.
    #[inline]
    pub(super) fn pointer(&self, slot: usize) -> *mut u8 {
        assert!(slot < self.in_flight.len(), "no such buffer");
        // SAFETY: slot is in range (asserted), so the offset stays inside the mapping.
        unsafe { self.base.as_ptr().add(slot * self.stride) }
    }

    /// Gives the request's buffer to the kernel.
    #[inline]
    pub(super) fn take(&mut self, request: &Request<'_>) -> io::Result<()> {
        self.mark(request)?;
        self.pending += 1;
        Ok(())
    }

    /// [`Buffers::take`] of one of several; the caller then passes their number to [`Buffers::marked`].
    #[inline]
    pub(super) fn mark(&mut self, request: &Request<'_>) -> io::Result<()> {
        match self.in_flight.get_mut(request.slot) {
            Some(in_flight) if !*in_flight && request.len <= self.block => *in_flight = true,
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        }
        Ok(())
    }

    /// Gives the buffers of all requests to the kernel, or none if one cannot be given.
    pub(super) fn take_all(&mut self, requests: &[Request<'_>]) -> io::Result<()> {
        for (i, request) in requests.iter().enumerate() {
            if let Err(e) = self.take(request) {
                requests[..i].iter().for_each(|r| self.give_back(r.slot));
                return Err(e);
            }
        }
        Ok(())
    }

    /// Counts this many marked buffers as in flight.
    #[inline]
    pub(super) fn marked(&mut self, count: usize) {
        self.pending += count;
    }

    /// Takes the buffer back from the kernel.
    #[inline]
    pub(super) fn give_back(&mut self, slot: usize) {
        assert!(self.in_flight[slot], "a buffer that is not in flight");
        self.in_flight[slot] = false;
        self.pending -= 1;
    }

    pub(super) fn pending(&self) -> usize {
        self.pending
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`; the engines wait for what is in flight before they drop it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.stride * self.in_flight.len()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_of_whole_buffers_and_hold_them_all() {
        let buffers = Buffers::new(7, 5 << 10).unwrap();
        // A buffer begins on a page, so it takes two.
        for (bytes, each, lengths) in
            [(1 << 30, 7, vec![56 << 10]), (24 << 10, 3, vec![24 << 10, 24 << 10, 8 << 10]), (1, 1, vec![8 << 10; 7])]
        {
            let (n, pieces) = buffers.pieces(bytes);
            assert_eq!((n, pieces.iter().map(|p| p.iov_len).collect::<Vec<_>>()), (each, lengths));
            for (i, piece) in pieces.iter().enumerate() {
                assert_eq!(piece.iov_base.cast(), buffers.pointer(i * each));
            }
        }
    }
}
