//! Settings of private servers: known names, to recognise typing errors, and values that weaken durability.
//!
//! Invariant: the record names every setting passed to a server that can lose acknowledged data.

use crate::server::{mariadb, settings};
use bigiron_model::suggest;
use bigiron_model::workload::Options;
use bigiron_workload::OptionReader;

/// The settings of a kind of server.
#[derive(Debug)]
pub struct Catalogue {
    /// The name of its table in a job, and the middle part of its options' names: `postgres` in `oltp.postgres.NAME`.
    pub server: &'static str,
    /// Settings that a kernel study is likely to change, sorted. A name within a small edit distance of one is taken for a typing error; any
    /// other valid name is passed to the server, which knows its own settings.
    known: &'static [&'static str],
    /// Settings, their values that weaken durability, and the possible loss.
    weak: &'static [(&'static str, &'static [&'static str], &'static str)],
    /// Settings that bigiron sets itself, and the end of the error message, which says what the user can do instead.
    plumbing: &'static [&'static str],
    otherwise: &'static str,
}

const OFF: &[&str] = &["off", "false", "no", "0"];
const ON: &[&str] = &["on", "true", "yes", "1"];

/// PostgreSQL's settings.
pub static POSTGRES: Catalogue = Catalogue {
    server: "postgres",
    known: &[
        "autovacuum",
        "autovacuum_naptime",
        "backend_flush_after",
        "bgwriter_delay",
        "bgwriter_flush_after",
        "bgwriter_lru_maxpages",
        "checkpoint_completion_target",
        "checkpoint_flush_after",
        "checkpoint_timeout",
        "commit_delay",
        "commit_siblings",
        "data_sync_retry",
        "deadlock_timeout",
        "debug_io_direct",
        "default_transaction_isolation",
        "effective_cache_size",
        "effective_io_concurrency",
        "fsync",
        "full_page_writes",
        "huge_page_size",
        "huge_pages",
        "io_combine_limit",
        "io_max_concurrency",
        "io_method",
        "io_workers",
        "jit",
        "lock_timeout",
        "maintenance_io_concurrency",
        "maintenance_work_mem",
        "max_connections",
        "max_locks_per_transaction",
        "max_wal_size",
        "min_dynamic_shared_memory",
        "min_wal_size",
        "plan_cache_mode",
        "random_page_cost",
        "recovery_init_sync_method",
        "shared_buffers",
        "shared_memory_type",
        "statement_timeout",
        "synchronous_commit",
        "temp_buffers",
        "track_io_timing",
        "track_wal_io_timing",
        "wal_buffers",
        "wal_compression",
        "wal_init_zero",
        "wal_level",
        "wal_recycle",
        "wal_segment_size",
        "wal_sync_method",
        "wal_writer_delay",
        "wal_writer_flush_after",
        "work_mem",
    ],
    weak: &[
        ("fsync", OFF, "nothing is forced to disk: a crash of the machine can lose everything"),
        ("full_page_writes", OFF, "a torn page is not repaired after a crash of the machine"),
        ("synchronous_commit", OFF, "a crash loses transactions that were acknowledged"),
        ("data_sync_retry", ON, "a failed fsync is retried, although its data may already be lost"),
    ],
    plumbing: &settings::PLUMBING,
    otherwise: "; to use a server of your own, set `oltp.url`",
};

/// MariaDB's settings.
pub static MARIADB: Catalogue = Catalogue {
    server: "mariadb",
    known: &[
        "innodb_adaptive_flushing",
        "innodb_adaptive_hash_index",
        "innodb_buffer_pool_chunk_size",
        "innodb_buffer_pool_size",
        "innodb_change_buffering",
        "innodb_checksum_algorithm",
        "innodb_deadlock_detect",
        "innodb_doublewrite",
        "innodb_flush_log_at_trx_commit",
        "innodb_flush_method",
        "innodb_flush_neighbors",
        "innodb_io_capacity",
        "innodb_io_capacity_max",
        "innodb_lock_wait_timeout",
        "innodb_log_buffer_size",
        "innodb_log_file_buffering",
        "innodb_log_file_size",
        "innodb_lru_scan_depth",
        "innodb_max_dirty_pages_pct",
        "innodb_page_cleaners",
        "innodb_purge_threads",
        "innodb_read_io_threads",
        "innodb_stats_auto_recalc",
        "innodb_use_atomic_writes",
        "innodb_use_native_aio",
        "innodb_write_io_threads",
        "large_pages",
        "max_connections",
        "performance_schema",
        "sync_binlog",
        "table_open_cache",
        "thread_cache_size",
        "thread_handling",
        "thread_pool_size",
        "transaction_isolation",
    ],
    weak: &[
        (
            "innodb_flush_log_at_trx_commit",
            &["0", "2"],
            "a crash of the machine loses transactions that were acknowledged",
        ),
        ("innodb_flush_method", &["nosync"], "nothing is forced to disk: a crash of the machine can lose everything"),
        ("innodb_doublewrite", OFF, "a torn page is not repaired after a crash of the machine"),
    ],
    plumbing: &mariadb::PLUMBING,
    otherwise: "",
};

/// The catalogues of all servers.
pub static ALL: [&Catalogue; 2] = [&POSTGRES, &MARIADB];

/// Splits an option's name, such as `postgres.shared_buffers`, into the server's catalogue and the setting.
pub fn setting(name: &str) -> Option<(&'static Catalogue, &str)> {
    let (server, setting) = name.split_once('.')?;
    ALL.into_iter().find(|catalogue| catalogue.server == server).map(|catalogue| (catalogue, setting))
}

/// The option names of all frequently used settings.
pub fn option_names() -> Vec<String> {
    let of = |catalogue: &'static Catalogue| catalogue.known().map(|name| format!("{}.{name}", catalogue.server));
    ALL.into_iter().flat_map(of).collect()
}

/// Checks that `name`, which is none of the `options` of `workload`, is a setting of one of its `servers`.
///
/// # Errors
/// A suggestion, or what the name can be.
pub fn check_option<'a>(
    workload: &str,
    servers: &[&Catalogue],
    options: impl Iterator<Item = &'a str> + Clone,
    name: &str,
) -> Result<(), String> {
    if let Some((catalogue, setting)) = setting(name)
        && servers.iter().any(|own| own.server == catalogue.server)
    {
        return catalogue.check_name(workload, setting);
    }
    // `shared_buffers` instead of `postgres.shared_buffers`.
    if let Some(catalogue) = servers.iter().find(|catalogue| catalogue.is_known(name)) {
        return Err(format!("did you mean `{workload}.{}.{name}`?", catalogue.server));
    }
    Err(match suggest::nearest(name, options.clone()) {
        Some(near) => format!("did you mean `{workload}.{near}`?"),
        None => {
            let settings = servers.iter().map(|own| format!("{workload}.{}.NAME", own.server));
            format!(
                "{workload} has {}, and the server's settings as {}",
                suggest::list(options),
                suggest::list(settings)
            )
        }
    })
}

impl Catalogue {
    /// The names of the known settings.
    pub fn known(&self) -> impl Iterator<Item = &'static str> {
        self.known.iter().copied()
    }

    /// Whether `name` is a known setting.
    pub fn is_known(&self, name: &str) -> bool {
        self.known.contains(&name)
    }

    /// Checks that `name` can be a setting of the server; `workload` is part of the option's name in messages.
    ///
    /// # Errors
    /// The name is malformed, is set by bigiron itself, or is probably a typing error; says what would be right.
    pub fn check_name(&self, workload: &str, name: &str) -> Result<(), String> {
        let part = |p: &str| {
            p.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
                && p.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_')
        };
        let server = self.server;
        if !name.split('.').all(part) {
            return Err(format!(
                "a setting's name consists of lower-case letters, digits and `_`, such as `{workload}.{server}.{}`",
                if server == "postgres" { "shared_buffers" } else { "innodb_buffer_pool_size" }
            ));
        }
        if self.plumbing.contains(&name) {
            return Err(format!("bigiron sets `{name}` itself{}", self.otherwise));
        }
        if self.is_known(name) || name.contains('.') {
            return Ok(());
        }
        match suggest::nearest(name, self.known()) {
            // An edit distance of one or two is a typing error; anything else is taken for another setting of the server.
            Some(near) if strsim::damerau_levenshtein(name, near) <= 2 => {
                Err(format!("did you mean `{workload}.{server}.{near}`?"))
            }
            _ => Ok(()),
        }
    }

    /// What `name=value` can lose; `None` if it does not weaken durability.
    pub fn weakens(&self, name: &str, value: &str) -> Option<&'static str> {
        let value = value.trim().trim_matches('\'').to_ascii_lowercase();
        self.weak.iter().find(|(n, values, _)| *n == name && values.contains(&value.as_str())).map(|(.., what)| *what)
    }

    /// The server's settings among a workload's options, by name.
    pub fn chosen(&self, options: &Options) -> Vec<(String, String)> {
        let own = |(name, value): (&String, &String)| {
            setting(name)
                .filter(|(catalogue, _)| catalogue.server == self.server)
                .map(|(_, name)| (name.to_owned(), value.clone()))
        };
        options.iter().filter_map(own).collect()
    }

    /// The names of the settings that affect durability, to be queried from a server.
    pub fn of_durability(&self) -> impl Iterator<Item = &'static str> {
        self.weak.iter().map(|(name, ..)| *name)
    }
}

/// Refuses settings of another server than the engine's `own`; `None` if the engine has no private server.
///
/// # Errors
/// The setting, and which engine has it.
pub fn refuse_foreign(read: &OptionReader<'_>, own: Option<&Catalogue>) -> Result<(), String> {
    for (catalogue, name) in read.options.keys().filter_map(|name| setting(name)) {
        if own.is_none_or(|own| own.server != catalogue.server) {
            let (workload, server) = (read.workload, catalogue.server);
            return Err(format!(
                "`{workload}.{server}.{name}` has no effect with `{workload}.engine` `{}`; omit it, or set the engine to `{server}`",
                read.text("engine")
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weak_values_are_recognised_in_every_spelling() {
        for value in ["off", "OFF", "'off'", "false", "no", "0"] {
            assert!(POSTGRES.weakens("fsync", value).is_some(), "{value}");
        }
        assert!(POSTGRES.weakens("synchronous_commit", "off").unwrap().contains("acknowledged"));
        for (name, value) in [("fsync", "on"), ("synchronous_commit", "local"), ("autovacuum", "off"), ("jit", "off")] {
            assert_eq!(POSTGRES.weakens(name, value), None, "{name}={value}");
        }
        assert!(POSTGRES.weakens("data_sync_retry", "on").is_some());
        assert!(MARIADB.weakens("innodb_flush_log_at_trx_commit", "2").is_some());
        assert_eq!(MARIADB.weakens("innodb_flush_log_at_trx_commit", "1"), None);
        assert_eq!(MARIADB.weakens("fsync", "off"), None, "another server's");
    }

    #[test]
    fn names_that_the_run_owns_are_refused_and_unknown_ones_are_the_servers() {
        assert!(POSTGRES.check_name("oltp", "port").unwrap_err().contains("sets `port` itself"));
        for name in ["vacuum_cost_delay", "enable_partitionwise_join", "pg_stat_statements.max", "io_method"] {
            assert_eq!(POSTGRES.check_name("oltp", name), Ok(()), "{name}");
        }
        for name in ["", "9lives", "a-b", "a..b", "a b"] {
            assert!(POSTGRES.check_name("oltp", name).is_err(), "{name}");
        }
    }

    #[test]
    fn the_list_is_sorted_and_its_names_are_not_slips_of_each_other() {
        for catalogue in ALL {
            assert!(catalogue.known.is_sorted());
            assert!(catalogue.known().all(|name| catalogue.check_name("oltp", name) == Ok(())), "{}", catalogue.server);
        }
    }
}
