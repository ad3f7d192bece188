//! Dynamic pages: those of `cgi-db`, a table of 97 rows from a SQLite database and a count of its visits there, and those of `web99`.
//!
//! Invariant: a page's bytes depend only on its request, and a page of `cgi-db` that was sent has been counted once.

pub mod database;
mod fastcgi;
mod files;
pub mod gateway;
mod program_cpu;

use std::io::{self, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use database::PageDatabase;
use fastcgi::Call;

/// `bigiron worker web-page NUMBER` and `bigiron worker web-page cgi PATH` are CGI programs for `cgi-db` and `web99`, and `bigiron worker web-page serve
/// DATABASE THREADS` and `bigiron worker web-page serve-files FOLDER THREADS` FastCGI applications whose standard input is their socket.
pub const WORKER: &str = "web-page";
/// The server's folder, from that of the program, which is where a CGI program starts.
const SERVER: &str = "../..";
/// The database in the server's folder.
const DATABASE: &str = "run/page.db";

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
        [number] => print_last(&answer(&PageDatabase::open(&Path::new(SERVER).join(DATABASE))?, number)?),
        [cgi, path] if cgi == "cgi" => print_last(&files::of_program(path)?),
        [serve, place, threads] if matches!(serve.as_str(), "serve" | "serve-files") => {
            let (place, threads) = (Path::new(place), threads.parse().context("THREADS is not a number")?);
            if serve == "serve-files" {
                return files::serve(place, threads);
            }
            fastcgi::serve(threads, || {
                let database = PageDatabase::open(place)?;
                Ok(move |call: &Call| visit(&database, call))
            })
        }
        _ => bail!(
            "Use: bigiron worker {WORKER} NUMBER | cgi PATH | serve DATABASE THREADS | serve-files FOLDER THREADS"
        ),
    }
}

/// Prints the page of a CGI program, which then ends.
fn print_last(text: &[u8]) -> Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(text)?;
    output.flush()?;
    program_cpu::record(Path::new(SERVER))
}

/// The page that a query asks for: its number, after `worker` and the worker's name as on the command line of the CGI program.
fn visit(database: &PageDatabase, call: &Call) -> Result<Vec<u8>> {
    answer(database, call.get("QUERY_STRING")?.rsplit('+').next().unwrap_or_default())
}

/// What a CGI program prints for the page of this number.
fn answer(database: &PageDatabase, number: &str) -> Result<Vec<u8>> {
    let number = number.parse().ok().filter(|n| (1..=database::PAGES).contains(n));
    let page = database.visit(number.context("There is no such page")?)?;
    let mut text = format!("Content-Type: text/html\r\nContent-Length: {}\r\n\r\n", page.len());
    text.push_str(&page);
    Ok(text.into_bytes())
}
