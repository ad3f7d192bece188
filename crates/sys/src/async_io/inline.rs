//! Engines whose requests have ended when `submit` returns: blocking system calls, and the null engine.
//!
//! Invariant: requests are carried out one after the other, in the order of submission.

use std::io;

use rustix::io::ReadWriteFlags;

use super::buffers::Buffers;
use super::{Completion, CompletionHandler, Engine, Lists, Request, exchange_lists};

/// How one request is carried out.
pub trait Call: Send {
    const NAME: &str;
    /// Carries out `request` on its buffer and returns the bytes transferred.
    fn transfer(request: &Request<'_>, buffer: &mut [u8]) -> rustix::io::Result<usize>;
}

/// No system call: every request succeeds, and the buffer of a read stays unchanged.
pub struct Nothing;

impl Call for Nothing {
    const NAME: &str = "null";

    fn transfer(request: &Request<'_>, _buffer: &mut [u8]) -> rustix::io::Result<usize> {
        Ok(request.len)
    }
}

/// `pread` and `pwrite`; `preadv2` and `pwritev2` for a request with flags.
pub struct Plain;

impl Call for Plain {
    const NAME: &str = "pread/pwrite";

    fn transfer(request: &Request<'_>, buffer: &mut [u8]) -> rustix::io::Result<usize> {
        match (request.flags(), request.write) {
            (0, false) => rustix::io::pread(request.fd, buffer, request.offset),
            (0, true) => rustix::io::pwrite(request.fd, buffer, request.offset),
            _ => Vectors::transfer(request, buffer),
        }
    }
}

/// `preadv2` and `pwritev2` with one vector.
pub struct Vectors;

impl Call for Vectors {
    const NAME: &str = "preadv2/pwritev2";

    fn transfer(request: &Request<'_>, buffer: &mut [u8]) -> rustix::io::Result<usize> {
        let flags = ReadWriteFlags::from_bits_retain(request.flags() as u32);
        if request.write {
            rustix::io::pwritev2(request.fd, &[io::IoSlice::new(buffer)], request.offset, flags)
        } else {
            let vectors = &mut [io::IoSliceMut::new(buffer)];
            rustix::io::preadv2(request.fd, vectors, request.offset, flags)
        }
    }
}

/// The null engine.
pub type Null = Inline<Nothing>;
/// Blocking `pread` and `pwrite`: the I/O of a database's foreground, with which the asynchronous engines are compared.
pub type Blocking = Inline<Plain>;
/// Blocking `preadv2` and `pwritev2`.
pub type Vectored = Inline<Vectors>;

/// An engine of one blocking call per request.
pub struct Inline<C> {
    buffers: Buffers,
    done: Vec<Completion>,
    call: std::marker::PhantomData<C>,
}

impl<C: Call> Inline<C> {
    /// An engine with `depth` buffers of `block` bytes.
    pub fn new(depth: usize, block: usize) -> io::Result<Self> {
        let buffers = Buffers::new(depth, block)?;
        Ok(Self { buffers, done: Vec::with_capacity(depth), call: std::marker::PhantomData })
    }

    #[inline]
    fn carry_out(&mut self, r: &Request<'_>) -> io::Result<Completion> {
        if r.len > self.buffers.block() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let buffer = &mut self.buffers.get(r.slot)[..r.len];
        Ok(Completion::of_call(r.slot, C::transfer(r, buffer)))
    }
}

impl<C: Call> Engine for Inline<C> {
    fn buffer(&mut self, slot: usize) -> &mut [u8] {
        self.buffers.get(slot)
    }

    fn submit(&mut self, requests: &[Request<'_>]) -> io::Result<()> {
        for r in requests {
            let completion = self.carry_out(r)?;
            self.buffers.take(r)?;
            self.done.push(completion);
        }
        Ok(())
    }

    fn take(&mut self, min: usize, max: usize, done: &mut Vec<Completion>) -> io::Result<()> {
        if min > max || min > self.done.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        for c in self.done.drain(..max.min(self.done.len())) {
            self.buffers.give_back(c.slot);
            done.push(c);
        }
        Ok(())
    }

    fn pending(&self) -> usize {
        self.buffers.pending()
    }

    fn submit_and_take(
        &mut self,
        requests: &[Request<'_>],
        min: usize,
        max: usize,
        done: &mut Vec<Completion>,
    ) -> io::Result<()> {
        if self.pending() > 0 || max < requests.len() {
            self.submit(requests)?;
            return self.take(min, max, done);
        }
        if min > requests.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        for r in requests {
            let completion = self.carry_out(r)?;
            done.push(completion);
        }
        Ok(())
    }

    #[inline(always)]
    fn exchange(
        &mut self,
        min: usize,
        max: usize,
        lists: &mut Lists<'_>,
        to: &mut impl CompletionHandler,
    ) -> io::Result<()> {
        match lists.requests[..] {
            // The usual batch of this engine: it needs no list.
            [r] if self.pending() == 0 && min <= 1 && max >= 1 => {
                lists.requests.clear();
                let completion = self.carry_out(&r)?;
                to.begin();
                to.ended(completion);
                Ok(())
            }
            _ => exchange_lists(self, min, max, lists, to),
        }
    }

    fn describe(&self) -> String {
        C::NAME.to_owned()
    }
}
