//! `select` on borrowed descriptors, which has no safe form in rustix.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::event::{FdSetElement, Timespec, fd_set_insert, fd_set_num_elements, select};

/// A set of descriptors for `select` on reading.
pub struct ReadSet<'fd> {
    _fds: Vec<BorrowedFd<'fd>>,
    wanted: Vec<FdSetElement>,
    ready: Vec<FdSetElement>,
    bound: i32,
}

impl<'fd> ReadSet<'fd> {
    pub fn new(fds: Vec<BorrowedFd<'fd>>) -> Self {
        let bound = fds.iter().map(|fd| fd.as_raw_fd() + 1).max().unwrap_or(0);
        let mut wanted = vec![FdSetElement::default(); fd_set_num_elements(fds.len(), bound)];
        for fd in &fds {
            fd_set_insert(&mut wanted, fd.as_raw_fd());
        }
        Self { ready: wanted.clone(), _fds: fds, wanted, bound }
    }

    /// Number of descriptors readable now; does not wait.
    pub fn poll(&mut self) -> io::Result<usize> {
        self.ready.copy_from_slice(&self.wanted);
        let now = Timespec::default();
        // SAFETY: the set was sized for `bound`, and its descriptors are borrowed, so open, as long as self lives.
        let n = unsafe { select(self.bound, Some(&mut self.ready), None, None, Some(&now)) }?;
        Ok(n as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn readable_descriptors_are_counted() {
        let (a, b) = (rustix::pipe::pipe().unwrap(), rustix::pipe::pipe().unwrap());
        let mut set = ReadSet::new(vec![a.0.as_fd(), b.0.as_fd()]);
        assert_eq!(set.poll().unwrap(), 0);
        rustix::io::write(&b.1, &[1]).unwrap();
        assert_eq!((set.poll().unwrap(), set.poll().unwrap()), (1, 1));
        rustix::io::write(&a.1, &[1]).unwrap();
        assert_eq!(set.poll().unwrap(), 2);
    }
}
