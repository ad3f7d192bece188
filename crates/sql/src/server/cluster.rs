//! A private PostgreSQL cluster, as the load connects to it.

use std::path::Path;

use bigiron_service::error::ServerError;
use bigiron_service::instance::Instance;
use bigiron_service::listen::Listen;
use bigiron_service::postgres::{self, DATABASE, Postgres, RECIPE, SOCKET, SUPERUSER};
use bigiron_service::programs::Programs;

use super::Transport;
use super::private::Kind;
use super::settings::Settings;
use crate::pg::url::Password;
use crate::pg::{Connection, Url};

/// PostgreSQL, as private servers run it.
pub static KIND: Kind<Postgres, Url> = Kind {
    recipe: &RECIPE,
    socket: SOCKET,
    init: postgres::init,
    start,
    place: |cluster, transport| Ok(url(cluster, transport)),
    database: |url| Ok(Box::new(Connection::connect(url)?)),
    loading: Settings::loading,
    settle: "CHECKPOINT",
    size: "SELECT pg_database_size(current_database())",
    complaint: postgres::complaint,
};

/// A running cluster. Dropping it kills it.
pub type Cluster = Instance<Postgres>;

/// Starts the cluster in `folder` and waits until it accepts connections. It is killed when the calling thread ends.
///
/// # Errors
/// If the server does not start; with its log.
pub fn start(programs: &Programs, folder: &Path, settings: &Settings, listen: Listen) -> Result<Cluster, ServerError> {
    postgres::start(programs, folder, settings.text(), listen)
}

/// The URL to connect to. `None` if it was not started for that transport.
pub fn url(cluster: &Cluster, transport: Transport) -> Option<Url> {
    let server = cluster.server();
    match (transport, server.tcp()) {
        (Transport::Unix, _) => Some(Url::unix(SUPERUSER, &cluster.folder().join("run"), server.port(), DATABASE)),
        (Transport::Tcp, None) => None,
        (Transport::Tcp, Some(tcp)) => {
            let mut url = Url::tcp(SUPERUSER, &tcp.address.to_string(), tcp.port, DATABASE);
            url.password = tcp.password.as_deref().map(Password::new);
            Some(url)
        }
    }
}
