//! The command `generate`: writes the tables as Parquet files. The same options give the same bytes: rows come from `tpchgen`, one thread
//! writes them in order, and the files contain no time, host name or library version.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::Compression;
use datafusion::parquet::file::properties::WriterProperties;
use serde::{Serialize, Serializer};

use crate::refused::refuse;
use crate::table::{TABLES, Table};

#[derive(Debug)]
pub struct Options {
    pub scale: f64,
    /// Rows in a row group.
    pub row_group: usize,
    pub folder: PathBuf,
}

/// The summary of the written files.
#[derive(Serialize)]
struct Written {
    #[serde(serialize_with = "as_map")]
    rows: Vec<(&'static str, u64)>,
    /// Of all files.
    bytes: u64,
}

fn as_map<S: Serializer>(rows: &[(&str, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(rows.iter().copied())
}

/// Writes the tables, and then one line of JSON to `out`.
pub fn generate(options: &Options, out: &mut impl Write) -> anyhow::Result<()> {
    check_row_groups(options)?;
    make_folder(&options.folder)?;
    let mut written = Written { rows: Vec::new(), bytes: 0 };
    for table in &TABLES {
        let path = options.folder.join(format!("{}.parquet", table.name));
        let rows = write(table, options, &path).with_context(|| format!("Cannot write {}", path.display()))?;
        written.rows.push((table.name, rows));
        written.bytes += fs::metadata(&path)?.len();
    }
    writeln!(out, "{}", serde_json::to_string(&written)?)?;
    Ok(())
}

/// A Parquet file has at most 32,767 row groups: refuse more now, not after hours.
fn check_row_groups(options: &Options) -> anyhow::Result<()> {
    // Rows of the largest table, `lineitem`: 4 per order on average, within 1 % at scales near the limit.
    let most = 1_500_000.0 * options.scale * 4.04;
    let least = (most / f64::from(i16::MAX)).ceil() as usize;
    if options.row_group < least {
        refuse!(
            "`--row-group {}`: a file has at most {} row groups; expected at least {least} rows for `--scale {}`",
            options.row_group,
            i16::MAX,
            options.scale
        );
    }
    Ok(())
}

fn make_folder(folder: &Path) -> anyhow::Result<()> {
    match fs::read_dir(folder) {
        Ok(mut entries) => {
            if entries.next().is_some() {
                refuse!("{} is not empty; expected a new or empty folder", folder.display());
            }
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(folder).with_context(|| format!("Cannot create {}", folder.display()))
        }
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            refuse!("{} is not a folder; expected a new or empty folder", folder.display())
        }
        Err(error) => Err(error).with_context(|| format!("Cannot read {}", folder.display())),
    }
}

/// Writes a table; returns its number of rows. The file gets its name when it is complete.
fn write(table: &Table, options: &Options, path: &Path) -> anyhow::Result<u64> {
    let unfinished = path.with_extension("parquet.unfinished");
    let reader = (table.rows)(options.scale);
    let properties = WriterProperties::builder()
        // The default of DataFusion's own generator (tpchgen-cli).
        .set_compression(Compression::SNAPPY)
        // The library's default contains its version.
        .set_created_by("bigiron".to_owned())
        .set_max_row_group_row_count(Some(options.row_group))
        .build();
    let mut writer = ArrowWriter::try_new(File::create_new(&unfinished)?, reader.schema(), Some(properties))?;
    let mut rows = 0;
    for batch in reader {
        let batch = batch?;
        rows += batch.num_rows() as u64;
        writer.write(&batch)?;
    }
    writer.close()?;
    fs::rename(&unfinished, path)?;
    Ok(rows)
}
