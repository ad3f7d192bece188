//! The levers `oltp.NAME`, and the server settings `oltp.postgres.NAME`.
//!
//! Invariant: an option that nobody sets is what the job says, and a job that does not say it either takes it from the job `default`.

use crate::suggest;
use crate::workload::OptionDef;

use super::settings;

/// What an option is when the job decides.
pub const AS_JOB: &str = "job";

/// The prefix of a server setting's name.
pub const POSTGRES: &str = "postgres.";

const fn option(name: &'static str, allowed: &'static [&'static str], summary: &'static str) -> OptionDef {
    OptionDef { name, default: AS_JOB, allowed, summary }
}

/// The options, as levers `oltp.NAME`.
pub const OPTIONS: &[OptionDef] = &[
    OptionDef {
        name: "job",
        default: "default",
        allowed: &[],
        summary: "What is done: `default`, `cached`, `uncached`, `oast`, or a job file; every other option changes a part of it",
    },
    option("engine", &["job", "postgres", "sqlite"], "A PostgreSQL of the run's own, or SQLite inside the driver"),
    option("version", &[], "PostgreSQL's major version, e.g. 15"),
    option(
        "url",
        &[],
        "A server that runs already, `postgresql://USER@HOST/DATABASE`, in the place of an own one; or `none`",
    ),
    option("transport", &["job", "unix", "tcp"], "How the driver reaches a server of the run's own"),
    option("journal", &["job", "wal", "rollback"], "SQLite's journal; both synchronise fully"),
    option(
        "mode",
        &["job", "procedures", "pipelined", "round-trips"],
        "How a transaction travels: one call, all statements with one Sync, or one round trip for each statement",
    ),
    option(
        "acks",
        &[],
        "Where each acknowledged commit is told of at once: a file on another machine or device, `tcp:HOST:PORT`, or `none`",
    ),
    option("warehouses", &[], "Warehouses loaded, about 100 MB each"),
    option("touched", &[], "Warehouses used: `all`, or `A..B`, the first and the last"),
    option(
        "part",
        &[],
        "`K/N`: process number K of N that share a run on the server of `oltp.url`, each with connections and terminals of its own",
    ),
    option("connections", &[], "Connections to the server, or `terminals`: one for each"),
    option("terminals", &[], "Users; `auto`: one for each connection"),
    option("users", &[], "A ramp of users in the place of one run: `A..B:STEP`, a list `100,200,500`, or `none`"),
    option("drivers", &[], "Driver threads; `auto`: one for every two CPUs"),
    option(
        "mix",
        &[],
        "Percentages NEW-ORDER/PAYMENT/ORDER-STATUS/DELIVERY/STOCK-LEVEL, 100 together; of four, new-orders are what is left",
    ),
    option("keying", &[], "Keying times: `off`, `spec` (18, 3, 2, 2, 2 s), or a factor of these"),
    option("think", &[], "Think times: `off`, `spec` (means of 12, 12, 10, 5, 5 s), or a factor of these"),
    option("rate", &[], "Open loop: transactions per second that arrive over all terminals, or `off`"),
    option("ramp", &[], "Warm-up, not measured: `500` transactions, `10s`, or `auto`"),
    option(
        "length",
        &[],
        "What is measured: `2000` transactions, `30s`, or `auto`: by time on the wall clock, else by transactions",
    ),
    option("limits", &[], "Response limits of the 90th percentile, `5/5/5/5/20` seconds in the mix's order"),
];

/// Whether `name` is an option besides [`OPTIONS`]: a setting of the server. The error says what would be right.
pub fn check_dotted(name: &str) -> Result<(), String> {
    if let Some(setting) = name.strip_prefix(POSTGRES) {
        return settings::check_name(setting);
    }
    let names = || OPTIONS.iter().map(|o| o.name);
    // `shared_buffers` for `postgres.shared_buffers`.
    if settings::is_known(name) {
        return Err(format!("did you mean `oltp.{POSTGRES}{name}`?"));
    }
    Err(match suggest::nearest(name, names()) {
        Some(near) => format!("did you mean `oltp.{near}`?"),
        None => format!("oltp has {}, and the server's settings as `oltp.{POSTGRES}NAME`", suggest::list(names())),
    })
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
        assert!(check_dotted("postgres.Shared-Buffers").unwrap_err().contains("lower-case"));
        assert!(check_dotted("frobnicate").unwrap_err().contains("`oltp.postgres.NAME`"));
    }
}
