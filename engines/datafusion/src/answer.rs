//! An answer: one JSON object on a line.

use std::io::Write;

use datafusion::error::DataFusionError;
use serde_json::json;

use crate::counts::Counts;

pub enum Answer {
    Ready {
        version: &'static str,
        tables: usize,
    },
    /// The rows are JSON already: arrays with commas between them.
    Rows {
        rows: Vec<u8>,
        counts: Counts,
    },
    Ok,
    Error(String),
}

impl Answer {
    pub fn of_error(error: &anyhow::Error) -> Answer {
        Answer::Error(error_text(error))
    }

    pub fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        match self {
            Answer::Ready { version, tables } => {
                writeln!(out, r#"{{"ready":{{"version":"DataFusion {version}","tables":{tables}}}}}"#)?;
            }
            Answer::Rows { rows, counts: Counts { scanned_bytes, spilled_bytes, spill_files } } => {
                out.write_all(br#"{"rows":["#)?;
                out.write_all(rows)?;
                writeln!(
                    out,
                    r#"],"scanned_bytes":{scanned_bytes},"spilled_bytes":{spilled_bytes},"spill_files":{spill_files}}}"#
                )?;
            }
            Answer::Ok => writeln!(out, r#"{{"ok":true}}"#)?,
            Answer::Error(text) => writeln!(out, "{}", json!({ "error": text }))?,
        }
        out.flush()
    }
}

/// The error with its causes. The text of an error of DataFusion contains its causes already.
pub fn error_text(error: &anyhow::Error) -> String {
    let mut texts = Vec::new();
    for cause in error.chain() {
        texts.push(cause.to_string());
        if cause.is::<DataFusionError>() {
            break;
        }
    }
    texts.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(answer: &Answer) -> String {
        let mut out = Vec::new();
        answer.write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn an_error_tells_its_causes_once() {
        let error = anyhow::Error::new(DataFusionError::Plan("no table".to_owned()).context("while planning"));
        let text = error_text(&error.context("Cannot read"));
        assert_eq!(text, "Cannot read: while planning\ncaused by\nError during planning: no table");
        let error = anyhow::anyhow!("not found").context("Cannot open").context("Cannot start");
        assert_eq!(error_text(&error), "Cannot start: Cannot open: not found");
    }

    #[test]
    fn an_answer_is_one_line() {
        let ready = Answer::Ready { version: "1.2.3", tables: 8 };
        assert_eq!(line(&ready), "{\"ready\":{\"version\":\"DataFusion 1.2.3\",\"tables\":8}}\n");
        let counts = Counts { scanned_bytes: 1, spilled_bytes: 2, spill_files: 3 };
        let rows = Answer::Rows { rows: b"[1],[2]".to_vec(), counts };
        assert_eq!(line(&rows), "{\"rows\":[[1],[2]],\"scanned_bytes\":1,\"spilled_bytes\":2,\"spill_files\":3}\n");
        assert_eq!(line(&Answer::Ok), "{\"ok\":true}\n");
        assert_eq!(line(&Answer::Error("a\n\"b\"".to_owned())), "{\"error\":\"a\\n\\\"b\\\"\"}\n");
    }
}
