//! A request: one JSON object on a line.

use std::collections::BTreeMap;

use serde::Deserialize;

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Request {
    /// A statement to run.
    Sql(String),
    /// DataFusion's options to set.
    Set(BTreeMap<String, String>),
}

impl Request {
    pub fn parse(line: &[u8]) -> Result<Request, String> {
        serde_json::from_slice(line)
            .map_err(|error| format!(r#"{error}; expected {{"sql":"SELECT ..."}} or {{"set":{{"NAME":"VALUE"}}}}"#))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read() {
        assert_eq!(Request::parse(br#"{"sql":"SELECT 1"}"#), Ok(Request::Sql("SELECT 1".to_owned())));
        let set = Request::Set(BTreeMap::from([("a.b".to_owned(), "1".to_owned())]));
        assert_eq!(Request::parse(br#"{"set":{"a.b":"1"}}"#), Ok(set));
    }

    #[test]
    fn other_lines_are_refused_with_what_is_expected() {
        let wrong: [&[u8]; 8] = [
            b"",
            b"SELECT 1",
            b"{}",
            br#"{"sql":1}"#,
            br#"{"get":"a"}"#,
            br#"{"set":{"a":1}}"#,
            br#"{"sql":"#,
            b"\xff",
        ];
        for line in wrong.into_iter().chain([br#"{"sql":"a","set":{}}"# as &[u8]]) {
            let text = Request::parse(line).unwrap_err();
            assert!(text.ends_with(r#"; expected {"sql":"SELECT ..."} or {"set":{"NAME":"VALUE"}}"#), "{text}");
        }
    }
}
