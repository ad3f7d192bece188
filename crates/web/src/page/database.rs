//! The database behind the page.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rusqlite::Connection;

use bigiron_sys::load::rng::SplitMix64;

/// Pages, and the rows of each: those of the test of 2004.
pub const PAGES: u32 = 100;
const ROWS: u32 = 97;
/// A row's columns besides its page and number.
const COLUMNS: usize = 6;
/// As long as other visits may hold the lock.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct PageDatabase(Connection);

impl PageDatabase {
    /// # Errors
    /// It is not there.
    pub fn open(path: &Path) -> Result<Self> {
        let connection = Connection::open(path).with_context(|| format!("Cannot open {}", path.display()))?;
        connection.busy_timeout(PATIENCE)?;
        connection.execute_batch("PRAGMA synchronous=NORMAL")?;
        Ok(Self(connection))
    }

    /// A new database with all pages. As long as it is open, visitors that come and go need not move its log.
    ///
    /// # Errors
    /// There is no room.
    pub fn create(path: &Path) -> Result<Self> {
        let Self(mut connection) = Self::open(path)?;
        connection.execute_batch(
            "PRAGMA journal_mode=WAL;
             CREATE TABLE item(page INTEGER, number INTEGER, c1 TEXT, c2 TEXT, c3 TEXT, c4 TEXT, c5 TEXT, image TEXT, PRIMARY KEY(page, number)) WITHOUT ROWID;
             CREATE TABLE visit(page INTEGER PRIMARY KEY, count INTEGER NOT NULL)",
        )?;
        let load = connection.transaction()?;
        for page in 1..=PAGES {
            load.execute("INSERT INTO visit VALUES (?, 0)", [page])?;
            for number in 1..=ROWS {
                let [c1, c2, c3, c4, c5, image] = columns(page, number);
                load.execute(
                    "INSERT INTO item VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    (page, number, c1, c2, c3, c4, c5, image),
                )?;
            }
        }
        load.commit()?;
        Ok(Self(connection))
    }

    /// The page, and one more visit of it.
    ///
    /// # Errors
    /// The database fails.
    pub fn visit(&self, page: u32) -> Result<String> {
        self.0.prepare_cached("UPDATE visit SET count = count + 1 WHERE page = ?")?.execute([page])?;
        let mut text = begin(page);
        let mut select = self
            .0
            .prepare_cached("SELECT number, c1, c2, c3, c4, c5, image FROM item WHERE page = ? ORDER BY number")?;
        let mut rows = select.query([page])?;
        while let Some(row) = rows.next()? {
            add(&mut text, row.get(0)?, |n| Ok(row.get_ref(n + 1)?.as_str()?))?;
        }
        text.push_str(END);
        Ok(text)
    }

    /// Visits of all pages.
    ///
    /// # Errors
    /// The database fails.
    pub fn visits(&self) -> Result<u64> {
        Ok(self.0.query_row("SELECT sum(count) FROM visit", [], |row| row.get::<_, i64>(0))? as u64)
    }
}

/// What the page of this number must be.
pub fn page(page: u32) -> String {
    let mut text = begin(page);
    for number in 1..=ROWS {
        let columns = columns(page, number);
        // Nothing that can fail.
        let _ = add(&mut text, number, |n| Ok(&columns[n]));
    }
    text + END
}

fn begin(page: u32) -> String {
    format!("<!DOCTYPE html>\n<html>\n<head><title>Page {page}</title></head>\n<body>\n<table>\n")
}

const END: &str = "</table>\n</body>\n</html>\n";

fn add<'a>(text: &mut String, number: u32, column: impl Fn(usize) -> Result<&'a str>) -> Result<()> {
    write!(text, "<tr><td>{number}")?;
    for n in 0..COLUMNS {
        text.push_str("<td>");
        text.push_str(column(n)?);
    }
    text.push('\n');
    Ok(())
}

/// A row's words; the last is an image's address.
fn columns(page: u32, number: u32) -> [String; COLUMNS] {
    let mut rng = SplitMix64::stream(u64::from(page) << 32 | u64::from(number), "page");
    std::array::from_fn(|n| {
        let length = 8 + 4 * n;
        (0..length).map(|_| char::from(b'a' + rng.below(26) as u8)).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_what_it_must_be_and_counts_its_visits() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.db");
        let all = PageDatabase::create(&path).unwrap();
        let (one, other) = (PageDatabase::open(&path).unwrap(), PageDatabase::open(&path).unwrap());
        for number in [1, 50, PAGES] {
            assert_eq!(one.visit(number).unwrap(), page(number));
            assert_eq!(other.visit(number).unwrap(), page(number));
        }
        assert_eq!(all.visits().unwrap(), 6);
        assert!(page(1) != page(2) && page(1).matches("<tr>").count() == 97, "{}", page(1));
        assert!(PageDatabase::open(&folder.path().join("none/page.db")).is_err());
    }
}
