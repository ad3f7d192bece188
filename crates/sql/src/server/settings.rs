//! The server settings of bigiron's own clusters, the user's settings over them, and the running server's deviations from
//! PostgreSQL's defaults.
//!
//! Invariant: durability is PostgreSQL's own (`fsync`, `synchronous_commit` and `full_page_writes` are on) unless the user says
//! otherwise; the report then says so, as for every other deviation: read back from the server, not taken from the settings.
//!
//! Left at their defaults on purpose: autovacuum (on: nobody runs a server without it, and over a long run its tables grow; every
//! trial starts from the same bytes, so that its rounds fall at the same places in both arms), data checksums, WAL level, planner
//! costs.

use crate::database::{Database, SqlValue};
use bigiron_service::error::ServerError;
use bigiron_service::postgres::quoted;

pub(crate) const MIB: u64 = 1 << 20;
/// Connections in addition to the load's: superuser's, statistics, checks.
pub(crate) const SPARE_CONNECTIONS: u32 = 8;
/// Minimum number of locks of the server, minimum for each connection, and PostgreSQL's default.
const LOCKS: u32 = 32_768;
const FEWEST_LOCKS: u32 = 10;
const DEFAULT_LOCKS: u32 = 64;
/// Settings of the server's location and access: not for the user to change.
pub const PLUMBING: [&str; 17] = [
    "archive_command",
    "config_file",
    "data_directory",
    "external_pid_file",
    "hba_file",
    "ident_file",
    "listen_addresses",
    "log_destination",
    "log_directory",
    "log_filename",
    "logging_collector",
    "password_encryption",
    "port",
    "ssl",
    "unix_socket_directories",
    "unix_socket_group",
    "unix_socket_permissions",
];

/// The basis for scaling the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizing {
    /// Memory of the machine or guest that runs the server.
    pub memory_bytes: u64,
    /// Size of the database.
    pub data_bytes: u64,
    /// Connections that the load holds.
    pub connections: u32,
}

/// Settings of one server, each name once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    list: Vec<(String, String)>,
}

/// A setting that differs from PostgreSQL's default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deviation {
    pub name: String,
    pub value: String,
    pub default: String,
}

impl Settings {
    /// bigiron's settings for this size with the user's (`NAME`, `VALUE`) over them; the last one of a name counts.
    ///
    /// # Errors
    /// If a name is malformed, or not for the user to set. Whether the server knows it and accepts the value shows when it
    /// starts.
    pub fn new(sizing: &Sizing, user: &[(String, String)]) -> Result<Self, ServerError> {
        let mut settings = Self::standard(sizing);
        settings.lay(user, &PLUMBING, "; to use a server of your own, set `oltp.url`")?;
        Ok(settings)
    }

    /// These settings.
    pub(crate) fn of(list: &[(&str, String)]) -> Self {
        Self { list: list.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect() }
    }

    /// Lays the user's settings over others; those of `plumbing` are not for the user, who is told what to do `instead`.
    pub(crate) fn lay(
        &mut self,
        user: &[(String, String)],
        plumbing: &[&str],
        instead: &str,
    ) -> Result<(), ServerError> {
        for (name, value) in user {
            let name = name.to_ascii_lowercase();
            if plumbing.contains(&name.as_str()) {
                return Err(ServerError::Setting(format!(
                    "`{name}` cannot be set: bigiron decides where its private server is and who may enter{instead}"
                )));
            }
            let is_name = !name.is_empty()
                && name.starts_with(|c: char| c.is_ascii_lowercase())
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'.');
            if !is_name {
                return Err(ServerError::Setting(format!(
                    "`{name}` is not the name of a server setting; write for example `work_mem=8MB`"
                )));
            }
            if value.contains(['\n', '\0']) {
                return Err(ServerError::Setting(format!("The value of `{name}` must be on one line")));
            }
            self.put(&name, value.clone());
        }
        Ok(())
    }

    /// For loading and checking a database that is discarded after any error, and synced as a whole at the end: nothing is synced
    /// before.
    pub fn loading(sizing: &Sizing) -> Self {
        let mut settings = Self::standard(sizing);
        for (name, value) in [
            ("autovacuum", "off"),
            ("fsync", "off"),
            ("full_page_writes", "off"),
            ("maintenance_work_mem", "128MB"),
            ("max_wal_senders", "0"),
            ("min_wal_size", "32MB"),
            ("synchronous_commit", "off"),
            ("wal_level", "minimal"),
        ] {
            settings.put(name, value.to_owned());
        }
        settings
    }

    fn standard(sizing: &Sizing) -> Self {
        // PostgreSQL's manual suggests a quarter of the memory as a start; more than the data and some reserve is useless.
        let most = sizing.memory_bytes / 4;
        let useful = sizing.data_bytes + sizing.data_bytes / 4 + 128 * MIB;
        let shared = most.min(useful).max(32 * MIB) / MIB / 16 * 16;
        let cache = (sizing.memory_bytes / 2).max(64 * MIB) / MIB;
        let connections = (sizing.connections + SPARE_CONNECTIONS).max(100);
        let mut list = vec![
            // The default (100) is kept if it suffices.
            ("max_connections", connections.to_string()),
            ("shared_buffers", format!("{shared}MB")),
            ("effective_cache_size", format!("{cache}MB")),
            // Independent of the huge pages that a kernel has reserved: a lever sets it.
            ("huge_pages", "off".to_owned()),
            // Checkpoints by time, and none during a short trial: by default 1 GB of WAL, a minute of this load, forces one.
            ("max_wal_size", "8GB".to_owned()),
            ("checkpoint_timeout", "15min".to_owned()),
            // Its compiler is not in the tree; no plan of these transactions is costly enough for it.
            ("jit", "off".to_owned()),
            ("fsync", "on".to_owned()),
            ("synchronous_commit", "on".to_owned()),
            ("full_page_writes", "on".to_owned()),
        ];
        // The lock table has this much room per connection, shared by all: with thousands of them it is larger than the buffers,
        // and every session maps the parts that it touches. A transaction takes about 30 locks, most of them elsewhere.
        let locks = (LOCKS / connections).clamp(FEWEST_LOCKS, DEFAULT_LOCKS);
        if locks < DEFAULT_LOCKS {
            list.push(("max_locks_per_transaction", locks.to_string()));
            list.push(("max_pred_locks_per_transaction", locks.to_string()));
        }
        Self { list: list.into_iter().map(|(n, v)| (n.to_owned(), v)).collect() }
    }

    pub(crate) fn put(&mut self, name: &str, value: String) {
        self.list.retain(|(n, _)| n != name);
        self.list.push((name.to_owned(), value));
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.list.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// The lines of a `postgresql.conf`.
    pub fn text(&self) -> String {
        self.lines(quoted)
    }

    /// A line for each setting; `spell` writes a value.
    pub(crate) fn lines(&self, spell: fn(&str) -> String) -> String {
        self.list.iter().map(|(name, value)| format!("{name} = {}\n", spell(value))).collect()
    }
}

/// The settings of a running server that differ from PostgreSQL's defaults, by name: read back from it.
///
/// # Errors
/// If the server cannot be queried, or gives an unexpected response.
pub fn deviations(database: &mut dyn Database) -> anyhow::Result<Vec<Deviation>> {
    let rows = database.rows(
        "SELECT name, current_setting(name), coalesce(boot_val, ''), coalesce(unit, '') FROM pg_settings \
         WHERE source IN ('configuration file', 'command line', 'database', 'user') \
         AND setting IS DISTINCT FROM boot_val ORDER BY name COLLATE \"C\"",
    )?;
    let mut found = Vec::new();
    for row in rows {
        let [SqlValue::Text(name), SqlValue::Text(value), SqlValue::Text(default), SqlValue::Text(unit)] =
            row.as_slice()
        else {
            anyhow::bail!("The server reports its settings in an unknown format: {row:?}");
        };
        if PLUMBING.contains(&name.as_str()) {
            continue;
        }
        found.push(Deviation { name: name.clone(), value: value.clone(), default: with_unit(default, unit) });
    }
    Ok(found)
}

/// A default for readers: `128MB` for `16384` in units of `8kB`.
fn with_unit(number: &str, unit: &str) -> String {
    let Ok(value) = number.parse::<i64>() else { return number.to_owned() };
    let step = |count: i64, units: &[(&str, i64)]| {
        let mut best = (count, units[0].0);
        let mut size = 1;
        for (name, factor) in units {
            size *= factor;
            if count % size == 0 && count != 0 {
                best = (count / size, name);
            }
        }
        format!("{}{}", best.0, best.1)
    };
    let kilobytes = [("kB", 1), ("MB", 1024), ("GB", 1024)];
    match unit {
        _ if value <= 0 => number.to_owned(),
        "B" => format!("{value}B"),
        "kB" => step(value, &kilobytes),
        "8kB" => step(value * 8, &kilobytes),
        "MB" => step(value * 1024, &kilobytes),
        "ms" => step(value, &[("ms", 1), ("s", 1000), ("min", 60)]),
        "s" => step(value, &[("s", 1), ("min", 60), ("h", 60)]),
        other => format!("{value}{other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizing() -> Sizing {
        Sizing { memory_bytes: 2 << 30, data_bytes: 1 << 30, connections: 8 }
    }

    #[test]
    fn scaled_to_memory_and_data() {
        let of = |memory: u64, data: u64| {
            let sizing = Sizing { memory_bytes: memory, data_bytes: data, connections: 1000 };
            let settings = Settings::new(&sizing, &[]).unwrap();
            assert_eq!(settings.get("max_connections"), Some("1008"));
            settings.get("shared_buffers").unwrap().to_owned()
        };
        assert_eq!(of(2 << 30, 1 << 30), "512MB");
        assert_eq!(of(64 << 30, 1 << 30), "1408MB");
        assert_eq!(of(64 << 20, 1 << 30), "32MB");
    }

    #[test]
    fn thousands_of_connections_share_their_lock_tables() {
        let of = |connections: u32| {
            let settings = Settings::new(&Sizing { connections, ..sizing() }, &[]).unwrap();
            let both = ["max_locks_per_transaction", "max_pred_locks_per_transaction"]
                .map(|name| settings.get(name).map(str::to_owned));
            assert_eq!(both[0], both[1]);
            both[0].clone()
        };
        assert_eq!((of(8), of(500)), (None, None));
        assert_eq!((of(992).as_deref(), of(7000).as_deref()), (Some("32"), Some("10")));
    }

    #[test]
    fn the_user_s_come_last_and_are_quoted() {
        let user = [("Work_Mem".into(), "8MB".into()), ("jit".into(), "on".into()), ("a.b".into(), "it's \\".into())];
        let settings = Settings::new(&sizing(), &user).unwrap();
        let text = settings.text();
        assert_eq!(settings.get("jit"), Some("on"));
        assert_eq!(text.matches("jit =").count(), 1);
        assert!(text.contains("work_mem = '8MB'\n") && text.contains("a.b = 'it''s \\\\'\n"), "{text}");
    }

    #[test]
    fn what_cannot_be_set_is_refused() {
        for (name, value, what) in [
            ("port", "1", "`oltp.url`"),
            ("shared buffers", "1", "work_mem=8MB"),
            ("", "", "work_mem"),
            ("a", "b\nc", "one line"),
        ] {
            let said = Settings::new(&sizing(), &[(name.into(), value.into())]).unwrap_err().to_string();
            assert!(said.contains(what), "{said}");
        }
    }

    #[test]
    fn durability_is_on_but_for_loading() {
        let settings = Settings::new(&sizing(), &[]).unwrap();
        for name in ["fsync", "synchronous_commit", "full_page_writes"] {
            assert_eq!(settings.get(name), Some("on"));
            assert_eq!(Settings::loading(&sizing()).get(name), Some("off"));
        }
    }

    #[test]
    fn defaults_are_written_as_people_do() {
        for (number, unit, text) in [
            ("16384", "8kB", "128MB"),
            ("4096", "kB", "4MB"),
            ("1024", "MB", "1GB"),
            ("300", "s", "5min"),
            ("200", "ms", "200ms"),
            ("-1", "kB", "-1"),
            ("on", "", "on"),
            ("100", "", "100"),
        ] {
            assert_eq!(with_unit(number, unit), text);
        }
    }
}
