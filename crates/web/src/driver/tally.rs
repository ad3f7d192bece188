//! What was measured of requests.
//!
//! Invariant: only responses that ended in the window are measured, and connections that were made in it.

use bigiron_sys::load::Histogram;

use super::connection::Answer;
use crate::call::{CallTally, of_kind};
use crate::web99::request::Pages;

/// The figures of a thread, or of all.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Responses.
    pub requests: u64,
    /// Responses outside the window too.
    pub all: u64,
    /// Those of `web99` that programs made.
    pub pages: Pages,
    /// Operations of a program, by kind.
    pub calls: Vec<CallTally>,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// From the request, or its intended start, to the last byte of the response.
    pub latency: Histogram,
    /// From the request to the first byte of the response.
    pub first_byte: Histogram,
    /// From the beginning of a connection until it accepted its first request.
    pub connect: Histogram,
}

impl Tally {
    /// Counts a response.
    pub fn count(&mut self, answer: &Answer) {
        self.requests += 1;
        self.bytes += answer.bytes as u64;
        let latency = answer.ended.saturating_sub(answer.intended);
        self.latency.record(latency);
        answer.said.iter().for_each(|said| of_kind(&mut self.calls, said.kind).count(said, latency));
        self.first_byte.record(answer.first_byte.saturating_sub(answer.sent));
    }

    /// Adds another thread's.
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.all += other.all;
        self.pages.join(other.pages);
        other.calls.iter().enumerate().for_each(|(kind, calls)| of_kind(&mut self.calls, kind).add(calls));
        self.bytes += other.bytes;
        self.latency.merge(&other.latency);
        self.first_byte.merge(&other.first_byte);
        self.connect.merge(&other.connect);
    }
}
