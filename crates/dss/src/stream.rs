//! A stream: one client that runs queries in sequence; and the refresh functions.

use std::sync::mpsc::Sender;

use anyhow::{Context as _, Result, ensure};

use crate::answer::Answer;
use crate::database::Client;
use crate::metrics::{REFRESHES, of_query};
use crate::query;
use crate::refresh::{Refresh, Transaction};
use crate::settings::Settings;
use bigiron_sys::cpu_clock::thread_cpu_time;
use bigiron_sys::load::now_ns;

/// A completed piece of work: a query or a refresh function.
#[derive(Clone, Debug)]
pub struct Done {
    /// The metric's name.
    pub name: String,
    pub ns: u64,
    /// The query and its answer; `None` for a refresh function.
    pub answer: Option<(u8, Answer)>,
}

/// How a run times its pieces of work.
pub trait Timing {
    /// Runs `work`, and returns its time in nanoseconds.
    ///
    /// # Errors
    /// As `work`.
    fn time(&mut self, name: &str, work: &mut dyn FnMut() -> Result<()>) -> Result<u64>;
}

/// Only reads the clock before and after the work, and reports each completed piece.
#[derive(Clone)]
pub struct Clock(pub Sender<()>);

impl Timing for Clock {
    fn time(&mut self, _: &str, work: &mut dyn FnMut() -> Result<()>) -> Result<u64> {
        let begun = now_ns();
        work()?;
        let ns = now_ns() - begun;
        // Nobody listens if another stream has failed.
        let _ = self.0.send(());
        Ok(ns)
    }
}

/// Runs the queries of a stream, in order.
///
/// # Errors
/// The engine's message; names the query.
pub fn queries(settings: &Settings, stream: u32, client: &mut Client, timing: &mut dyn Timing) -> Result<Vec<Done>> {
    let parameters = settings.parameters(stream);
    let dialect = settings.engine.dialect();
    let mut all = Vec::new();
    for number in settings.order(stream) {
        let sql = query::text(number, dialect, &parameters, settings.scale);
        let name = of_query(number);
        let mut answer = None;
        let ns = timing
            .time(&name, &mut || {
                answer = Some(client.query(&sql)?);
                Ok(())
            })
            .with_context(|| format!("In query {number} of stream {stream}"))?;
        ensure!(ns > 0, "The clock did not advance in query {number}");
        all.push(Done { name, ns, answer: answer.map(|answer| (number, answer)) });
    }
    Ok(all)
}

/// Runs a pair of refresh functions; the second undoes the first.
///
/// # Errors
/// The engine's message; names the function.
pub fn refresh(settings: &Settings, pair: u32, client: &mut Client, timing: &mut dyn Timing) -> Result<Vec<Done>> {
    let refresh = Refresh::new(settings.scale);
    let set = u64::from(pair) % refresh.sets();
    // Build the statements before the clock starts.
    let functions: [Vec<Transaction>; 2] = [refresh.insert(set).collect(), refresh.delete(set).collect()];
    let mut all = Vec::new();
    for (name, transactions) in REFRESHES.into_iter().zip(functions) {
        let ns = timing
            .time(name, &mut || transactions.iter().try_for_each(|transaction| run(client, transaction)))
            .with_context(|| format!("In refresh function {name}"))?;
        all.push(Done { name: name.to_owned(), ns, answer: None });
    }
    Ok(all)
}

fn run(client: &mut Client, transaction: &Transaction) -> Result<()> {
    client.execute("BEGIN")?;
    transaction.statements.iter().try_for_each(|sql| client.execute(sql))?;
    client.execute("COMMIT")
}

/// CPU time so far of the calling thread and of its connection's process, if it has one, in nanoseconds.
pub fn cpu_ns(client: &Client) -> u64 {
    thread_cpu_time().as_nanos() as u64 + client.process_cpu_ns()
}
