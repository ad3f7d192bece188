use super::*;
use crate::testing::skipped;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

fn spec(method: Method) -> EngineSpec {
    EngineSpec { method, depth: 4, batch: 4, ..EngineSpec::default() }
}

/// Every engine that does I/O, without those that this kernel does not support.
fn engines(block: usize, file: &File) -> Vec<Box<dyn Engine>> {
    let uring = spec(Method::Uring);
    let specs = [
        spec(Method::Sync),
        spec(Method::Vectored),
        spec(Method::Threads),
        spec(Method::Libaio),
        uring,
        EngineSpec { registered: true, ..uring },
        EngineSpec { sqpoll: true, ..uring },
        EngineSpec { sqpoll: true, registered: true, ..uring },
    ];
    let mut engines = Vec::new();
    for spec in specs {
        match open(&spec, block, &[file.as_fd()]) {
            Ok(engine) => engines.push(engine),
            Err(e) => skipped(format_args!("{spec:?}"), e),
        }
    }
    engines
}

#[test]
fn every_engine_reads_what_it_wrote() {
    for block in [512, 4096, 8192, 4 << 20] {
        let file = tempfile::tempfile().unwrap();
        for (round, mut engine) in engines(block, &file).into_iter().enumerate() {
            let name = engine.describe();
            let mut done = Vec::new();
            for slot in 0..4 {
                engine.buffer(slot).fill((round * 4 + slot) as u8 + 1);
            }
            let write = |slot| Request {
                slot,
                fd: file.as_fd(),
                offset: (slot * block) as u64,
                len: block,
                write: true,
                dsync: slot == 3,
                dontcache: false,
            };
            engine.submit(&[write(0), write(1)]).unwrap();
            engine.submit_and_wait(&[write(2), write(3)], 3, &mut done).unwrap();
            engine.wait(engine.pending(), &mut done).unwrap();
            let mut slots: Vec<_> = done.iter().map(|c| c.slot).collect();
            slots.sort_unstable();
            assert_eq!((slots, engine.pending()), (vec![0, 1, 2, 3], 0), "{name}");
            assert!(done.iter().all(|c| c.is_of(block)), "{name}: {done:?}");
            engine.buffer(0).fill(0);
            done.clear();
            let read = Request { offset: (3 * block) as u64, write: false, dsync: false, ..write(0) };
            engine.submit_and_wait(&[read], 1, &mut done).unwrap();
            assert!(engine.buffer(0).iter().all(|b| *b == (round * 4 + 3) as u8 + 1), "{name}");
            let mut on_disk = vec![0; block];
            file.read_exact_at(&mut on_disk, block as u64).unwrap();
            assert!(on_disk.iter().all(|b| *b == (round * 4 + 1) as u8 + 1), "{name}");
        }
    }
}

#[test]
fn an_error_is_the_requests_own_and_the_engine_goes_on() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(8192).unwrap();
    let read_only = File::open("/proc/self/exe").unwrap();
    for mut engine in engines(4096, &file) {
        let name = engine.describe();
        let good = Request {
            slot: 0,
            fd: file.as_fd(),
            offset: 4096,
            len: 4096,
            write: false,
            dsync: false,
            dontcache: false,
        };
        let bad = Request { slot: 1, fd: read_only.as_fd(), write: true, ..good };
        let mut done = Vec::new();
        // Some engines report the error at once, others in the completion.
        match engine.submit_and_wait(&[good, bad], 2, &mut done) {
            Ok(()) => {
                let failed: Vec<_> = done.iter().filter(|c| c.result().is_err()).map(|c| c.slot).collect();
                assert_eq!(failed, [1], "{name}");
            }
            Err(e) => assert_eq!(e.raw_os_error(), Some(libc::EBADF), "{name}"),
        }
        engine.wait(engine.pending(), &mut done).unwrap();
        done.clear();
        // Past the end of the file there is nothing to read.
        engine.submit_and_wait(&[Request { offset: 8192, ..good }], 1, &mut done).unwrap();
        assert!(done == [Completion::of(0, 0)], "{name}: {done:?}");
        assert!(engine.wait(1, &mut done).is_err(), "{name} waits for nothing");
    }
}

#[test]
fn completions_keep_coming_when_the_ring_wraps() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(64 * 512).unwrap();
    for mut engine in engines(512, &file) {
        let mut done = Vec::with_capacity(4);
        let mut ended = 0;
        for i in 0..5_000u64 {
            let slot = i as usize % 4;
            let request = Request {
                slot,
                fd: file.as_fd(),
                offset: i % 64 * 512,
                len: 512,
                write: i % 3 == 0,
                dsync: false,
                dontcache: false,
            };
            let min = usize::from(i % 4 == 3) * (engine.pending() + 1);
            engine.submit_and_wait(&[request], min, &mut done).unwrap();
            // Slots are used in turn: before one is used again, all requests have ended.
            assert!(done.iter().all(|c| c.is_of(512)));
            ended += done.len();
            done.clear();
        }
        assert_eq!((ended, engine.pending()), (5_000, 0), "{}", engine.describe());
    }
}

#[test]
fn no_more_are_taken_than_asked_for() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(4 * 512).unwrap();
    for mut engine in engines(512, &file) {
        let name = engine.describe();
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
        engine.submit_and_take(&[0, 1, 2, 3].map(request), 1, 1, &mut done).unwrap();
        assert_eq!((done.len(), engine.pending()), (1, 3), "{name}");
        // The free slot is used again while other requests have ended but were not taken.
        engine.submit_and_take(&[request(done[0].slot)], 2, 2, &mut done).unwrap();
        assert_eq!((done.len(), engine.pending()), (3, 2), "{name}");
        assert!(engine.take(2, 1, &mut done).is_err(), "{name} takes more than the most");
        engine.take(2, 4, &mut done).unwrap();
        let slots = [0, 1, 2, 3].map(|slot| done.iter().filter(|c| c.slot == slot).count());
        assert_eq!(slots.iter().sum::<usize>(), 5, "{name}: {done:?}");
        assert!(slots.iter().all(|n| *n >= 1) && done.iter().all(|c| c.is_of(512)), "{name}: {done:?}");
    }
}

/// Prepares more requests than a queue holds, with an invalid request in the middle.
struct Prepared<'f>(&'f File);

impl EngineUser for Prepared<'_> {
    type Output = ();
    fn with<E: Engine + 'static>(self, mut engine: E) {
        let name = engine.describe();
        let request = |slot: usize| Request {
            slot,
            fd: self.0.as_fd(),
            offset: slot as u64 * 512,
            len: 512,
            write: false,
            dsync: false,
            dontcache: false,
        };
        let (mut lists, mut done) = (Lists::of(8), Vec::new());
        engine.prepare((0..8).map(request).collect::<Vec<_>>().into_iter(), &mut lists).unwrap();
        engine.exchange(8, 8, &mut lists, &mut done).unwrap();
        let mut slots: Vec<_> = done.drain(..).filter(|c| c.is_of(512)).map(|c| c.slot).collect();
        slots.sort_unstable();
        assert_eq!((slots, engine.pending()), ((0..8).collect(), 0), "{name}");
        assert!((0..8).all(|slot| engine.buffer(slot)[0] == slot as u8 + 1), "{name}");

        // The second is larger than its buffer: some engines notice at once, others when the list is handed over.
        let bad = [request(0), Request { len: 1024, ..request(1) }, request(2)];
        let refused = engine.prepare(bad.into_iter(), &mut lists);
        let exchanged = engine.exchange(0, 8, &mut lists, &mut done);
        assert!(refused.is_err() || exchanged.is_err(), "{name}");
        engine.wait(engine.pending(), &mut done).unwrap();
        assert!(done.iter().all(|c| c.slot != 1), "{name}: {done:?}");
        done.clear();

        // The engine still works, and an empty batch is allowed.
        engine.prepare([request(1)].into_iter(), &mut lists).unwrap();
        engine.exchange(1, 1, &mut lists, &mut done).unwrap();
        engine.exchange(0, 1, &mut lists, &mut done).unwrap();
        assert_eq!((done, engine.pending()), (vec![Completion::of(1, 512)], 0), "{name}");
        assert!(engine.exchange(1, 1, &mut lists, &mut Vec::new()).is_err(), "{name} waits for nothing");
    }
}

#[test]
fn what_is_prepared_is_handed_over_by_the_next_exchange() {
    let file = tempfile::tempfile().unwrap();
    let bytes: Vec<u8> = (1..=8u8).flat_map(|n| [n; 512]).collect();
    file.write_all_at(&bytes, 0).unwrap();
    let deep = |method| EngineSpec { depth: 8, batch: 2, ..spec(method) };
    let uring = deep(Method::Uring);
    let others = [Method::Sync, Method::Vectored, Method::Threads, Method::Libaio].map(deep);
    let rings =
        [uring, EngineSpec { registered: true, ..uring }, EngineSpec { sqpoll: true, registered: true, ..uring }];
    for spec in others.into_iter().chain(rings) {
        if let Err(e) = open_for(&spec, 512, &[file.as_fd()], Prepared(&file)) {
            skipped(format_args!("{spec:?}"), e);
        }
    }
}

#[test]
fn the_null_engine_ends_everything_at_once() {
    let file = tempfile::tempfile().unwrap();
    let mut engine = open(&spec(Method::Null), 4096, &[]).unwrap();
    let request =
        Request { slot: 2, fd: file.as_fd(), offset: 0, len: 4096, write: true, dsync: true, dontcache: false };
    let mut done = Vec::new();
    engine.submit_and_wait(&[request], 1, &mut done).unwrap();
    assert!(done == [Completion::of(2, 4096)]);
    assert_eq!(file.metadata().unwrap().len(), 0);
}

#[test]
fn what_no_engine_can_do_is_refused_with_what_it_can() {
    let text = |spec: EngineSpec, bytes| match open(&spec, bytes, &[]) {
        Ok(_) => panic!("{spec:?} with {bytes} bytes was opened"),
        Err(e) => e.to_string(),
    };
    assert_eq!(
        text(spec(Method::Sync), 1000),
        "Requests of 1000 bytes are not supported; use a multiple of 512 up to 16777216"
    );
    assert_eq!(
        text(EngineSpec { depth: 0, ..spec(Method::Uring) }, 4096),
        "0 requests in flight are not supported; use 1 to 4096"
    );
    assert_eq!(text(EngineSpec { registered: true, ..spec(Method::Libaio) }, 512), "Registered buffers need io_uring");
    assert_eq!(text(EngineSpec { iopoll: true, ..spec(Method::Sync) }, 512), "Polled completion needs io_uring");
}
