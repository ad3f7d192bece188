//! The load of a run: how its clients send requests, and which.

use bigiron_workload::run_control::RunLength;

use crate::call::Calls;
use crate::settings::KeepAlive;
use crate::web99::Mix;

/// How requests are sent.
#[derive(Clone, Debug)]
pub struct Load {
    /// Connections that send requests.
    pub driven: u32,
    /// Connections that are idle.
    pub idle: u32,
    /// Most files that a process of the trial has open.
    pub files: u64,
    pub keep_alive: KeepAlive,
    /// Requests of a connection that may be outstanding.
    pub pipeline: u32,
    /// Whether the server is on another machine, which may vanish without a word.
    pub is_distant: bool,
    /// Requests per second of an open loop.
    pub rate: Option<f64>,
    /// Bits per second to which each connection is limited.
    pub line_rate: Option<f64>,
    pub warm_up: RunLength,
    pub length: RunLength,
}

/// What is requested.
pub enum Work<'a> {
    /// The documents, one after the other.
    Cycle,
    /// Documents and pages as in SPECweb99.
    Drawn(Box<Mix>),
    /// Operations of a program.
    Called(&'a dyn Calls),
}
