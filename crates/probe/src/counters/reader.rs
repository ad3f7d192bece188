//! The process that reads counters for the measuring processes.
//!
//! It is a separate process so that a measuring process keeps its heap and caches; this reduces the scatter of short calls.
//!
//! Invariant: an order is answered after it has been carried out. Without a reader nothing is read, and nobody waits.

use std::fs::File;
use std::io::{self, Read as _, Write as _};

use rustix::pipe::{PipeFlags, pipe_with};

use super::reading::{self, Reading};
use bigiron_model::counters::Counted;
use bigiron_sys::priority;
use bigiron_sys::process::{Child, fork_child};

/// The orders that the reader accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Read at the beginning of a span.
    Before,
    /// Read at the end of a span.
    After,
    /// End the window.
    Cut,
}

impl Order {
    const ALL: [Order; 3] = [Order::Before, Order::After, Order::Cut];
}

/// The connection to the reader, which is killed when the thread that started it ends.
pub struct Reader {
    orders: File,
    answers: File,
    _process: Child,
}

/// The bytes of an order: its index in [`Order::ALL`], and the process whose descendants are the trial's own.
const BYTES: usize = 1 + size_of::<u32>();

impl Reader {
    /// Starts the reader; with `own` it also reads the counts of the asking process and its descendants. It passes the counters of each window
    /// (`None` if nothing was read in it) to `keep`, in its own process.
    ///
    /// # Errors
    /// No pipe or process could be made.
    pub fn start(own: bool, keep: impl Fn(Option<&Counted>)) -> io::Result<Self> {
        let (orders, orders_in) = pipe_with(PipeFlags::CLOEXEC)?;
        let (answers, answers_in) = pipe_with(PipeFlags::CLOEXEC)?;
        // In the child these are the only open ends of the pipes, so it notices when the asking process ends.
        let theirs = (File::from(orders_in), File::from(answers));
        let ours = (File::from(orders), File::from(answers_in));
        let mut theirs = Some(theirs);
        let process = fork_child(|| {
            drop(theirs.take());
            serve(own, &keep, &ours.0, &ours.1);
            0
        })?;
        let (orders, answers) = theirs.take().expect("only the child takes it");
        Ok(Self { orders, answers, _process: process })
    }

    /// Has `order` carried out and waits for the answer.
    pub fn ask(&self, order: Order) {
        let mut sent = [0; BYTES];
        sent[0] = order as u8;
        sent[1..].copy_from_slice(&std::process::id().to_ne_bytes());
        // Without the reader there are no counters; nothing else fails.
        let _ = (&self.orders).write_all(&sent).and_then(|()| (&self.answers).read_exact(&mut [0]));
    }
}

/// The reader's loop: ends when no process is left that could ask.
fn serve(own: bool, keep: &dyn Fn(Option<&Counted>), mut orders: &File, mut answers: &File) {
    // Otherwise, where both share a CPU, the answered process would run at once, and this process would go to sleep in the middle of the measurement.
    // It may lack the permission; then it stays as it is.
    let _ = priority::before_all_others();
    let (mut before, mut sum): (Option<Reading>, Option<Counted>) = (None, None);
    let mut order = [0; BYTES];
    while orders.read_exact(&mut order).is_ok() {
        let asks = u32::from_ne_bytes(order[1..].try_into().expect("four bytes"));
        let own = own.then_some(asks);
        match Order::ALL.get(usize::from(order[0])) {
            Some(Order::Before) => before = Some(Reading::now(false, own)),
            Some(Order::After) => {
                let after = Reading::now(true, own);
                if let Some(before) = before.take() {
                    let counted = reading::between(&before, &after);
                    match &mut sum {
                        Some(sum) => sum.and(counted),
                        none => *none = Some(counted),
                    }
                }
            }
            Some(Order::Cut) => keep(sum.take().as_ref()),
            None => {}
        }
        if answers.write_all(b".").is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bigiron_sys::process::Exit;
    use bigiron_sys::shared_memory::SharedMemory;
    use rustix::process::Signal;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn windows_are_kept_when_they_are_cut_and_those_without_a_span_are_empty() {
        let memory = SharedMemory::new(4096).unwrap();
        let [windows, readings] = [0, 8].map(|at| memory.at::<AtomicU64>(at));
        let reader = Reader::start(true, |counted| {
            windows.fetch_add(1, Ordering::SeqCst);
            readings.fetch_add(counted.map_or(0, |c| c.readings), Ordering::SeqCst);
        });
        let reader = reader.unwrap();
        [Order::Before, Order::After, Order::Before, Order::After, Order::Cut]
            .into_iter()
            .for_each(|order| reader.ask(order));
        assert_eq!((windows.load(Ordering::SeqCst), readings.load(Ordering::SeqCst)), (1, 4));
        // An end without a beginning is not a span.
        [Order::After, Order::Cut].into_iter().for_each(|order| reader.ask(order));
        assert_eq!((windows.load(Ordering::SeqCst), readings.load(Ordering::SeqCst)), (2, 4));
    }

    #[test]
    fn nobody_waits_for_a_reader_that_is_gone() {
        let mut reader = Reader::start(false, |_| ()).unwrap();
        reader.ask(Order::Before);
        reader._process.signal(Signal::KILL).unwrap();
        while reader._process.try_wait().unwrap() != Some(Exit::Signal(9)) {}
        reader.ask(Order::After);
        reader.ask(Order::Cut);
    }

    #[test]
    fn it_ends_with_those_who_could_ask() {
        let mut reader = Reader::start(false, |_| ()).unwrap();
        let ends = (reader.orders.try_clone().unwrap(), reader.answers.try_clone().unwrap());
        reader.ask(Order::Before);
        reader.orders = File::open("/dev/null").unwrap();
        drop(ends);
        // Children that other tests fork hold the pipe until they end.
        while reader._process.try_wait().unwrap() != Some(Exit::Status(0)) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}
