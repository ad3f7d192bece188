//! The business's database: its contents, and the server that keeps it.

use anyhow::Result;

use bigiron_sql::pg::Url;
use bigiron_sql::server::cluster::KIND;
use bigiron_sql::server::images::Contents;

use crate::settings::Settings;

/// PostgreSQL's series: Debian 12's.
pub const SERIES: &str = "15";
/// Items of the catalogue, their components, and components of an item.
pub const ITEMS: u64 = 500;
const COMPONENTS: u64 = 1000;
pub const COMPONENTS_OF: u64 = 5;
/// Bytes of a dealer with its orders, of everything else at the start, and of what a second of work adds, generously.
const OF_DEALER: u64 = 4 << 10;
const BASE: u64 = 24 << 20;
const ROOM: u64 = 256 << 20;

/// The statements that make and fill the tables.
fn statements(dealers: u32) -> String {
    let numbers = [
        ("{dealers}", u64::from(dealers)),
        ("{items}", ITEMS),
        ("{components}", COMPONENTS),
        ("{parts}", COMPONENTS_OF),
    ];
    numbers.iter().fold(include_str!("load.sql").to_owned(), |text, (name, n)| text.replace(name, &n.to_string()))
}

/// Loads the tables of this many dealers into an empty database.
///
/// # Errors
/// The server's message.
pub fn load(at: &Url, dealers: u32) -> Result<()> {
    (KIND.database)(at)?.execute(&statements(dealers))
}

/// Approximate bytes of the tables.
pub fn bytes(dealers: u32) -> u64 {
    BASE + u64::from(dealers) * OF_DEALER
}

impl Settings {
    /// Bytes of the database's file system beside the tables at the start.
    pub fn room(&self) -> u64 {
        ROOM
    }

    /// What an image contains; `what` holds its description.
    pub fn contents<'a>(&self, what: &'a mut String) -> Contents<'a> {
        *what = statements(self.dealers);
        Contents { what, name: "a business", data_bytes: bytes(self.dealers), room: self.room(), needed_here: false }
    }
}
