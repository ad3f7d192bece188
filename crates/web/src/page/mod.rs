//! The dynamic page of `cgi-db`: a table of 97 rows from a SQLite database, and a count of its visits there.
//!
//! Invariant: a page's bytes depend only on its number, and a page that was sent has been counted once.

pub mod database;
mod fastcgi;
pub mod gateway;

use std::io::{self, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use database::PageDatabase;

/// `bigiron worker web-page NUMBER` is a CGI program, and `bigiron worker web-page serve DATABASE THREADS` a FastCGI application whose standard input
/// is its socket.
pub const WORKER: &str = "web-page";
/// The database, from the folder of the program, which is where a CGI program starts.
const DATABASE: &str = "../../run/page.db";

/// Runs the worker; returns the process's exit status.
pub fn worker(args: &[String]) -> i32 {
    match work(args) {
        Ok(()) => 0,
        Err(error) => {
            // The server's log gets it.
            eprintln!("page: {error:#}");
            1
        }
    }
}

fn work(args: &[String]) -> Result<()> {
    match args {
        [number] => {
            let mut output = io::stdout().lock();
            output.write_all(&answer(&PageDatabase::open(Path::new(DATABASE))?, number)?)?;
            Ok(output.flush()?)
        }
        [serve, database, threads] if serve == "serve" => {
            fastcgi::serve(Path::new(database), threads.parse().context("THREADS is not a number")?)
        }
        _ => bail!("Use: bigiron worker {WORKER} NUMBER | serve DATABASE THREADS"),
    }
}

/// What a CGI program prints for the page of this number.
fn answer(database: &PageDatabase, number: &str) -> Result<Vec<u8>> {
    let number = number.parse().ok().filter(|n| (1..=database::PAGES).contains(n));
    let page = database.visit(number.context("There is no such page")?)?;
    let mut text = format!("Content-Type: text/html\r\nContent-Length: {}\r\n\r\n", page.len());
    text.push_str(&page);
    Ok(text.into_bytes())
}
