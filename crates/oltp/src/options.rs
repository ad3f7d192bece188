//! The levers `oltp.NAME`, and the server settings `oltp.postgres.NAME` and `oltp.mariadb.NAME`.
//!
//! Invariant: an option that is not set has the job's value, and a key missing from the job has the value of the job `default`.

use std::sync::LazyLock;
use std::time::Duration;

use super::config::{Mode, RunLength};
use super::values;
use bigiron_model::document::Value;
use bigiron_sql::catalogue;
use bigiron_sql::engine::EngineKind;
use bigiron_sql::server::Transport;
use bigiron_sql::sqlite::SqliteJournal;
use bigiron_workload::OptionDef;
use bigiron_workload::acknowledgements::AckTarget;
use bigiron_workload::keys::form::{Form, count, or, text, word, words_of};
use bigiron_workload::keys::{Key, key};

/// The value of an option that leaves the choice to the job.
pub const AS_JOB: &str = "job";

/// Numbers with dots between them.
fn series(text: &str) -> Option<String> {
    let is_number = |part: &str| !part.is_empty() && part.len() <= 4 && part.bytes().all(|b| b.is_ascii_digit());
    text.split('.').all(is_number).then(|| text.to_owned())
}

/// A job's values, before their combination is checked.
#[derive(Clone, Debug, Default)]
pub struct UncheckedConfig {
    pub engine: EngineKind,
    /// `None`: the one that Debian 12 has.
    pub version: Option<String>,
    pub url: String,
    pub transport: Transport,
    pub journal: SqliteJournal,
    pub mode: Mode,
    pub acks: Option<AckTarget>,
    pub warehouses: u32,
    pub touched: (u32, u32),
    pub part: (u32, u32),
    /// `None`: one for each terminal.
    pub connections: Option<u32>,
    /// `None`: one for each connection.
    pub terminals: Option<u32>,
    pub users: Vec<u32>,
    pub drivers: Option<u32>,
    pub mix: [u32; 5],
    pub keying: f64,
    pub think: f64,
    pub rate: Option<f64>,
    pub ramp: Option<RunLength>,
    pub length: Option<RunLength>,
    pub limits: [Duration; 5],
}

pub const A_URL: &str = "`postgresql://USER@HOST[:PORT]/DATABASE`, or `none`";

/// A user may have written a password into it, which no refusal may repeat.
fn url() -> Form<String> {
    text(A_URL, |url| Some(url.to_owned()))
}

fn acks() -> Form<Option<AckTarget>> {
    let read = |value: &Value| match value.string()?.as_str() {
        "none" => Ok(None),
        to => to.parse().map(Some).map_err(|right: &str| value.cannot_be(right)),
    };
    Form::new("`none`, a file, or `tcp:HOST:PORT`", read, |_| None)
}

words_of!(Mode: "procedures" => Procedures, "pipelined" => Pipelined, "round-trips" => RoundTrips);

/// The keys of a job. Their defaults come from the job `default`.
pub const KEYS: &[Key<UncheckedConfig>] = &[
    key!(UncheckedConfig, "engine": engine, word::<EngineKind>(),
        "A private PostgreSQL or MariaDB, or SQLite inside the driver"),
    key!(UncheckedConfig, "version": version, or("auto", text("a version such as `15` or `10.11`", series)),
        "The private server's version: PostgreSQL's major version (`auto`: 15), MariaDB's series (`auto`: 10.11)"),
    key!(UncheckedConfig, "url": url, url(),
        "An existing server, `postgresql://USER@HOST/DATABASE`, instead of a private one; or `none`"),
    key!(UncheckedConfig, "transport": transport, word::<Transport>(), "How the driver connects to a private server"),
    key!(UncheckedConfig, "journal": journal, word::<SqliteJournal>(), "SQLite's journal; both synchronise fully"),
    key!(UncheckedConfig, "mode": mode, word::<Mode>(),
        "How a transaction is sent: one call, all statements with one Sync, or one round trip for each statement"),
    key!(UncheckedConfig, "acks": acks, acks(),
        "Where each acknowledged commit is reported at once: a file on another machine or device, `tcp:HOST:PORT`, or `none`"),
    key!(UncheckedConfig, "warehouses": warehouses, count(1..=100_000), "Warehouses loaded, about 100 MB each"),
    Key {
        read: |value, said: &mut UncheckedConfig| {
            let right = || format!("`all`, or the first and the last of {} warehouses as `A..B`", said.warehouses);
            said.touched =
                values::touched(&value.scalar()?, said.warehouses).ok_or_else(|| value.cannot_be(right()))?;
            Ok(())
        },
        ..key!(UncheckedConfig, "touched": touched, text(values::SOME_WAREHOUSES, |text| values::touched(text, u32::MAX)),
            "Warehouses that the run uses")
    },
    key!(UncheckedConfig, "part": part, text(values::A_PART, values::part),
        "`K/N`: process number K of N that share a run on the server of `oltp.url`, each with its own connections and terminals"),
    key!(UncheckedConfig, "connections": connections, or("terminals", count(1..=10_000)),
        "Connections to the server, or `terminals`: one for each"),
    key!(UncheckedConfig, "terminals": terminals, or("auto", count(1..=1_000_000)),
        "Users; `auto`: one for each connection"),
    key!(UncheckedConfig, "users": users, text(values::SOME_USERS, values::users),
        "A ramp of users instead of one run: `A..B:STEP`, a list `100,200,500`, or `none`"),
    key!(UncheckedConfig, "drivers": drivers, or("auto", count(1..=1024)),
        "Driver threads; `auto`: one for every two CPUs"),
    key!(UncheckedConfig, "mix": mix, text(values::A_MIX, values::mix),
        "Percentages NEW-ORDER/PAYMENT/ORDER-STATUS/DELIVERY/STOCK-LEVEL, 100 in total; with four, new-orders are the rest"),
    key!(UncheckedConfig, "keying": keying, text(values::A_FACTOR, values::factor),
        "Keying times: `off`, `spec` (18, 3, 2, 2, 2 s), or a factor of these"),
    key!(UncheckedConfig, "think": think, text(values::A_FACTOR, values::factor),
        "Think times: `off`, `spec` (means of 12, 12, 10, 5, 5 s), or a factor of these"),
    key!(UncheckedConfig, "rate": rate, text(values::A_RATE, values::rate),
        "Open loop: arriving transactions per second over all terminals, or `off`"),
    key!(UncheckedConfig, "ramp": ramp, text(values::A_LENGTH, RunLength::parse),
        "Warm-up, not measured: `500` transactions, `10s`, or `auto`"),
    key!(UncheckedConfig, "length": length, text(values::A_LENGTH, RunLength::parse),
        "The measured part: `2000` transactions, `30s`, or `auto`: by time on the wall clock, else by transactions"),
    key!(UncheckedConfig, "limits": limits, text(values::SOME_LIMITS, values::limits),
        "Response limits of the 90th percentile, `5/5/5/5/20` seconds in the mix's order"),
];

const JOB: OptionDef = OptionDef {
    name: "job",
    default: "default",
    allowed: &[],
    summary: "The work to do: `default`, `cached`, `uncached`, `oast`, or a job file; every other option changes a part of it",
};

/// The options, as levers `oltp.NAME`: the job, and each key of one.
pub static OPTIONS: LazyLock<Vec<OptionDef>> = LazyLock::new(|| {
    let keys = KEYS.iter().map(|key| OptionDef { default: AS_JOB, ..key.option(&[AS_JOB]) });
    [JOB].into_iter().chain(keys).collect()
});

/// Whether `name` is a setting of the server rather than one of [`static@OPTIONS`]. The error says what would be right.
pub fn check_dotted(name: &str) -> Result<(), String> {
    catalogue::check_option("oltp", &catalogue::ALL, OPTIONS.iter().map(|o| o.name), name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_settings_are_options_and_slips_are_named() {
        assert_eq!(check_dotted("postgres.shared_buffers"), Ok(()));
        assert_eq!(check_dotted("postgres.an_extension.setting_of_its_own"), Ok(()));
        assert_eq!(check_dotted("postgres.shared_bufers").unwrap_err(), "did you mean `oltp.postgres.shared_buffers`?");
        assert_eq!(check_dotted("shared_buffers").unwrap_err(), "did you mean `oltp.postgres.shared_buffers`?");
        assert_eq!(check_dotted("conections").unwrap_err(), "did you mean `oltp.connections`?");
        assert_eq!(check_dotted("mariadb.innodb_doublewrite"), Ok(()));
        assert_eq!(
            check_dotted("innodb_flush_method").unwrap_err(),
            "did you mean `oltp.mariadb.innodb_flush_method`?"
        );
        assert!(check_dotted("mariadb.socket").unwrap_err().contains("sets `socket` itself"));
        assert!(check_dotted("postgres.Shared-Buffers").unwrap_err().contains("lower-case"));
        assert!(check_dotted("frobnicate").unwrap_err().contains("`oltp.postgres.NAME`"));
    }
}
