//! A simulated spinning disk for a guest: a network block device whose server, a process beside the workload, holds the bytes in
//! memory and replies when the mechanics would have.
//!
//! Invariant: a request is answered at the time that [`Model`] gives, whatever the load on the guest's CPUs: the server is a
//! real-time process, its memory is not swapped, and it never waits for itself.

mod model;

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};

use bigiron_model::storage::Spindle;
use bigiron_sys as sys;
use bigiron_sys::process::Child;
use model::{Access, Model};

/// Bytes of a sector.
const SECTOR: u64 = 512;

/// Creates disk number `index` (a `/dev/nbdN`) of `size_mib`; the child is its server.
///
/// # Errors
/// If the kernel lacks the device, refuses it, or does not bring it up.
pub(super) fn disk(index: usize, size_mib: u64, spindle: &Spindle) -> anyhow::Result<(PathBuf, Child)> {
    let name = format!("nbd{index}");
    let node = Path::new("/dev").join(&name);
    let queue = Path::new("/sys/block").join(&name).join("queue");
    let blocks = (size_mib << 20) / SECTOR;
    let (kernel, server) = UnixStream::pair().context("No pair of sockets")?;
    let device = OpenOptions::new().read(true).write(true).open(&node).with_context(|| node.display().to_string())?;
    let child = sys::process::fork_child(|| match attend(&device, kernel, server, blocks, *spindle) {
        Ok(()) => 0,
        Err(e) => {
            eprintln!("bigiron: the disk {name}: {e:#}");
            1
        }
    })?;
    up(&name, blocks)?;
    let set = |attribute: &str, value: &str| {
        let path = queue.join(attribute);
        fs::write(&path, value).with_context(|| format!("Cannot write {value} to {}", path.display()))
    };
    set("rotational", "1")?;
    // The depth of the disk's own queue, which no scheduler controls, can be changed only while there is no scheduler.
    let scheduler = fs::read_to_string(queue.join("scheduler")).unwrap_or_default();
    let chosen = scheduler.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(name, _)| name);
    set("scheduler", "none")?;
    set("nr_requests", &spindle.queue_depth.to_string())?;
    if let Some(chosen) = chosen.filter(|name| *name != "none") {
        set("scheduler", chosen)?;
    }
    Ok((node, child))
}

/// Waits until the kernel accepts requests.
fn up(name: &str, blocks: u64) -> anyhow::Result<()> {
    let dir = Path::new("/sys/block").join(name);
    for _ in 0..500 {
        let size = fs::read_to_string(dir.join("size")).unwrap_or_default();
        if dir.join("pid").exists() && size.trim() == blocks.to_string() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    anyhow::bail!("/dev/{name} does not come up within 5 s")
}

/// The child: one thread serves the kernel's device, the other is the disk.
fn attend(device: &File, kernel: UnixStream, server: UnixStream, blocks: u64, spindle: Spindle) -> anyhow::Result<()> {
    sys::nbd::connect(device.as_fd(), kernel.as_fd(), SECTOR, blocks).context("The kernel refuses the device")?;
    sys::priority::serve_devices().context("No real-time priority")?;
    let device = device.try_clone()?;
    let lent = std::thread::spawn(move || {
        let _socket = kernel;
        sys::nbd::serve(device.as_fd())
    });
    let ended = Disk::new(server, blocks * SECTOR, spindle).work();
    lent.join().map_err(|_| anyhow::anyhow!("The kernel's thread panicked"))?.context("The device ended")?;
    ended
}

/// A waiting request.
struct Waiting {
    came: u64,
    handle: [u8; 8],
    access: Access,
}

struct Disk {
    socket: UnixStream,
    bytes: Vec<u8>,
    model: Model,
    waiting: VecDeque<Waiting>,
    /// The request in service, and when it ends.
    busy: Option<(u64, Waiting)>,
}

/// `linux/nbd.h`: magic numbers of a request and a reply, in network byte order.
const REQUEST: u32 = 0x2560_9513;
const REPLY: u32 = 0x6744_6698;
const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;

impl Disk {
    fn new(socket: UnixStream, bytes: u64, spindle: Spindle) -> Self {
        let model = Model::new(spindle, bytes);
        Self { socket, bytes: vec![0; bytes as usize], model, waiting: VecDeque::new(), busy: None }
    }

    /// Serves until the kernel disconnects.
    fn work(mut self) -> anyhow::Result<()> {
        loop {
            let now = now();
            if self.busy.as_ref().is_some_and(|(end, _)| *end <= now) {
                let (_, done) = self.busy.take().expect("it is busy");
                self.reply(&done)?;
                continue;
            }
            let left = self.busy.as_ref().map(|(end, _)| end - now);
            // Requests that have arrived are queued before the head decides.
            let wait = if self.busy.is_none() && !self.waiting.is_empty() { Some(0) } else { left };
            if self.comes(wait)? {
                if !self.take()? {
                    return Ok(());
                }
            } else if self.busy.is_none() {
                self.begin();
            }
        }
    }

    /// Whether a request arrives within `ns`.
    fn comes(&self, ns: Option<u64>) -> anyhow::Result<bool> {
        let timeout =
            ns.map(|ns| Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 });
        match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], timeout.as_ref()) {
            Ok(n) => Ok(n > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(e) => Err(e).context("Waiting for requests"),
        }
    }

    /// Reads one request; `false` after the last. The bytes of a write are stored at once: until the reply nobody may rely on the
    /// old contents.
    fn take(&mut self) -> anyhow::Result<bool> {
        let mut header = [0; 28];
        match self.socket.read_exact(&mut header) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            other => other.context("Reading a request")?,
        }
        let word = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().expect("four bytes"));
        ensure!(word(0) == REQUEST, "{:#x} is not the magic number of a request", word(0));
        // The upper half holds flags, none of which was offered.
        let kind = word(4) as u16;
        let handle = header[8..16].try_into().expect("eight bytes");
        let offset = u64::from_be_bytes(header[16..24].try_into().expect("eight bytes"));
        let len = u64::from(word(24));
        if kind == DISCONNECT {
            return Ok(false);
        }
        ensure!(kind == READ || kind == WRITE, "A request of kind {kind} was not offered");
        let end = offset.checked_add(len).filter(|end| *end <= self.bytes.len() as u64);
        ensure!(end.is_some(), "A request at {offset} of {len} bytes is beyond the disk");
        let access = Access { offset, len, write: kind == WRITE };
        if access.write {
            self.socket.read_exact(&mut self.bytes[offset as usize..][..len as usize]).context("Reading a write")?;
        }
        self.waiting.push_back(Waiting { came: now(), handle, access });
        Ok(true)
    }

    /// Starts the next request, if any waits.
    fn begin(&mut self) {
        let now = now();
        if let Some(i) = self.model.next(now, self.waiting.iter().map(|w| (w.came, &w.access)))
            && let Some(next) = self.waiting.remove(i)
        {
            self.busy = Some((self.model.serve(now, next.access), next));
        }
    }

    fn reply(&mut self, done: &Waiting) -> anyhow::Result<()> {
        let mut header = [0; 16];
        header[..4].copy_from_slice(&REPLY.to_be_bytes());
        header[8..].copy_from_slice(&done.handle);
        self.socket.write_all(&header).context("Answering")?;
        if !done.access.write {
            let Access { offset, len, .. } = done.access;
            self.socket.write_all(&self.bytes[offset as usize..][..len as usize]).context("Answering a read")?;
        }
        Ok(())
    }
}

/// The guest's clock in ns.
fn now() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use bigiron_model::storage::{Medium, find};

    fn request(kind: u16, handle: u8, offset: u64, len: u32) -> Vec<u8> {
        let mut bytes = REQUEST.to_be_bytes().to_vec();
        bytes.extend(u32::from(kind).to_be_bytes());
        bytes.extend([handle; 8]);
        bytes.extend(offset.to_be_bytes());
        bytes.extend(len.to_be_bytes());
        bytes
    }

    #[test]
    fn what_is_written_is_read_and_takes_the_time_of_the_mechanics() {
        let Medium::Rotational(spindle) = find("hdd").unwrap().medium else { panic!("hdd does not spin") };
        let (mut kernel, server) = UnixStream::pair().unwrap();
        let disk = std::thread::spawn(move || Disk::new(server, 8 << 20, spindle).work());
        let begun = now();
        let mut far = request(WRITE, 1, 7 << 20, 4096);
        far.extend([7; 4096]);
        kernel.write_all(&far).unwrap();
        let mut reply = [0; 16];
        kernel.read_exact(&mut reply).unwrap();
        assert_eq!(reply[..4], REPLY.to_be_bytes());
        assert_eq!(reply[4..], [0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1]);
        // It had to cross more than half of the tracks.
        assert!(now() - begun > 5_000_000);
        kernel.write_all(&request(READ, 2, (7 << 20) + 512, 1024)).unwrap();
        kernel.read_exact(&mut reply).unwrap();
        let mut data = [0; 1024];
        kernel.read_exact(&mut data).unwrap();
        assert_eq!((reply[8], data), (2, [7; 1024]));
        kernel.write_all(&request(DISCONNECT, 3, 0, 0)).unwrap();
        disk.join().unwrap().unwrap();
    }

    #[test]
    fn a_request_beyond_the_disk_is_an_error() {
        let Medium::Rotational(spindle) = find("hdd").unwrap().medium else { panic!("hdd does not spin") };
        let (mut kernel, server) = UnixStream::pair().unwrap();
        kernel.write_all(&request(READ, 1, (8 << 20) - 512, 1024)).unwrap();
        let error = Disk::new(server, 8 << 20, spindle).work().unwrap_err().to_string();
        assert!(error.contains("beyond the disk"), "{error}");
    }
}
