//! The business's database: its contents, and the server that keeps it.

use anyhow::Result;

use bigiron_sql::database::{Database, Dialect};
use bigiron_sql::engine::{self, Engine, EngineKind};
use bigiron_sql::server::images::Contents;
use bigiron_sql::server::{Sizing, Transport, mariadb};
use bigiron_workload::Context;

use crate::settings::ServerSettings;

/// Items of the catalogue, their components, and components of an item.
pub const ITEMS: u64 = 500;
const COMPONENTS: u64 = 1000;
pub const COMPONENTS_OF: u64 = 5;
/// Orders of each dealer at the start.
const ORDERS_OF: u64 = 3;
/// Bytes of a dealer with its orders, of everything else at the start, and of what a second of work adds, generously.
const OF_DEALER: u64 = 4 << 10;
const BASE: u64 = 24 << 20;
const ROOM: u64 = 256 << 20;
/// The same rules for both servers: a statement sees what others have committed, and no gaps between rows are locked.
const ISOLATION: (&str, &str) = ("transaction_isolation", "READ-COMMITTED");

/// The statements that make and fill the tables.
fn statements(dealers: u32, dialect: Dialect) -> String {
    let dealers = u64::from(dealers);
    let numbers = [
        ("{dealers}", dealers),
        ("{orders}", ORDERS_OF * dealers),
        ("{items}", ITEMS),
        ("{components}", COMPONENTS),
        ("{parts}", COMPONENTS_OF),
    ];
    let text =
        numbers.iter().fold(include_str!("load.sql").to_owned(), |text, (name, n)| text.replace(name, &n.to_string()));
    let is_mariadb = dialect == Dialect::MariaDb;
    let [serial, analyze] = match is_mariadb {
        true => ["bigint AUTO_INCREMENT", "ANALYZE TABLE component, dealer, item, line, orders, part, purchase, work"],
        false => ["bigserial", "ANALYZE"],
    };
    let text = text.replace("{serial}", serial).replace("{analyze}", analyze);
    // `{1..9 n}`: a table of these numbers in the column `n`.
    let mut parts = text.split("{1..");
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (series, rest) = part.split_once('}').unwrap_or((part, ""));
        let (last, name) = series.split_once(' ').unwrap_or((series, "n"));
        whole += &match is_mariadb {
            true => format!("(SELECT seq AS {name} FROM seq_1_to_{last}) {name}"),
            false => format!("generate_series(1, {last}) {name}"),
        };
        whole += rest;
    }
    whole
}

/// Loads the tables of this many dealers into an empty database.
///
/// # Errors
/// The server's message.
pub fn load(database: &mut dyn Database, dealers: u32) -> Result<()> {
    database.execute(&statements(dealers, database.dialect()))
}

/// Approximate bytes of the tables.
fn bytes(dealers: u32) -> u64 {
    BASE + u64::from(dealers) * OF_DEALER
}

impl ServerSettings {
    /// The server: that of Debian 12, over TCP, since drivers in Java know no other way without libraries that Debian does not have.
    pub fn engine(&self) -> Engine {
        let transport = Transport::Tcp;
        match self.database {
            EngineKind::MariaDb => {
                let settings = vec![(ISOLATION.0.to_owned(), ISOLATION.1.to_owned())];
                Engine::MariaDb { version: mariadb::SERIES.to_owned(), transport, settings }
            }
            _ => Engine::Postgres { version: engine::POSTGRES_VERSION, transport, settings: Vec::new() },
        }
    }

    /// Approximate bytes of the tables.
    pub fn data_bytes(&self) -> u64 {
        bytes(self.dealers)
    }

    /// Bytes of the database's file system beside the tables at the start.
    pub fn room(&self) -> u64 {
        ROOM
    }

    /// For what the server is made.
    pub fn sizing(&self, cx: &Context<'_>) -> Sizing {
        Sizing {
            memory_bytes: cx.memory_bytes.saturating_sub(self.heap_bytes),
            data_bytes: self.data_bytes(),
            connections: self.pool,
        }
    }

    /// What an image contains; `what` holds its description.
    pub fn contents<'a>(&self, what: &'a mut String) -> Contents<'a> {
        let dialect = if self.database == EngineKind::MariaDb { Dialect::MariaDb } else { Dialect::Postgres };
        *what = statements(self.dealers, dialect);
        Contents { what, name: "a business", data_bytes: self.data_bytes(), room: self.room(), needed_here: false }
    }
}
