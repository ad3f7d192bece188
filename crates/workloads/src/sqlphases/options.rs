//! The parsed options of `sqlphases`.

use bigiron_model::clock::Clock;
use bigiron_model::suggest;
use bigiron_model::workload::Options;
use bigiron_sql::catalogue;
use bigiron_sql::engine::{self, Engine, EngineKind};
use bigiron_sql::server::Transport;
use bigiron_sql::sqlite::SqliteJournal;
use bigiron_workload::{OptionDef, OptionReader, choice, option};

use super::phase::{self, Phase};

/// Default number of rows: on the wall clock, and on any other clock.
const ROWS: (u64, u64) = (20_000, 500);
/// The smallest selection is a hundredth of the rows.
const STEP: u64 = 100;
const MOST: u64 = 10_000_000;

pub const OPTIONS: &[OptionDef] = &[
    choice(
        "engine",
        &["postgres", "mariadb", "sqlite"],
        "A private PostgreSQL or MariaDB from Debian's archive, or the embedded SQLite",
    ),
    option("version", "auto", "The server's series, such as 17 or 11.8; `auto`: Debian 12's, which is 15 or 10.11"),
    choice("transport", &["unix", "tcp"], "How the client connects to a server"),
    choice("journal", &["wal", "rollback"], "SQLite's journal, with `synchronous=FULL`"),
    option("phases", "all", "Phases to run, separated by commas, or `all`"),
    option(
        "rows",
        "auto",
        "Rows per table, a multiple of 100; most statement counts scale with it; `auto`: 20000 on the wall clock, else 500",
    ),
];

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Settings {
    pub engine: Engine,
    pub phases: Vec<&'static Phase>,
    pub rows: u64,
}

/// Checks that `name` is a setting of a server.
///
/// # Errors
/// A suggestion, or what the name can be.
pub fn check_dotted(name: &str) -> Result<(), String> {
    catalogue::check_option("sqlphases", &catalogue::ALL, OPTIONS.iter().map(|o| o.name), name)
}

impl Settings {
    /// Parses the options.
    ///
    /// # Errors
    /// The invalid option, and what it can be.
    pub fn parse(options: &Options, clock: Clock) -> Result<Self, String> {
        let read = OptionReader { workload: "sqlphases", definitions: OPTIONS, options };
        let phases = phases(read.text("phases")).ok_or_else(|| {
            let names = suggest::list(phase::ALL.iter().map(|phase| phase.name));
            read.wrong("phases", &format!("`all`, or any of these separated by commas, each once: {names}"))
        })?;
        let rows = match read.text("rows") {
            "auto" => Some(if clock == Clock::Wall { ROWS.0 } else { ROWS.1 }),
            n => n.parse().ok().filter(|n: &u64| (STEP..=MOST).contains(n) && n.is_multiple_of(STEP)),
        };
        let rows = rows.ok_or_else(|| read.wrong("rows", "a multiple of 100 from 100 to 10000000, or `auto`"))?;
        Ok(Self { engine: engine(&read)?, phases, rows })
    }
}

fn engine(read: &OptionReader<'_>) -> Result<Engine, String> {
    let version = Some(read.text("version")).filter(|text| *text != "auto");
    let transport = read.word::<Transport>("transport").unwrap_or_default();
    let kind = read.word::<EngineKind>("engine").unwrap_or_default();
    let engine = match kind {
        EngineKind::Postgres => {
            let version = engine::postgres_version(version).map_err(|right| read.wrong("version", right))?;
            Engine::Postgres { version, transport, settings: catalogue::POSTGRES.chosen(read.options) }
        }
        EngineKind::MariaDb => {
            let version = engine::mariadb_series(version).map_err(|right| read.wrong("version", right))?;
            Engine::MariaDb { version, transport, settings: catalogue::MARIADB.chosen(read.options) }
        }
        EngineKind::Sqlite => Engine::Sqlite { journal: read.word::<SqliteJournal>("journal").unwrap_or_default() },
    };
    catalogue::refuse_foreign(read, engine.settings())?;
    let has_server = kind != EngineKind::Sqlite;
    for (name, has_effect) in [("version", has_server), ("transport", has_server), ("journal", !has_server)] {
        if !has_effect {
            read.has_no_effect(name, "engine")?;
        }
    }
    Ok(engine)
}

/// The named phases, in the order of [`phase::ALL`]; `None` if a name is unknown or occurs twice.
fn phases(text: &str) -> Option<Vec<&'static Phase>> {
    if text == "all" {
        return Some(phase::ALL.iter().collect());
    }
    let names: Vec<&str> = text.split(',').map(str::trim).collect();
    let found: Vec<_> = phase::ALL.iter().filter(|phase| names.contains(&phase.name)).collect();
    (found.len() == names.len()).then_some(found)
}
