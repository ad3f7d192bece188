//! A job: all settings, parsed and checked, before the machine, its clock and its users are known.
//!
//! Invariant: a [`Job`] gives a [`Config`] for every clock and machine; contradictions are refused with a message that says what
//! would be right.

use std::time::Duration;

use super::config::{Config, Engine, Mode, Pace, RunLength};
use super::jobs::Draft;
use super::options::{A_URL, KEYS, UncheckedConfig};
use super::scale::Scale;
use bigiron_model::clock::Clock;
use bigiron_model::refusal::Refusal;
use bigiron_model::workload::Options;
use bigiron_sql::catalogue;
use bigiron_sql::engine::{self, EngineKind};
use bigiron_workload::acknowledgements::AckTarget;
use bigiron_workload::keys;
use bigiron_workload::keys::form::{word, words_of};

/// A job's claim about its own run, checked when it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The working set is in the server's memory: the server reads no data file, and the machine does not swap.
    Cached,
    /// Reads grow with the transactions, and the machine does not swap.
    Uncached,
    /// At least the first step of a ramp of users succeeds.
    Users,
}

words_of!(Claim: "cached" => Cached, "uncached" => Uncached, "users" => Users);

/// A checked job.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    pub name: String,
    pub claim: Option<Claim>,
    pub engine: Engine,
    pub mode: Mode,
    pub scale: Scale,
    pub touched: (u32, u32),
    /// The number of this process, from 1, and the number of processes that share the run.
    pub part: (u32, u32),
    /// Where commits are acknowledged at once.
    pub acks: Option<AckTarget>,
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
    /// `None`: depends on the clock.
    ramp: Option<RunLength>,
    length: Option<RunLength>,
    /// Response limit of each kind's 90th percentile.
    pub limits: [Duration; 5],
}

impl Job {
    /// The job described by the complete `options`; the error says what would be right.
    pub fn parse(options: &Options) -> Result<Self, String> {
        Self::from_options(options).map_err(|refusal| refusal.to_string())
    }

    fn from_options(options: &Options) -> Result<Self, Refusal> {
        let draft = Draft::new(options)?;
        let mut said = UncheckedConfig::default();
        keys::read(KEYS.iter(), |key| Some(draft.get(key)), &mut said)?;
        let job = Job {
            name: draft.name.clone(),
            claim: draft.claim().map(|claim| (word().read)(claim)).transpose()?,
            engine: engine(&draft, &said)?,
            pace: pace(&draft, &said)?,
            mode: said.mode,
            scale: Scale { warehouses: said.warehouses },
            touched: said.touched,
            acks: said.acks,
            part: said.part,
            connections: said.connections,
            terminals: said.terminals,
            users: said.users,
            drivers: said.drivers,
            mix: said.mix,
            ramp: said.ramp,
            length: said.length,
            limits: said.limits,
        };
        job.agrees(&draft)?;
        Ok(job)
    }

    /// Refuses contradictions.
    fn agrees(&self, draft: &Draft) -> Result<(), Refusal> {
        if let Some(RunLength::Operations(0) | RunLength::Time(Duration::ZERO)) = self.length {
            return Err(draft.get("length").cannot_be("1 transaction or more, or a time"));
        }
        if self.users.is_empty() {
            match (self.connections, self.terminals) {
                (None, None) => {
                    return Err(draft
                        .get("terminals")
                        .cannot_be("a number: `oltp.connections` then sets one for each of them"));
                }
                (Some(connections), Some(terminals)) if terminals < connections => {
                    let right = format!(
                        "{connections} or more: a terminal has at most one request at a time, so the other connections would idle"
                    );
                    return Err(draft.get("terminals").cannot_be(right));
                }
                _ => {}
            }
        } else {
            if self.terminals.is_some() {
                return Err(draft.get("terminals").cannot_be("`auto` only: `oltp.users` sets their number"));
            }
            if self.connections.is_some_and(|c| c > self.users[0]) {
                let right = format!("at most {}, the first step of `oltp.users`; or `terminals`", self.users[0]);
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
                .cannot_be("`postgres` or `mariadb` in this job: SQLite has no shared buffers to reduce"));
        }
        let (without_effect, with): (&[&str], _) = match &self.engine {
            Engine::Sqlite { .. } => (&["version", "transport", "mode"], "`oltp.engine` `sqlite`"),
            Engine::MariaDb { .. } => (&["journal"], "`oltp.engine` `mariadb`"),
            Engine::Postgres { .. } => (&["journal"], "`oltp.engine` `postgres`"),
            Engine::Url(_) => (&["version", "transport", "journal"], "`oltp.url`"),
        };
        if let Some(value) = without_effect.iter().find_map(|key| draft.set(key)) {
            return Err(value.refuse(format!("`{}` has no effect with {with}; omit it", value.key())));
        }
        let catalogue = self.engine.settings();
        if let Engine::Url(_) = &self.engine {
            // A job's own settings are for a private server.
            if let Some((name, _)) = draft.settings(&catalogue::POSTGRES)?.first() {
                let message = format!(
                    "`oltp.postgres.{name}` cannot be set on an existing server; set it there, or omit `oltp.url`"
                );
                return Err(Refusal::new(message));
            }
        }
        if let Some(name) = draft.foreign_setting(catalogue)? {
            let right = match catalogue {
                Some(of) => format!("its own are `oltp.{}.NAME`", of.server),
                None => "it has none of a server".to_owned(),
            };
            return Err(Refusal::new(format!("`{name}` is not a setting of this engine; {right}")));
        }
        Ok(())
    }

    /// Refuses settings that processes sharing a run cannot agree on.
    fn shares(&self, draft: &Draft) -> Result<(), Refusal> {
        if self.acks.is_some() && !self.users.is_empty() {
            return Err(draft.get("acks").cannot_be("`none` with `oltp.users`: its steps are separate runs"));
        }
        let (_, parts) = self.part;
        if parts == 1 {
            return Ok(());
        }
        if !self.is_elsewhere() {
            return Err(draft
                .get("part")
                .cannot_be("`1/1` without `oltp.url`: only this process can reach a private server"));
        }
        if !self.users.is_empty() {
            return Err(draft.get("part").cannot_be("`1/1` with `oltp.users`: a ramp of users needs a single process"));
        }
        if parts > self.touched.1 - self.touched.0 + 1 {
            return Err(draft.get("part").cannot_be("of at most as many processes as warehouses are used"));
        }
        for (key, length) in [("ramp", self.ramp), ("length", self.length)] {
            if matches!(length, Some(RunLength::Operations(_))) {
                return Err(draft
                    .get(key)
                    .cannot_be("a time with `oltp.part`: processes do not count each other's transactions"));
            }
        }
        Ok(())
    }

    /// The configuration on a machine with this many CPUs; with a ramp, that of its last step.
    pub fn config(&self, clock: Clock, cpus: u32) -> Config {
        let terminals = self.users.last().copied().or(self.terminals).or(self.connections).unwrap_or(1);
        self.config_for(terminals, clock, cpus)
    }

    /// The configuration for one step of a ramp.
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

    fn lengths(&self, terminals: u32, clock: Clock) -> (RunLength, RunLength) {
        let (ramp, length) = match clock {
            Clock::Wall => (RunLength::Time(Duration::from_secs(10)), RunLength::Time(Duration::from_secs(60))),
            // At least two for each terminal.
            Clock::Exact | Clock::ExactParallel | Clock::Exact1 | Clock::None => {
                (RunLength::Operations(500), RunLength::Operations(u64::from(terminals).saturating_mul(2).max(2000)))
            }
        };
        (self.ramp.unwrap_or(ramp), self.length.unwrap_or(length))
    }

    /// Whether the server is not private, so that its processes are not visible.
    pub fn is_elsewhere(&self) -> bool {
        matches!(self.engine, Engine::Url(_))
    }
}

fn engine(draft: &Draft, said: &UncheckedConfig) -> Result<Engine, Refusal> {
    let url = &said.url;
    let only = |right: &str| Err(Refusal::new(right.to_owned()).at(draft.get("url").place()));
    let (version, transport) = (&said.version, said.transport);
    match (said.engine, url.as_str()) {
        (EngineKind::Sqlite, "none") => return Ok(Engine::Sqlite { journal: said.journal }),
        // The text may hold a password, which is not repeated.
        (EngineKind::Sqlite, _) => {
            return only("`oltp.url` can only be `none` with the engine `sqlite`, which is not a server");
        }
        (EngineKind::MariaDb, "none") => {
            let version = engine::mariadb_series(version.as_deref());
            let version = version.map_err(|right| draft.get("version").cannot_be(right))?;
            return Ok(Engine::MariaDb { version, transport, settings: draft.settings(&catalogue::MARIADB)? });
        }
        (EngineKind::MariaDb, _) => {
            return only(
                "`oltp.url` can only be `none` with the engine `mariadb`: existing servers speak PostgreSQL's protocol",
            );
        }
        (EngineKind::Postgres, "none") => {
            let version = engine::postgres_version(version.as_deref());
            let version = version.map_err(|right| draft.get("version").cannot_be(right))?;
            return Ok(Engine::Postgres { version, transport, settings: draft.settings(&catalogue::POSTGRES)? });
        }
        (EngineKind::Postgres, _) => {}
    }
    if !["postgresql://", "postgres://"].iter().any(|scheme| url.starts_with(scheme)) {
        // As above.
        return Err(Refusal::new(format!("`oltp.url` can be {A_URL}")).at(draft.get("url").place()));
    }
    Ok(Engine::Url(url.clone()))
}

fn pace(draft: &Draft, said: &UncheckedConfig) -> Result<Pace, Refusal> {
    let &UncheckedConfig { keying, think, .. } = said;
    match said.rate {
        None => Ok(Pace::Closed { keying, think }),
        Some(rate) if keying == 0.0 && think == 0.0 => Ok(Pace::Open { rate }),
        Some(_) => {
            let key = if think > 0.0 { "think" } else { "keying" };
            Err(draft.get(key).cannot_be("`off` with `oltp.rate`: arrivals of an open loop do not wait for users"))
        }
    }
}

#[cfg(test)]
#[path = "job_tests.rs"]
mod tests;
