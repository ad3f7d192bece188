//! The servers that run on this machine, by the names of their processes, and the workloads that do the same to a kernel.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// A kind of server.
#[derive(Debug, PartialEq, Eq)]
pub struct ServerKind {
    pub name: &'static str,
    /// Beginnings of the names of its processes, as the kernel knows them (up to 15 bytes).
    processes: &'static [&'static str],
    /// Names of the workloads that stand for it.
    pub workloads: &'static [&'static str],
}

const fn kind(
    name: &'static str,
    processes: &'static [&'static str],
    workloads: &'static [&'static str],
) -> ServerKind {
    ServerKind { name, processes, workloads }
}

/// The kinds of servers that have a workload of their shape.
const KINDS: [ServerKind; 10] = [
    kind("PostgreSQL", &["postgres"], &["oltp"]),
    kind("MySQL or MariaDB", &["mysqld", "mariadbd"], &["dbsim"]),
    kind("Oracle Database", &["ora_pmon_"], &["dbsim"]),
    kind("Db2", &["db2sysc"], &["dbsim"]),
    kind("MongoDB", &["mongod"], &["dbsim"]),
    kind("a cache server", &["redis-server", "valkey-server", "memcached"], &["net-clients"]),
    kind("a web server", &["nginx", "apache2", "httpd"], &["web"]),
    kind("a proxy", &["haproxy"], &["net-clients"]),
    kind("a Java program", &["java"], &["jvm"]),
    kind("a file server", &["smbd", "nfsd"], &["files", "fs-clients", "net-clients"]),
];

/// The kinds of servers that have a process in `proc`, in the order of the table; empty if `proc` cannot be read.
pub fn running(proc: &Path) -> Vec<&'static ServerKind> {
    let is_process = |name: &str| name.bytes().all(|b| b.is_ascii_digit());
    let entries = fs::read_dir(proc).into_iter().flatten().flatten();
    let processes = entries.filter(|e| e.file_name().to_str().is_some_and(is_process));
    let names: BTreeSet<String> = processes.filter_map(|e| fs::read_to_string(e.path().join("comm")).ok()).collect();
    let runs = |kind: &&ServerKind| kind.processes.iter().any(|p| names.iter().any(|name| is_of(name.trim(), p)));
    KINDS.iter().filter(runs).collect()
}

/// Whether a process's name is that of a server: exactly, or with what the server adds behind an underscore.
fn is_of(name: &str, server: &str) -> bool {
    name == server || (server.ends_with('_') && name.starts_with(server))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_known_by_their_processes() {
        let dir = tempfile::tempdir().unwrap();
        for (pid, name) in
            [("1", "systemd"), ("20", "postgres"), ("21", "postgres"), ("300", "ora_pmon_ORCL"), ("self", "nginx")]
        {
            fs::create_dir(dir.path().join(pid)).unwrap();
            fs::write(dir.path().join(pid).join("comm"), format!("{name}\n")).unwrap();
        }
        let found: Vec<_> = running(dir.path()).iter().map(|kind| kind.name).collect();
        assert_eq!(found, ["PostgreSQL", "Oracle Database"]);
        assert!(running(&dir.path().join("absent")).is_empty());
    }
}
