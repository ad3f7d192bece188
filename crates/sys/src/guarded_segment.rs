//! A System V segment and the System V semaphore that guards it: the oldest way in which databases share memory.
//!
//! Invariant: both are private to this value (no key); the segment is removed as soon as it is attached, the semaphore when the value is dropped.

use std::io;
use std::ptr::NonNull;

/// A segment that is accessed while its semaphore is held.
pub struct GuardedSegment {
    base: NonNull<u8>,
    bytes: usize,
    semaphore: i32,
}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

impl GuardedSegment {
    /// A segment of this many bytes, all zero, and a free semaphore. A killed process leaves the semaphore behind.
    ///
    /// # Errors
    /// `ENOSPC`: the machine's limit of segments or semaphores (sysctl `kernel.shmmni`, `kernel.sem`) is reached.
    pub fn new(bytes: usize) -> io::Result<Self> {
        // SAFETY: makes a new segment, no existing memory is touched.
        let segment = check(unsafe { libc::shmget(libc::IPC_PRIVATE, bytes, libc::IPC_CREAT | 0o600) })?;
        // SAFETY: attaches the new segment at an address of the kernel's choice.
        let base = unsafe { libc::shmat(segment, std::ptr::null(), 0) };
        let base = if base as isize == -1 { Err(io::Error::last_os_error()) } else { Ok(base) };
        // SAFETY: the segment made above; IPC_RMID takes no buffer.
        check(unsafe { libc::shmctl(segment, libc::IPC_RMID, std::ptr::null_mut()) })?;
        let base = NonNull::new(base?.cast()).ok_or_else(|| io::Error::other("shmat returned page 0"))?;
        let mut exchange = Self { base, bytes, semaphore: -1 };
        // SAFETY: makes a new semaphore.
        exchange.semaphore = check(unsafe { libc::semget(libc::IPC_PRIVATE, 1, libc::IPC_CREAT | 0o600) })?;
        // SAFETY: SETVAL takes an integer.
        check(unsafe { libc::semctl(exchange.semaphore, 0, libc::SETVAL, 1) })?;
        Ok(exchange)
    }

    /// Copies `bytes` to the beginning of the segment while holding the semaphore.
    pub fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        assert!(bytes.len() <= self.bytes, "{} bytes in {}", bytes.len(), self.bytes);
        self.add(-1)?;
        // SAFETY: within the segment (asserted), which is this value's alone and is mapped until it is dropped.
        unsafe { self.base.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        self.add(1)
    }

    /// Fills `bytes` from the beginning of the segment while holding the semaphore.
    pub fn get(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        assert!(bytes.len() <= self.bytes, "{} bytes of {}", bytes.len(), self.bytes);
        self.add(-1)?;
        // SAFETY: as in `put`.
        unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(self.base.as_ptr(), bytes.len()) };
        self.add(1)
    }

    /// One `semop`: waits while the semaphore would become negative.
    fn add(&self, change: i16) -> io::Result<()> {
        let mut operation = libc::sembuf { sem_num: 0, sem_op: change, sem_flg: 0 };
        loop {
            // SAFETY: one operation on the semaphore made in `new`.
            match check(unsafe { libc::semop(self.semaphore, &raw mut operation, 1) }) {
                Ok(_) => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
}

impl Drop for GuardedSegment {
    fn drop(&mut self) {
        // SAFETY: attached in `new`; nothing refers to it any more.
        unsafe { libc::shmdt(self.base.as_ptr().cast()) };
        if self.semaphore >= 0 {
            // SAFETY: the semaphore made in `new`; IPC_RMID takes no argument.
            unsafe { libc::semctl(self.semaphore, 0, libc::IPC_RMID) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_is_got() {
        let mut exchange = GuardedSegment::new(4096).unwrap();
        let mut bytes = [7; 5];
        exchange.get(&mut bytes).unwrap();
        assert_eq!(bytes, [0; 5]);
        exchange.put(b"12345").unwrap();
        exchange.get(&mut bytes[..4]).unwrap();
        assert_eq!(&bytes, b"1234\0");
    }

    #[test]
    #[should_panic(expected = "4097 bytes in 4096")]
    fn the_end_is_the_end() {
        let _ = GuardedSegment::new(4096).unwrap().put(&[0; 4097]);
    }

    #[test]
    fn nothing_is_left_behind() {
        let exchange = GuardedSegment::new(4096).unwrap();
        let semaphore = exchange.semaphore;
        drop(exchange);
        // SAFETY: GETVAL takes no argument.
        let gone = check(unsafe { libc::semctl(semaphore, 0, libc::GETVAL) }).unwrap_err();
        assert!(matches!(gone.raw_os_error(), Some(libc::EINVAL | libc::EIDRM)), "{gone}");
    }
}
