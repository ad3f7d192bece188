//! The parsed options of `dss`.

use bigiron_model::size::{parse_bytes, print_bytes};
use bigiron_model::workload::Options;
use bigiron_sql::catalogue;
use bigiron_sql::engine::{self, Engine};
use bigiron_sql::pg::Url;
use bigiron_sql::server::Transport;
use bigiron_sql::sqlite::SqliteJournal;
use bigiron_workload::keys::form::words_of;
use bigiron_workload::{OptionDef, OptionReader, choice, option};

use crate::orders;
use crate::parameters::Parameters;
use crate::query::Sql;
use crate::scale::Scale;

/// Default memory of a sort or hash table before it spills to temporary files: in ordinary runs, and in the run `spill`.
const MEMORY: (u64, u64) = (64 << 20, 1 << 20);
/// All operators of a query share DataFusion's pool, and a spilling sort needs this much to merge.
const DATAFUSION_MEMORY: (u64, u64) = (512 << 20, 24 << 20);

pub const OPTIONS: &[OptionDef] = &[
    choice(
        "engine",
        &["datafusion", "postgres", "sqlite"],
        "DataFusion on Parquet files (built by `make datafusion`), a private PostgreSQL from Debian's archive, or the embedded SQLite",
    ),
    option(
        "url",
        "",
        "An existing server that speaks PostgreSQL's protocol, `postgresql://USER@HOST/DATABASE`; needs the engine `postgres`",
    ),
    option("version", "auto", "PostgreSQL's major version; `auto`: Debian 12's, which is 15"),
    choice("transport", &["unix", "tcp"], "How clients connect to a private PostgreSQL"),
    choice(
        "run",
        &["power", "throughput", "scan", "spill"],
        "One stream of queries, several concurrent streams, a scan of the largest table, or a sort and a join that spill",
    ),
    option(
        "scale",
        "0.01",
        "Scale factor, 0.001 to 1000; 1 is about 1 GB of raw data; with `--on local`, use 1 or more",
    ),
    option("queries", "all", "Queries to run, such as `1,6,18`, or `all`"),
    option("streams", "2", "Concurrent streams in the run `throughput`, 1 to 41"),
    choice(
        "refresh",
        &["auto", "yes", "no"],
        "Whether to run the refresh functions; `auto`: yes on PostgreSQL and SQLite",
    ),
    option("parameters", "validation", "The queries' parameters: TPC-H's validation values, or a seed"),
    option(
        "memory",
        "auto",
        "Memory of sorts and hash tables beyond which they spill to temporary files, such as `64M`",
    ),
    option("threads", "auto", "DataFusion's threads, or parallel workers of a PostgreSQL query; `auto`: one per CPU"),
    option("row-group", "131072", "Rows in a row group of DataFusion's Parquet files"),
];

/// What a trial runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RunKind {
    #[default]
    Power,
    Throughput,
    Scan,
    Spill,
}

words_of!(RunKind: "power" => Power, "throughput" => Throughput, "scan" => Scan, "spill" => Spill);

/// The engine that runs the queries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DssEngine {
    DataFusion {
        row_group: u64,
    },
    /// PostgreSQL, an existing server, or SQLite.
    Sql(Engine),
}

impl DssEngine {
    pub fn dialect(&self) -> Sql {
        match self {
            Self::DataFusion { .. } => Sql::DataFusion,
            Self::Sql(Engine::Sqlite { .. }) => Sql::Sqlite,
            Self::Sql(_) => Sql::Postgres,
        }
    }
}

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Settings {
    pub engine: DssEngine,
    pub run: RunKind,
    pub scale: Scale,
    /// In ascending order.
    pub queries: Vec<u8>,
    /// 1 unless the run is [`RunKind::Throughput`].
    pub streams: u32,
    pub refresh: bool,
    /// The seed of the parameters; `None`: the validation values, in all streams.
    pub seed: Option<u64>,
    /// Bytes of a sort or hash table (DataFusion: of all in a process) before it spills to temporary files.
    pub memory: u64,
    /// `None`: one per CPU.
    pub threads: Option<u32>,
}

/// Checks that `name` is a setting of PostgreSQL.
///
/// # Errors
/// A suggestion, or the valid names.
pub fn check_dotted(name: &str) -> Result<(), String> {
    catalogue::check_option("dss", &[&catalogue::POSTGRES], OPTIONS.iter().map(|o| o.name), name)
}

impl Settings {
    /// Parses the options.
    ///
    /// # Errors
    /// The invalid option and its valid values.
    pub fn parse(options: &Options) -> Result<Self, String> {
        let read = OptionReader { workload: "dss", definitions: OPTIONS, options };
        let run = read.word::<RunKind>("run").unwrap_or_default();
        let engine = engine(&read)?;
        let datafusion = matches!(engine, DssEngine::DataFusion { .. });
        let scale = read
            .text("scale")
            .parse()
            .map_err(|_| read.wrong("scale", "a scale factor from 0.001 to 1000 with at most three decimals"))?;
        let queries = queries(read.text("queries"))
            .ok_or_else(|| read.wrong("queries", "`all`, or numbers from 1 to 22 separated by commas, each once"))?;
        let streams = read.text("streams").parse().ok().filter(|n| (1..=orders::ORDERS.len() as u32).contains(n));
        let streams = streams.ok_or_else(|| read.wrong("streams", &format!("1 to {}", orders::ORDERS.len())))?;
        let seed = match read.text("parameters") {
            "validation" => None,
            seed => Some(seed.parse().map_err(|_| read.wrong("parameters", "`validation`, or a number as a seed"))?),
        };
        let refresh = match (read.text("refresh"), datafusion) {
            ("yes", true) => return Err(
                "`dss.refresh` cannot be `yes` with `dss.engine` `datafusion`, whose Parquet files cannot be changed"
                    .to_owned(),
            ),
            (refresh, datafusion) => refresh != "no" && !datafusion,
        };
        let (ordinary, spill) = if datafusion { DATAFUSION_MEMORY } else { MEMORY };
        let memory = match read.text("memory") {
            "auto" if run == RunKind::Spill => Some(spill),
            "auto" => Some(ordinary),
            bytes => parse_bytes(bytes).ok().filter(|bytes| (64 << 10..=1 << 40).contains(bytes)),
        };
        let memory = memory.ok_or_else(|| read.wrong("memory", "64K to 1T, such as `64M`, or `auto`"))?;
        let threads = match read.text("threads") {
            "auto" => None,
            n => Some(
                n.parse()
                    .ok()
                    .filter(|n| (1..=256).contains(n))
                    .ok_or_else(|| read.wrong("threads", "1 to 256, or `auto`"))?,
            ),
        };
        let settings = Self {
            engine,
            run,
            scale,
            queries,
            streams: if run == RunKind::Throughput { streams } else { 1 },
            refresh: refresh && matches!(run, RunKind::Power | RunKind::Throughput),
            seed,
            memory,
            threads,
        };
        settings.check_effects(&read)?;
        Ok(settings)
    }

    /// Refuses options that would have no effect.
    fn check_effects(&self, read: &OptionReader<'_>) -> Result<(), String> {
        let own_server = matches!(self.engine, DssEngine::Sql(Engine::Postgres { .. }));
        let sqlite = matches!(self.engine, DssEngine::Sql(Engine::Sqlite { .. }));
        let datafusion = matches!(self.engine, DssEngine::DataFusion { .. });
        let queries = matches!(self.run, RunKind::Power | RunKind::Throughput);
        let existing = matches!(self.engine, DssEngine::Sql(Engine::Url(_)));
        // An existing server has the engine `postgres`, too.
        let engine = if existing { "url" } else { "engine" };
        for (name, has_effect, with) in [
            ("version", own_server, engine),
            ("transport", own_server, engine),
            ("memory", own_server || datafusion, engine),
            ("threads", own_server || datafusion, engine),
            ("row-group", datafusion, engine),
            ("queries", queries, "run"),
            ("refresh", queries, "run"),
            ("parameters", queries, "run"),
            ("streams", self.run == RunKind::Throughput, "run"),
        ] {
            if !has_effect {
                read.has_no_effect(name, with)?;
            }
        }
        if self.run == RunKind::Spill && sqlite {
            return Err("`dss.run` cannot be `spill` with `dss.engine` `sqlite`, which sorts in memory".to_owned());
        }
        if existing && let Some(name) = read.options.keys().find(|name| name.starts_with("postgres.")) {
            return Err(format!("`dss.{name}` has no effect with `dss.url`, whose server keeps its settings; omit it"));
        }
        catalogue::refuse_foreign(read, own_server.then_some(&catalogue::POSTGRES))?;
        match read.options.contains_key("postgres.work_mem") {
            true => Err("`dss.postgres.work_mem` follows from `dss.memory`; set that instead".to_owned()),
            false => Ok(()),
        }
    }

    /// The parameters of a stream.
    pub fn parameters(&self, stream: u32) -> Parameters {
        self.seed.map_or_else(Parameters::validation, |seed| Parameters::drawn(seed, stream as usize))
    }

    /// The queries of a stream, in order.
    pub fn order(&self, stream: u32) -> impl Iterator<Item = u8> + '_ {
        orders::of_stream(stream as usize).iter().copied().filter(|query| self.queries.contains(query))
    }

    /// The memory with a unit, such as `64M`.
    pub fn memory_in_words(&self) -> String {
        print_bytes(self.memory)
    }
}

fn engine(read: &OptionReader<'_>) -> Result<DssEngine, String> {
    let named = read.text("engine");
    let url = read.text("url");
    if !url.is_empty() {
        if named != "postgres" {
            return Err(format!(
                "`dss.url` has no effect with `dss.engine` `{named}`; set the engine to `postgres`, or omit the URL"
            ));
        }
        Url::parse(url).map_err(|e| format!("`dss.url`: {e}"))?;
        return Ok(DssEngine::Sql(Engine::Url(url.to_owned())));
    }
    Ok(match named {
        "datafusion" => {
            let rows = read.text("row-group").parse().ok().filter(|n| (1024..=100_000_000).contains(n));
            let row_group = rows.ok_or_else(|| read.wrong("row-group", "1024 to 100000000 rows"))?;
            DssEngine::DataFusion { row_group }
        }
        "sqlite" => DssEngine::Sql(Engine::Sqlite { journal: SqliteJournal::Wal }),
        _ => {
            let version = Some(read.text("version")).filter(|text| *text != "auto");
            let version = engine::postgres_version(version).map_err(|right| read.wrong("version", right))?;
            let transport = read.word::<Transport>("transport").unwrap_or_default();
            DssEngine::Sql(Engine::Postgres { version, transport, settings: catalogue::POSTGRES.chosen(read.options) })
        }
    })
}

/// The listed queries in ascending order; `None` if a number is invalid or occurs twice.
fn queries(text: &str) -> Option<Vec<u8>> {
    if text == "all" {
        return Some((1..=orders::QUERIES as u8).collect());
    }
    let mut numbers = text.split(',').map(|n| n.trim().parse().ok()).collect::<Option<Vec<u8>>>()?;
    let count = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    (numbers.len() == count && numbers.iter().all(|n| (1..=orders::QUERIES as u8).contains(n))).then_some(numbers)
}
