//! The command `serve`: answers the requests on its input in sequence. A failed request gets an error as its answer; it does not end the process.

use std::fs;
use std::future::Future;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use tokio::runtime::{Builder, Runtime};

use crate::answer::Answer;
use crate::refused::refuse;
use crate::request::Request;
use crate::session::Session;
use crate::table::TABLES;

/// Deep expressions recurse deeply, and a thread's default of 2 MB is less than a main thread's.
const STACK_BYTES: usize = 16 << 20;

#[derive(Debug)]
pub struct Options {
    pub data: PathBuf,
    /// Bytes.
    pub memory: usize,
    pub threads: usize,
    pub temporary: PathBuf,
}

pub fn serve(options: &Options, input: &mut impl BufRead, output: &mut impl Write) -> Result<()> {
    let data = tables_folder(&options.data)?;
    if !options.temporary.is_dir() {
        refuse!("`--temporary {}`: expected an existing folder", options.temporary.display());
    }
    let runtime = Builder::new_multi_thread()
        .worker_threads(options.threads)
        .thread_stack_size(STACK_BYTES)
        .enable_all()
        .build()?;
    let session = Session::new(options.memory, options.threads, &options.temporary)
        .with_context(|| format!("Cannot use {}", options.temporary.display()))?;
    let session = Arc::new(session);
    let registered = Arc::clone(&session);
    run(&runtime, async move { registered.register_tables(&data).await })?;
    Answer::Ready { version: datafusion::DATAFUSION_VERSION, tables: TABLES.len() }.write(output)?;

    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line)? > 0 {
        let answer = match Request::parse(&line) {
            Ok(request) => answer(&runtime, Arc::clone(&session), request),
            Err(text) => Answer::Error(text),
        };
        answer.write(output)?;
        line.clear();
    }
    Ok(())
}

/// The absolute path of the folder; refuses it if a table is missing.
fn tables_folder(folder: &Path) -> Result<PathBuf> {
    for table in &TABLES {
        let file = format!("{}.parquet", table.name);
        if !folder.join(&file).is_file() {
            refuse!("`--data {}`: {file} is missing; `bigiron-datafusion generate` writes it", folder.display());
        }
    }
    fs::canonicalize(folder).with_context(|| format!("Cannot read {}", folder.display()))
}

fn answer(runtime: &Runtime, session: Arc<Session>, request: Request) -> Answer {
    let answer = run(runtime, async move {
        match request {
            Request::Sql(sql) => session.query(&sql).await.map(|(rows, counts)| Answer::Rows { rows, counts }),
            Request::Set(options) => session.set(&options).await.map(|()| Answer::Ok),
        }
    });
    answer.unwrap_or_else(|error| Answer::of_error(&error))
}

/// Runs the work on the worker threads only, so that no additional thread works, and turns a panic into an error.
fn run<T: Send + 'static>(runtime: &Runtime, work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    let stopped = match runtime.block_on(runtime.spawn(work)) {
        Ok(result) => return result,
        Err(stopped) => stopped.into_panic(),
    };
    let text = stopped.downcast_ref::<&str>().copied().or_else(|| stopped.downcast_ref::<String>().map(String::as_str));
    Err(anyhow!("DataFusion panicked: {}", text.unwrap_or("no message")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error() {
        let runtime = Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let error = run::<()>(&runtime, async { panic!("no {}", "way") }).unwrap_err();
        assert_eq!(error.to_string(), "DataFusion panicked: no way");
        assert_eq!(run(&runtime, async { Ok(5) }).unwrap(), 5);
    }
}
