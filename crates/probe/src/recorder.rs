//! A recording made by a thread of this process while other processes work.
//!
//! Invariant: the thread has ended when its recorder is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// A recording in progress.
#[derive(Debug)]
pub struct Recorder<T> {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<T>>,
}

impl<T: Send + 'static> Recorder<T> {
    /// Runs `record` in a thread until its flag is set; a parked thread is then woken.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn start(record: impl FnOnce(&AtomicBool) -> T + Send + 'static) -> Result<Self, String> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new().name("recorder".to_owned()).spawn(move || record(&stopped));
        Ok(Self { stop, thread: Some(thread.map_err(|e| e.to_string())?) })
    }
}

impl<T> Recorder<T> {
    fn end(&mut self) -> Option<T> {
        self.stop.store(true, Ordering::Release);
        let thread = self.thread.take()?;
        thread.thread().unpark();
        thread.join().ok()
    }
}

impl<T: Default> Recorder<T> {
    /// Ends the recording and returns it.
    pub fn stop(mut self) -> T {
        self.end().unwrap_or_default()
    }
}

impl<T> Drop for Recorder<T> {
    fn drop(&mut self) {
        self.end();
    }
}
