//! The driver: a few threads that act as the clients of thousands of connections.
//!
//! Invariant: the requests of a connection and their order, and in an open loop their intended starts, depend only on the settings and the seed; the
//! server decides only when they are answered.

mod client;
pub mod connection;
mod idle;
mod lane;
mod load;
mod tally;

use std::net::SocketAddrV4;
use std::sync::mpsc::channel;
use std::thread;

use anyhow::{Context as _, Result, anyhow, ensure};

use bigiron_sys::cpu_clock::ThreadCpu;
use bigiron_sys::load::now_ns;
use bigiron_sys::load::poll::Stop;
use bigiron_sys::network::{Side, Wiring};
use bigiron_workload::WrongData;
use bigiron_workload::limits;
use bigiron_workload::run_control::{RunControl, RunMoment, look_on};

use crate::document::Documents;
use crate::encryption::Encryptor;
use crate::http;

use idle::Idle;

use client::{Client, Share, ThreadResult};
pub use connection::Fault;
pub use load::{Load, Work};
pub use tally::Tally;

/// A run.
pub struct Drive<'a> {
    pub load: &'a Load,
    pub work: Work<'a>,
    pub address: SocketAddrV4,
    /// `None`: in plain text.
    pub encryptor: Option<&'a dyn Encryptor>,
    /// The server's name in requests.
    pub host: &'a str,
    pub documents: &'a Documents,
    /// The network between the driver and the server, in whose part the calling thread is.
    pub wiring: &'a Wiring,
    pub threads: u32,
    pub seed: u64,
    /// Called by the thread that waits for the others.
    pub watch: &'a mut dyn FnMut(RunMoment),
}

/// The results of a run.
#[derive(Clone, Debug)]
pub struct DriveResult {
    /// Nanoseconds of the window.
    pub window_ns: u64,
    pub tally: Tally,
    /// CPU time of the driver's threads in the window.
    pub cpu: ThreadCpu,
    /// Connections that got enough of their lines, if these are limited.
    pub conforming: usize,
    /// Open loop: requests that waited for a connection when the window closed, and the most at any time.
    pub backlog: u64,
    pub longest_queue: u64,
}

/// The requests for a document, as bytes: one after which the connection is kept, and the last of its connection.
pub(crate) struct Texts {
    kept: Vec<u8>,
    last: Vec<u8>,
}

/// Drives the server from the first request to the last response.
///
/// # Errors
/// A [`WrongData`] if a response differs from its document; otherwise what the server did, or what this machine lacks.
pub fn run(drive: Drive<'_>) -> Result<DriveResult> {
    drive_all(drive).map_err(|error| match error.downcast::<Fault>() {
        Ok(Fault::Wrong(what)) => WrongData(what).into(),
        Ok(fault) => fault.into(),
        Err(error) => error,
    })
}

fn drive_all(drive: Drive<'_>) -> Result<DriveResult> {
    let Drive { load, work, address, encryptor, host, documents, wiring, threads, seed, watch } = drive;
    limits::allow_files(load.files)?;
    let texts: Vec<Texts> = (0..documents.count())
        .map(|number| {
            let text = |close| http::request(host, documents.path(number), close);
            Texts { kept: text(false), last: text(true) }
        })
        .collect();
    let client = wiring.pair().map_or(*address.ip(), |_| Side::Clients.address()).to_string();
    let stop = Stop::new().context("Cannot make an event descriptor")?;
    let (tell, hear) = channel();
    let connect = || -> Result<Idle<'_>> {
        wiring.enter_clients()?;
        let connected = Idle::connect(load.idle as usize, address, documents, &texts[0].kept, &stop);
        wiring.enter_servers()?;
        Ok(connected?)
    };
    let connected = (load.idle > 0).then(connect).transpose()?;
    watch(RunMoment::Connecting);
    let start = now_ns();
    let control = RunControl::new(load.warm_up, load.length, start, start, tell);
    let results: Vec<Result<ThreadResult>> = thread::scope(|scope| {
        let (control, stop, texts, work, client) = (&control, &stop, &texts, &work, client.as_str());
        let drive = move |thread: u32| {
            let thread = (thread, threads);
            let share = Share {
                load,
                address,
                encryptor,
                documents,
                texts,
                host,
                client,
                work,
                control,
                stop,
                seed,
                thread,
                start,
            };
            match wiring.enter_clients().and_then(|()| Client::new(share)) {
                Ok(client) => Ok(client.work()),
                Err(error) => {
                    control.give_up(now_ns());
                    stop.wake();
                    Err(error)
                }
            }
        };
        let handles: Vec<_> = (0..threads).map(|thread| scope.spawn(move || drive(thread))).collect();
        look_on(&hear, watch);
        handles.into_iter().map(|h| h.join().unwrap_or_else(|_| Err(anyhow!("A driver thread panicked")))).collect()
    });
    let window_ns = control.window().unwrap_or(0);
    let mut driven = DriveResult {
        window_ns,
        tally: Tally::default(),
        cpu: ThreadCpu::default(),
        conforming: 0,
        backlog: 0,
        longest_queue: 0,
    };
    let mut fault: Option<Fault> = None;
    for result in results {
        let result = result?;
        driven.tally.add(&result.tally);
        driven.cpu = driven.cpu.plus(result.cpu);
        driven.conforming += result.conforming;
        driven.backlog += result.backlog as u64;
        driven.longest_queue = driven.longest_queue.max(result.longest_queue as u64);
        // Wrong data outweigh everything else.
        fault = match (fault, result.fault) {
            (Some(Fault::Server(_)) | None, Some(new @ Fault::Wrong(_))) => Some(new),
            (old, new) => old.or(new),
        };
    }
    fault.map_or(Ok(()), Err)?;
    connected.map_or(Ok(()), Idle::prove)?;
    ensure!(driven.tally.requests > 0 && window_ns > 0, "No request was answered in the window, which is too short");
    Ok(driven)
}

/// The number of busy connections of one of the threads.
fn share(connections: u32, (thread, threads): (u32, u32)) -> usize {
    (thread..connections).step_by(threads as usize).len()
}
