//! A job: everything that was asked for, read and checked, before the machine, its clock and its users are known.
//!
//! Invariant: a [`Job`] gives a [`Config`] for every clock and machine; whatever contradicts itself was refused with what would be right.

use std::time::Duration;

use super::config::{Config, Engine, Length, Mode, Pace, SqliteJournal, Transport};
use super::jobs::Draft;
use super::scale::Scale;
use super::{settings, values};
use crate::clock::Clock;
use crate::document::Value;
use crate::refusal::Refusal;
use crate::workload::Options;
use crate::workload::dbsim::acks::Target;

/// What a job says about its own run, to be asserted when it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The working set is in the server's memory: it reads no data file, and the machine does not swap.
    Cached,
    /// Reads grow with the transactions, and the machine does not swap.
    Uncached,
    /// At least the first step of a ramp of users is held.
    Users,
}

impl Claim {
    const ALL: [Claim; 3] = [Claim::Cached, Claim::Uncached, Claim::Users];

    pub fn name(self) -> &'static str {
        match self {
            Claim::Cached => "cached",
            Claim::Uncached => "uncached",
            Claim::Users => "users",
        }
    }
}

/// A checked job.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    pub name: String,
    pub claim: Option<Claim>,
    pub engine: Engine,
    pub mode: Mode,
    pub scale: Scale,
    pub touched: (u32, u32),
    /// Which of how many processes that share the run, from 1.
    pub part: (u32, u32),
    /// Where acknowledged commits are told of at once.
    pub acks: Option<Target>,
    /// `None`: one for each terminal.
    connections: Option<u32>,
    /// `None`: one for each connection.
    terminals: Option<u32>,
    /// The steps of a ramp; empty for a single run.
    pub users: Vec<u32>,
    /// `None`: one for every two CPUs.
    drivers: Option<u32>,
    pub mix: [u32; 5],
    pub pace: Pace,
    /// `None`: by the clock.
    ramp: Option<Length>,
    length: Option<Length>,
    /// Response limit of each kind's 90th percentile.
    pub limits: [Duration; 5],
}

impl Job {
    /// The job that complete `options` describe; the error says what would be right.
    pub fn parse(options: &Options) -> Result<Self, String> {
        Self::from_options(options).map_err(|refusal| refusal.to_string())
    }

    fn from_options(options: &Options) -> Result<Self, Refusal> {
        let draft = Draft::new(options)?;
        let warehouses = number(draft.get("warehouses"), 1, 100_000)?;
        let job = Job {
            name: draft.name.clone(),
            claim: draft.claim().map(claim).transpose()?,
            engine: engine(&draft)?,
            mode: word(
                draft.get("mode"),
                &[("procedures", Mode::Procedures), ("pipelined", Mode::Pipelined), ("round-trips", Mode::RoundTrips)],
            )?,
            scale: Scale { warehouses },
            touched: read(draft.get("touched"), |t| values::touched(t, warehouses), &{
                format!("`all`, or the first and the last of {warehouses} warehouses as `A..B`")
            })?,
            acks: match draft.get("acks").string()?.as_str() {
                "none" => None,
                text => Some(text.parse().map_err(|right| draft.get("acks").cannot_be(right))?),
            },
            part: read(draft.get("part"), values::part, values::A_PART)?,
            connections: number_or(draft.get("connections"), "terminals", 10_000)?,
            terminals: number_or(draft.get("terminals"), "auto", 1_000_000)?,
            users: read(draft.get("users"), values::users, values::SOME_USERS)?,
            drivers: number_or(draft.get("drivers"), "auto", 1024)?,
            mix: read(draft.get("mix"), values::mix, values::A_MIX)?,
            pace: pace(&draft)?,
            ramp: read(draft.get("ramp"), values::length, values::A_LENGTH)?,
            length: read(draft.get("length"), values::length, values::A_LENGTH)?,
            limits: read(draft.get("limits"), values::limits, values::SOME_LIMITS)?,
        };
        job.agrees(&draft)?;
        Ok(job)
    }

    /// Refuses what contradicts itself.
    fn agrees(&self, draft: &Draft) -> Result<(), Refusal> {
        if let (Some(Length::Transactions(0)), _) | (Some(Length::Time(Duration::ZERO)), _) = (self.length, ()) {
            return Err(draft.get("length").cannot_be("1 transaction or more, or a time"));
        }
        if self.users.is_empty() {
            match (self.connections, self.terminals) {
                (None, None) => {
                    return Err(draft
                        .get("terminals")
                        .cannot_be("a number: `oltp.connections` is one for each of them"));
                }
                (Some(connections), Some(terminals)) if terminals < connections => {
                    let right = format!(
                        "{connections} or more: a terminal has at most one request at a time, so that the other connections would idle"
                    );
                    return Err(draft.get("terminals").cannot_be(right));
                }
                _ => {}
            }
        } else {
            if self.terminals.is_some() {
                return Err(draft.get("terminals").cannot_be("`auto` only: `oltp.users` says how many there are"));
            }
            if let Some(more) = self.connections.filter(|c| *c > self.users[0]) {
                let right = format!("at most {}, the first step of `oltp.users`; or `terminals`", self.users[0]);
                let _ = more;
                return Err(draft.get("connections").cannot_be(right));
            }
            if matches!(self.pace, Pace::Open { .. }) {
                return Err(draft.get("users").cannot_be("`none` with `oltp.rate`: users are ramped in a closed loop"));
            }
        }
        self.shares(draft)?;
        if matches!(self.engine, Engine::Sqlite { .. }) && self.claim == Some(Claim::Uncached) {
            return Err(draft
                .get("engine")
                .cannot_be("`postgres` in this job: SQLite has no shared buffers to make small"));
        }
        let settings = draft.settings()?;
        if let (Some((name, _)), Engine::Url(_)) = (settings.first(), &self.engine) {
            // A job's own settings are for a server of the run's own.
            let message = format!(
                "`oltp.postgres.{name}` cannot be set on a server that runs already; set it there, or leave `oltp.url`"
            );
            return Err(Refusal::new(message));
        }
        Ok(())
    }

    /// Refuses what processes that share a run cannot agree on.
    fn shares(&self, draft: &Draft) -> Result<(), Refusal> {
        if self.acks.is_some() && !self.users.is_empty() {
            return Err(draft.get("acks").cannot_be("`none` with `oltp.users`: its steps are runs of their own"));
        }
        let (_, parts) = self.part;
        if parts == 1 {
            return Ok(());
        }
        if !self.is_elsewhere() {
            return Err(draft
                .get("part")
                .cannot_be("`1/1` without `oltp.url`: a server of the run's own is reached by this process only"));
        }
        if !self.users.is_empty() {
            return Err(draft.get("part").cannot_be("`1/1` with `oltp.users`: a ramp of users is one process's"));
        }
        if parts > self.touched.1 - self.touched.0 + 1 {
            return Err(draft.get("part").cannot_be("of at most as many as there are warehouses touched"));
        }
        for (key, length) in [("ramp", self.ramp), ("length", self.length)] {
            if matches!(length, Some(Length::Transactions(_))) {
                return Err(draft
                    .get(key)
                    .cannot_be("a time with `oltp.part`: processes do not count each other's transactions"));
            }
        }
        Ok(())
    }

    /// What is run on a machine with so many CPUs; with a ramp, its last step.
    pub fn config(&self, clock: Clock, cpus: u32) -> Config {
        let terminals = self.users.last().copied().or(self.terminals).or(self.connections).unwrap_or(1);
        self.config_for(terminals, clock, cpus)
    }

    /// What is run for one step of a ramp.
    pub fn config_for(&self, terminals: u32, clock: Clock, cpus: u32) -> Config {
        let connections = self.connections.unwrap_or(terminals).min(terminals);
        let (ramp, length) = self.lengths(terminals, clock);
        Config {
            engine: self.engine.clone(),
            mode: self.mode,
            scale: self.scale,
            touched: self.touched,
            part: self.part,
            connections,
            terminals,
            drivers: self.drivers.unwrap_or((cpus / 2).max(1)).min(connections),
            mix: self.mix,
            pace: self.pace,
            ramp,
            length,
        }
    }

    fn lengths(&self, terminals: u32, clock: Clock) -> (Length, Length) {
        let (ramp, length) = match clock {
            Clock::Wall => (Length::Time(Duration::from_secs(10)), Length::Time(Duration::from_secs(60))),
            // Two of each terminal at least.
            Clock::Exact | Clock::None => {
                (Length::Transactions(500), Length::Transactions(u64::from(terminals).saturating_mul(2).max(2000)))
            }
        };
        (self.ramp.unwrap_or(ramp), self.length.unwrap_or(length))
    }

    /// Whether the server is not the run's own, and its processes are not to be seen.
    pub fn is_elsewhere(&self) -> bool {
        matches!(self.engine, Engine::Url(_))
    }

    /// Settings that weaken durability, each with what it can lose.
    pub fn weakened(&self) -> Vec<String> {
        let Engine::Postgres { settings, .. } = &self.engine else { return Vec::new() };
        let weak = |(name, value): &(String, String)| {
            settings::weakens(name, value).map(|what| format!("{name}={value} ({what})"))
        };
        settings.iter().filter_map(weak).collect()
    }
}

fn engine(draft: &Draft) -> Result<Engine, Refusal> {
    let url = draft.get("url").string()?;
    let sqlite = word(draft.get("engine"), &[("postgres", false), ("sqlite", true)])?;
    let journal = word(draft.get("journal"), &[("wal", SqliteJournal::Wal), ("rollback", SqliteJournal::Rollback)])?;
    let transport = word(draft.get("transport"), &[("unix", Transport::Unix), ("tcp", Transport::Tcp)])?;
    let version = number(draft.get("version"), 9, 99)?;
    if sqlite {
        if url != "none" {
            return Err(draft.get("url").cannot_be("`none` with the engine `sqlite`, which is no server"));
        }
        return Ok(Engine::Sqlite { journal });
    }
    if url == "none" {
        return Ok(Engine::Postgres { version, transport, settings: draft.settings()? });
    }
    if !["postgresql://", "postgres://"].iter().any(|scheme| url.starts_with(scheme)) {
        // The text may hold a password, which is not repeated.
        let right = "`oltp.url` can be `postgresql://USER[:PASSWORD]@HOST[:PORT]/DATABASE`, or `none`";
        return Err(Refusal::new(right).at(draft.get("url").place()));
    }
    Ok(Engine::Url(url))
}

fn pace(draft: &Draft) -> Result<Pace, Refusal> {
    let factor = |key| read(draft.get(key), values::factor, values::A_FACTOR);
    let (keying, think) = (factor("keying")?, factor("think")?);
    match read(draft.get("rate"), values::rate, values::A_RATE)? {
        None => Ok(Pace::Closed { keying, think }),
        Some(rate) if keying == 0.0 && think == 0.0 => Ok(Pace::Open { rate }),
        Some(_) => {
            let key = if think > 0.0 { "think" } else { "keying" };
            Err(draft.get(key).cannot_be("`off` only with `oltp.rate`: arrivals of an open loop wait for nobody"))
        }
    }
}

fn claim(value: &Value) -> Result<Claim, Refusal> {
    word(value, &Claim::ALL.map(|c| (c.name(), c)))
}

fn word<T: Copy>(value: &Value, words: &[(&str, T)]) -> Result<T, Refusal> {
    let text = value.string()?;
    let found = words.iter().find(|(name, _)| *name == text).map(|(_, word)| *word);
    found.ok_or_else(|| value.cannot_be(crate::suggest::list(words.iter().map(|(name, _)| *name))))
}

fn read<T>(value: &Value, reader: impl Fn(&str) -> Option<T>, right: &str) -> Result<T, Refusal> {
    reader(&value.scalar()?).ok_or_else(|| value.cannot_be(right))
}

fn number(value: &Value, least: u32, most: u32) -> Result<u32, Refusal> {
    let number = value.scalar()?.parse().ok().filter(|n| (least..=most).contains(n));
    number.ok_or_else(|| value.cannot_be(format!("a number from {least} to {most}")))
}

/// A number from 1, or the word for `None`.
fn number_or(value: &Value, none: &str, most: u32) -> Result<Option<u32>, Refusal> {
    let text = value.scalar()?;
    if text == none {
        return Ok(None);
    }
    let number = text.parse().ok().filter(|n| (1..=most).contains(n));
    number.map(Some).ok_or_else(|| value.cannot_be(format!("`{none}`, or a number from 1 to {most}")))
}

#[cfg(test)]
#[path = "job_tests.rs"]
mod tests;
