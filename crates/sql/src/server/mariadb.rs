//! A private MariaDB: its settings, and how to connect to it.

use std::net::SocketAddrV4;
use std::path::Path;

use super::private::Kind;
use super::settings::{MIB, SPARE_CONNECTIONS, Settings, Sizing};
use super::{Listen, Programs, Transport};
use crate::maria::{Connection, Place};
use bigiron_service::error::ServerError;
use bigiron_service::instance::Instance;
use bigiron_service::mariadb::{self, MariaDb, RECIPE, SOCKET};

/// The series that Debian 12 has.
pub const SERIES: &str = "10.11";

/// MariaDB, as private servers run it.
pub static KIND: Kind<MariaDb, Place> = Kind {
    recipe: &RECIPE,
    socket: SOCKET,
    init: mariadb::init,
    start,
    place,
    database: |place| Ok(Box::new(Connection::connect(place)?)),
    loading,
    // Pages are written before the server stops.
    settle: "SET GLOBAL innodb_fast_shutdown = 0",
    size: "SELECT CAST(coalesce(sum(data_length + index_length), 0) AS INTEGER) FROM information_schema.tables \
           WHERE table_schema = database()",
    complaint: mariadb::complaint,
};

/// Settings of the server's location and access: not for the user to change.
pub const PLUMBING: [&str; 14] = [
    "basedir",
    "bind_address",
    "datadir",
    "lc_messages_dir",
    "local_infile",
    "log_error",
    "pid_file",
    "port",
    "skip_grant_tables",
    "skip_name_resolve",
    "skip_networking",
    "socket",
    "tmpdir",
    "user",
];

/// The settings of a server, with the user's over bigiron's.
///
/// Durability is MariaDB's own: `innodb_flush_log_at_trx_commit` and `innodb_doublewrite` are on unless the user says otherwise.
///
/// # Errors
/// A name or value that cannot be in a file of settings.
pub fn settings(sizing: &Sizing, user: &[(String, String)]) -> Result<Settings, ServerError> {
    let mut settings = standard(sizing);
    settings.lay(user, &PLUMBING, "")?;
    Ok(settings)
}

/// For loading and checking a database that is discarded after any error, and synced as a whole at the end: nothing is synced
/// before.
pub fn loading(sizing: &Sizing) -> Settings {
    let mut settings = standard(sizing);
    for (name, value) in
        [("innodb_flush_log_at_trx_commit", "0"), ("innodb_flush_method", "nosync"), ("innodb_doublewrite", "0")]
    {
        settings.put(name, value.to_owned());
    }
    settings
}

fn standard(sizing: &Sizing) -> Settings {
    // InnoDB bypasses the page cache; more than the data and some reserve is useless.
    let useful = sizing.data_bytes + sizing.data_bytes / 4 + 128 * MIB;
    let pool = (sizing.memory_bytes / 2).min(useful).max(32 * MIB) / MIB / 16 * 16;
    Settings::of(&[
        // The default (151) is kept if it suffices.
        ("max_connections", (sizing.connections + SPARE_CONNECTIONS).max(151).to_string()),
        ("innodb_buffer_pool_size", format!("{pool}M")),
        // Each trial starts with the same contents: none.
        ("innodb_buffer_pool_dump_at_shutdown", "OFF".to_owned()),
        ("innodb_buffer_pool_load_at_startup", "OFF".to_owned()),
        // Tables are loaded by `LOAD DATA LOCAL`.
        ("local_infile", "ON".to_owned()),
    ])
}

fn start(
    programs: &Programs,
    folder: &Path,
    settings: &Settings,
    listen: Listen,
) -> Result<Instance<MariaDb>, ServerError> {
    mariadb::start(programs, folder, settings.lines(str::to_owned), listen)
}

fn place(server: &Instance<MariaDb>, transport: Transport) -> Result<Option<Place>, ServerError> {
    Ok(match (transport, server.server().tcp()) {
        (Transport::Unix, _) => Some(Place::Socket(server.folder().join(SOCKET))),
        (Transport::Tcp, None) => None,
        (Transport::Tcp, Some(tcp)) => {
            let address = SocketAddrV4::new(tcp.address, tcp.port);
            Some(Place::Tcp { address, password: mariadb::password(server.folder())? })
        }
    })
}
