//! The command line: parses words into a `Command`, or refuses them and names what is expected.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use crate::generate;
use crate::refused::{Refused, refuse};
use crate::serve;

pub const HELP: &str = "\
Runs DataFusion for bigiron's workload `dss` (decision support).

Usage: bigiron-datafusion generate --scale SF --row-group ROWS DIR
       bigiron-datafusion serve --data DIR --memory BYTES --threads N --temporary DIR
       bigiron-datafusion --version | --help

generate writes the eight tables of TPC-H as Parquet files, DIR/TABLE.parquet, and
prints the row counts and the total size as one line of JSON. The same options
give the same bytes.
  --scale SF         Scale factor, a decimal number from 0.001 to 1000
  --row-group ROWS   Rows in a row group of a file, from 1 to 10000000

serve opens the tables, prints a line {\"ready\":...}, and answers requests on
standard input, one JSON object per line, until the input ends.
  --data DIR         Folder with the tables
  --memory BYTES     Size of DataFusion's memory pool
  --threads N        Worker threads, and partitions of a query
  --temporary DIR    Existing folder for spilled data

Requests and answers:
  {\"sql\":\"SELECT ...\"}      {\"rows\":[[...],...],\"scanned_bytes\":N,\"spilled_bytes\":N,\"spill_files\":N}
  {\"set\":{\"NAME\":\"VALUE\"}}  {\"ok\":true}, for options of DataFusion
  A request that fails      {\"error\":\"...\"}

Exit status: 0 success, 1 failure, 2 invalid arguments or folders.
";

#[derive(Debug)]
pub enum Command {
    Help,
    Version,
    Generate(generate::Options),
    Serve(serve::Options),
}

pub fn parse(mut words: impl Iterator<Item = OsString>) -> Result<Command, Refused> {
    let Some(first) = words.next() else { refuse!("Expected `generate` or `serve`; see `bigiron-datafusion --help`") };
    match first.to_str() {
        Some("--help" | "-h") => Ok(Command::Help),
        Some("--version" | "-V") => Ok(Command::Version),
        Some("generate") => {
            let Some(mut given) = Given::read(words, &["--scale", "--row-group"], &["DIR"])? else {
                return Ok(Command::Help);
            };
            let (scale, row_group) = (scale(&given.text("--scale")?)?, given.number("--row-group", 1, 10_000_000)?);
            let folder = PathBuf::from(given.take("DIR")?);
            Ok(Command::Generate(generate::Options { scale, row_group, folder }))
        }
        Some("serve") => {
            let Some(mut given) = Given::read(words, &["--data", "--memory", "--threads", "--temporary"], &[])? else {
                return Ok(Command::Help);
            };
            Ok(Command::Serve(serve::Options {
                data: given.take("--data")?.into(),
                memory: given.number("--memory", 1, isize::MAX as usize)?,
                threads: given.number("--threads", 1, 1024)?,
                temporary: given.take("--temporary")?.into(),
            }))
        }
        _ => refuse!("Unknown command `{}`; expected `generate` or `serve`", first.display()),
    }
}

/// The given values, by option or argument name.
struct Given(BTreeMap<&'static str, OsString>);

impl Given {
    /// `None` if help was requested.
    fn read(
        mut words: impl Iterator<Item = OsString>,
        options: &[&'static str],
        arguments: &[&'static str],
    ) -> Result<Option<Given>, Refused> {
        let mut given = BTreeMap::new();
        let mut arguments = arguments.iter();
        while let Some(word) = words.next() {
            let text = word.to_string_lossy();
            if text == "--help" || text == "-h" {
                return Ok(None);
            }
            let (name, value) = if text.starts_with('-') {
                let (name, value) = match text.split_once('=') {
                    Some((name, value)) => (name, Some(OsString::from(value))),
                    None => (&*text, None),
                };
                let Some(name) = options.iter().find(|option| **option == name) else {
                    refuse!("Unknown option `{name}`; expected {}", options.join(", "));
                };
                let Some(value) = value.or_else(|| words.next()) else { refuse!("`{name}` needs a value") };
                (*name, value)
            } else {
                let Some(name) = arguments.next() else { refuse!("Unexpected argument `{text}`") };
                (*name, word)
            };
            if given.insert(name, value).is_some() {
                refuse!("`{name}` is given twice");
            }
        }
        Ok(Some(Given(given)))
    }

    fn take(&mut self, name: &str) -> Result<OsString, Refused> {
        self.0.remove(name).ok_or_else(|| Refused(format!("`{name}` is missing; see `bigiron-datafusion --help`")))
    }

    fn text(&mut self, name: &str) -> Result<String, Refused> {
        self.take(name)?.into_string().map_err(|word| Refused(format!("`{name} {}` is not UTF-8", word.display())))
    }

    fn number(&mut self, name: &str, least: usize, most: usize) -> Result<usize, Refused> {
        let text = self.text(name)?;
        // `parse` alone would accept a sign.
        let number = if text.starts_with('+') { None } else { text.parse().ok() };
        match number {
            Some(number) if (least..=most).contains(&number) => Ok(number),
            _ => refuse!("`{name} {text}`: expected an integer from {least} to {most}"),
        }
    }
}

fn scale(text: &str) -> Result<f64, Refused> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    match text.parse::<f64>() {
        Ok(scale) if plain && (0.001..=1000.0).contains(&scale) => Ok(scale),
        _ => refuse!("`--scale {text}`: expected a decimal number from 0.001 to 1000"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, Refused> {
        parse(line.split_whitespace().map(OsString::from))
    }

    fn refusal(line: &str) -> String {
        parsed(line).unwrap_err().to_string()
    }

    #[test]
    fn generate_reads_its_options() {
        let Ok(Command::Generate(options)) = parsed("generate --scale 0.5 --row-group=1000 out") else { panic!() };
        assert_eq!((options.scale, options.row_group, options.folder), (0.5, 1000, PathBuf::from("out")));
    }

    #[test]
    fn serve_reads_its_options() {
        let Ok(Command::Serve(options)) = parsed("serve --data d --memory 1024 --threads 2 --temporary t") else {
            panic!()
        };
        assert_eq!((options.data, options.memory), (PathBuf::from("d"), 1024));
        assert_eq!((options.threads, options.temporary), (2, PathBuf::from("t")));
    }

    #[test]
    fn help_and_version_need_nothing_else() {
        assert!(matches!(parsed("--help"), Ok(Command::Help)));
        assert!(matches!(parsed("serve --data d --help"), Ok(Command::Help)));
        assert!(matches!(parsed("--version"), Ok(Command::Version)));
    }

    #[test]
    fn unusable_scales_are_refused() {
        for scale in ["0", "0.0009", "1000.1", "1e2", "inf", "NaN", "+1", "-1", "1.2.3", ".", "one"] {
            let text = refusal(&format!("generate --scale {scale} --row-group 10 out"));
            assert_eq!(text, format!("`--scale {scale}`: expected a decimal number from 0.001 to 1000"));
        }
    }

    #[test]
    fn unusable_numbers_are_refused() {
        for rows in ["0", "10000001", "1.5", "+5", "1k"] {
            let text = refusal(&format!("generate --scale 1 --row-group {rows} out"));
            assert_eq!(text, format!("`--row-group {rows}`: expected an integer from 1 to 10000000"));
        }
        for threads in ["0", "1025"] {
            let text = refusal(&format!("serve --data d --memory 1 --threads {threads} --temporary t"));
            assert_eq!(text, format!("`--threads {threads}`: expected an integer from 1 to 1024"));
        }
    }

    #[test]
    fn unknown_and_repeated_words_are_refused() {
        assert_eq!(refusal(""), "Expected `generate` or `serve`; see `bigiron-datafusion --help`");
        assert_eq!(refusal("query"), "Unknown command `query`; expected `generate` or `serve`");
        assert_eq!(refusal("generate --size 1"), "Unknown option `--size`; expected --scale, --row-group");
        assert_eq!(refusal("generate --scale"), "`--scale` needs a value");
        assert_eq!(refusal("generate --scale 1 --scale 1 out"), "`--scale` is given twice");
        assert_eq!(refusal("generate --scale 1 --row-group 9 a b"), "Unexpected argument `b`");
    }

    #[test]
    fn missing_words_are_named() {
        assert!(refusal("generate --scale 1 --row-group 9").starts_with("`DIR` is missing"));
        assert!(refusal("serve --data d --memory 1 --threads 1").starts_with("`--temporary` is missing"));
    }
}
