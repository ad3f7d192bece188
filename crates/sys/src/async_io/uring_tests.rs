use super::*;
use crate::testing::skipped;
use std::fmt::Display;
use std::os::fd::AsFd;

/// A ring, if this machine has one.
fn opened<T>(ring: Result<T, impl Display>) -> Option<T> {
    ring.map_err(|e| skipped("io_uring", e)).ok()
}

fn spec() -> EngineSpec {
    EngineSpec { method: super::super::Method::Uring, depth: 4, batch: 4, ..EngineSpec::default() }
}

#[test]
fn a_linked_write_is_on_the_file_and_a_short_one_is_told() {
    let Some(mut ring) = opened(Uring::open(&spec(), 4096, &[])) else { return };
    let file = tempfile::tempfile().unwrap();
    ring.buffer(1).fill(9);
    let request =
        Request { slot: 1, fd: file.as_fd(), offset: 4096, len: 4096, write: true, dsync: false, dontcache: false };
    assert_eq!(ring.write_durably(&request).unwrap(), 4096);
    assert_eq!((ring.pending(), file.metadata().unwrap().len()), (0, 8192));
    let closed = std::fs::File::open("/proc/self/exe").unwrap();
    let error = ring.write_durably(&Request { fd: closed.as_fd(), ..request }).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EBADF));
    // The ring still works after the error.
    assert_eq!(ring.write_durably(&request).unwrap(), 4096);
}

#[test]
fn a_file_that_is_not_registered_is_used_by_its_descriptor() {
    let (one, other) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
    let spec = EngineSpec { registered: true, ..spec() };
    let Some(mut ring) = opened(Uring::open(&spec, 512, &[one.as_fd()])) else { return };
    assert!(ring.describe().contains("registered buffers, registered files"), "{}", ring.describe());
    for file in [&one, &other] {
        let request =
            Request { slot: 0, fd: file.as_fd(), offset: 0, len: 512, write: true, dsync: true, dontcache: false };
        assert_eq!(ring.write_durably(&request).unwrap(), 512);
        assert_eq!(file.metadata().unwrap().len(), 512);
    }
}

#[test]
fn a_slots_next_request_is_another() {
    let (one, other) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
    for (file, first) in [(&one, 0u8), (&other, 100)] {
        let bytes: Vec<u8> = (first..first + 8).flat_map(|n| [n; 512]).collect();
        std::os::unix::fs::FileExt::write_all_at(file, &bytes, 0).unwrap();
    }
    for registered in [false, true] {
        let spec = EngineSpec { registered, ..spec() };
        let Some(mut ring) = opened(Uring::open(&spec, 1024, &[one.as_fd()])) else { return };
        let mut done = Vec::new();
        // File, offset, length and direction change one by one; each write writes the data of the previous read.
        for (file, at, len, write, expected) in [
            (&one, 1, 512, false, 1),
            (&one, 6, 512, false, 6),
            (&one, 6, 1024, false, 6),
            (&other, 6, 1024, false, 106),
            (&other, 2, 512, true, 106),
            (&other, 2, 512, false, 106),
            (&other, 3, 512, false, 103),
        ] {
            let request =
                Request { slot: 2, fd: file.as_fd(), offset: at * 512, len, write, dsync: false, dontcache: false };
            ring.submit_and_wait(&[request], 1, &mut done).unwrap();
            assert_eq!(done.drain(..).next().unwrap().result().unwrap(), len);
            assert_eq!(ring.buffer(2)[0], expected, "{at} {len} {write}");
        }
        ring.buffer(2)[..512].fill(102);
        let back =
            Request { slot: 2, fd: other.as_fd(), offset: 1024, len: 512, write: true, dsync: false, dontcache: false };
        ring.submit_and_wait(&[back], 1, &mut done).unwrap();
    }
}

#[test]
fn what_cannot_be_handed_over_leaves_nothing_in_flight() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(4096).unwrap();
    let Some(mut ring) = opened(Uring::open(&spec(), 512, &[])) else { return };
    let request =
        |slot, len| Request { slot, fd: file.as_fd(), offset: 0, len, write: false, dsync: false, dontcache: false };
    assert!(ring.submit(&[request(0, 512), request(1, 1024)]).is_err());
    assert_eq!(ring.pending(), 0);
    let mut done = Vec::new();
    ring.submit_and_wait(&[request(0, 512)], 1, &mut done).unwrap();
    assert_eq!((done.len(), ring.pending()), (1, 0));
}

#[test]
fn more_than_the_queue_holds_is_handed_over_in_parts() {
    let file = tempfile::tempfile().unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[7; 4096], 0).unwrap();
    for sqpoll in [false, true] {
        let spec = EngineSpec { depth: 8, batch: 2, registered: true, sqpoll, ..spec() };
        let Some(mut ring) = opened(Uring::open(&spec, 512, &[file.as_fd()])) else { return };
        let request = |slot| Request {
            slot,
            fd: file.as_fd(),
            offset: slot as u64 * 512,
            len: 512,
            write: false,
            dsync: false,
            dontcache: false,
        };
        let mut done = Vec::new();
        ring.submit_and_take(&(0..8).map(request).collect::<Vec<_>>(), 8, 8, &mut done).unwrap();
        let mut slots: Vec<_> = done.iter().filter(|c| c.is_of(512)).map(|c| c.slot).collect();
        slots.sort_unstable();
        assert_eq!((slots, ring.pending()), ((0..8).collect(), 0));
        assert!((0..8).all(|slot| ring.buffer(slot).iter().all(|b| *b == 7)));
    }
}

#[test]
fn what_cannot_be_polled_is_refused() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(4096).unwrap();
    let spec = EngineSpec { iopoll: true, ..spec() };
    match Uring::open(&spec, 4096, &[file.as_fd()]) {
        // A buffered file never supports polling.
        Err(e) => assert!(e.to_string().contains("polled"), "{e}"),
        Ok(_) => panic!("a buffered file was polled"),
    }
}
