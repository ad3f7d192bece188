use super::*;
use crate::locks::names::LockSymbols;
use crate::locks::waits::waited;
use crate::sampled::record::{Mapping, Stack};
use crate::sampled::spans::Spans;
use crate::symbols::Symbols;
use bigiron_model::waits::WaitTally;
use bigiron_profile::Mark::{Begin as From, Cut, End as To};
use bigiron_sys::futex;
use std::sync::atomic::AtomicU32;

/// A format with fields of 8 bytes from offset 8 on.
fn format(id: u64, fields: &[&str]) -> Format {
    let mut text = format!("ID: {id}\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n");
    for (n, name) in fields.iter().enumerate() {
        text += &format!("\tfield:long {name};\toffset:{};\tsize:8;\tsigned:1;\n", 8 + 8 * n);
    }
    Format::parse(&text).unwrap()
}

fn events() -> EventLayouts {
    let (begin, end) = (format(7, &["lock_addr", "flags"]), format(8, &["lock_addr", "ret"]));
    let (enter, exit) = (format(9, &["uaddr"]), format(10, &["ret"]));
    let field = |format: &Format, name| format.field(name).unwrap();
    let (lock, flags, ended, ret) =
        (field(&begin, "lock_addr"), field(&begin, "flags"), field(&end, "lock_addr"), field(&exit, "ret"));
    let event = |format| EventLayout::of(format).unwrap();
    EventLayouts {
        locks: Some((event(begin), lock, flags, event(end), ended)),
        futex: Some((event(enter), event(exit), ret)),
        untold: None,
    }
}

const SYMBOLS: &str =
    "ffffffff81000000 T do_work\nffffffff81000100 t rwsem_down_write_slowpath\nffffffff82000000 D big_lock\n";
const WORK: u64 = 0xffff_ffff_8100_0010;
const SLOW: u64 = 0xffff_ffff_8100_0110;
const BIG: i64 = 0xffff_ffff_8200_0010_u64 as i64;
const OBJECT: i64 = 0xffff_8880_0000_1000_u64 as i64;
const SLEEPS: i64 = 4;

/// A collector whose trial consists of processes 8 and 9; 6 is another process, and 99 is the tracer.
fn collector() -> Collector {
    let mut collector = Collector::new(events(), 2);
    let programs = &mut collector.recording.programs;
    programs.sampler(99, Mapping { start: 0x1000, end: 0x2000, offset: 0, file: "/init".to_owned() });
    programs.fork(8, 99);
    programs.fork(9, 8);
    collector
}

fn happens(collector: &mut Collector, time: u64, pid: u32, kind: u16, words: &[i64]) {
    let mut raw = kind.to_ne_bytes().to_vec();
    raw.resize(8, 0);
    words.iter().for_each(|word| raw.extend(word.to_ne_bytes()));
    let stack = Stack { kernel: vec![SLOW, WORK], user: Vec::new() };
    collector.take(time, Record::Sample(Sample { pid, tid: pid, cpu: 0, stack, raw }));
}

fn windows(recording: &Recording) -> (Vec<bigiron_model::waits::WindowWaits>, Traced) {
    let spans = Spans::new([(From, 100), (To, 200), (Cut, 200), (From, 300), (Cut, 400)]);
    waited(recording, &spans, &Symbols::new(SYMBOLS, Vec::new()).unwrap(), &LockSymbols::new(SYMBOLS))
}

#[test]
fn waits_are_added_up_by_lock_and_caller_in_the_windows_they_lie_in() {
    let mut c = collector();
    happens(&mut c, 110, 8, 7, &[OBJECT, SLEEPS]);
    happens(&mut c, 115, 9, 7, &[OBJECT, SLEEPS]);
    happens(&mut c, 120, 8, 8, &[OBJECT, 0]);
    happens(&mut c, 150, 9, 8, &[OBJECT, 0]);
    // A wait for a kernel variable that begins before the second window and ends in it.
    happens(&mut c, 290, 9, 7, &[BIG, i64::from(SPIN)]);
    happens(&mut c, 350, 9, 8, &[BIG, 0]);
    // Waits of other processes are not counted for the trial, and the tracer's for nobody.
    happens(&mut c, 130, 6, 7, &[OBJECT, SLEEPS]);
    happens(&mut c, 131, 6, 8, &[OBJECT, 0]);
    happens(&mut c, 132, 99, 7, &[OBJECT, SLEEPS]);
    happens(&mut c, 133, 99, 8, &[OBJECT, 0]);
    let recording = c.finish();
    assert_eq!(recording.stacks.len(), 1);
    let (all, traced) = windows(&recording);
    let lock = |window: usize, n: usize| {
        let l = &all[window].locks[n];
        (l.class.as_str(), l.lock.as_deref(), l.caller.as_str(), l.tally)
    };
    let tally = |waits, spun, total_ns, spun_ns, max_ns| WaitTally { waits, spun, total_ns, spun_ns, max_ns };
    assert_eq!((all[0].locks.len(), all[1].locks.len()), (1, 1));
    assert_eq!(lock(0, 0), ("rwsem:W", None, "do_work", tally(2, 0, 45, 0, 35)));
    assert_eq!(lock(1, 0), ("spinlock", Some("big_lock"), "do_work", tally(1, 1, 50, 50, 50)));
    assert_eq!((traced.others, traced.unpaired, traced.lost, traced.events), (1, 0, 0, 10));
}

#[test]
fn a_futex_is_waited_for_by_a_program_and_not_if_it_had_changed() {
    let mut c = collector();
    happens(&mut c, 110, 8, 9, &[0x1000]);
    happens(&mut c, 111, 9, 9, &[0x1000]);
    happens(&mut c, 112, 9, 10, &[-i64::from(libc::EAGAIN)]);
    happens(&mut c, 140, 8, 10, &[0]);
    // The end of a wake, whose begin is never recorded.
    happens(&mut c, 141, 8, 10, &[1]);
    happens(&mut c, 150, 8, 9, &[0x1000]);
    happens(&mut c, 160, 8, 10, &[-i64::from(libc::ETIMEDOUT)]);
    let (all, traced) = windows(&c.finish());
    assert_eq!(all[0].locks, []);
    let futexes: Vec<_> = all[0].futexes.iter().map(|f| (f.program.as_str(), f.tally)).collect();
    assert_eq!(futexes, [("init", WaitTally { waits: 2, spun: 0, total_ns: 40, spun_ns: 0, max_ns: 30 })]);
    assert_eq!(traced.unpaired, 0);
}

#[test]
fn what_was_lost_is_counted_and_ends_what_was_open() {
    let mut c = collector();
    happens(&mut c, 110, 8, 7, &[OBJECT, SLEEPS]);
    c.take(120, Record::Lost(17));
    happens(&mut c, 190, 8, 8, &[OBJECT, 0]);
    c.add(&[vec![9, 0, 0, 0]], u64::MAX);
    let (all, traced) = windows(&c.finish());
    assert_eq!(all[0].locks, []);
    assert_eq!((traced.lost, traced.unpaired), (18, 2));
}

#[test]
fn the_operations_that_wait_are_told_apart_by_a_filter() {
    let filter = waiting_operations().into_string().unwrap();
    let terms: Vec<&str> = filter.split("||").collect();
    // FUTEX_WAIT, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, FUTEX_LOCK_PI2 | both flags; not FUTEX_WAKE.
    assert!(["op==0", "op==137", "op==397"].iter().all(|term| terms.contains(term)) && !terms.contains(&"op==1"));
}

/// A test on this machine: a child waits for a futex that nobody wakes in time.
#[test]
fn this_machines_waits_are_recorded_or_refused_in_words() {
    let armed = match Armed::new() {
        Ok(armed) => armed,
        Err(why) => return assert!(!why.is_empty()),
    };
    let (begun, begin) = std::io::pipe().unwrap();
    let child = bigiron_sys::process::fork_child(|| {
        // Not before the recording has begun: there may be no other wait in it.
        if rustix::io::read(&begun, &mut [0_u8]).is_err() {
            return 1;
        }
        // From the call on: a thread that parks has a deadline, which comes sooner if it was delayed before its call.
        let _ = futex::wait(&AtomicU32::new(0), 0, futex::Scope::Process, Some(Duration::from_millis(3)));
        0
    });
    let recorder = armed.start().unwrap();
    rustix::io::write(&begin, &[1]).unwrap();
    child.unwrap().wait().unwrap();
    let recording = recorder.stop();
    let of_the_child = |wait: &&Wait| {
        let origin = recording.origins[wait.origin as usize];
        let role = recording.programs.role(origin.image);
        origin.what == WaitTarget::Futex && role == crate::sampled::programs::Role::Trial
    };
    let longest = recording.waits.iter().filter(of_the_child).map(|wait| wait.ns).max();
    // A kernel without system call tracepoints reports no futex waits.
    assert!(longest.is_none_or(|ns| ns >= 3_000_000), "{longest:?}");
    assert!(recording.traced.events > 0);
}
