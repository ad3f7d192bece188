//! Metrics that the user declares: their names, and where to find them in a command's output.
//!
//! Invariant: a declared metric is found and is a number, or the run has failed; nothing replaces it.

use std::fmt;

use regex_lite::Regex;
use serde_json::Value;

use bigiron_model::margins;
use bigiron_model::metric::{Better, Kind, MetricDef, Unit};
use bigiron_model::suggest;
use bigiron_service::program::measured;

/// How the values of several runs are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    Median,
    Mean,
}

impl Reduce {
    pub fn parse(word: &str) -> Result<Self, String> {
        match word {
            "median" => Ok(Reduce::Median),
            "mean" => Ok(Reduce::Mean),
            _ => Err(format!("`{word}` is not a way to combine values; it can be `median` or `mean`")),
        }
    }

    /// The combined value; 0 without values.
    pub fn of(self, values: &[f64]) -> f64 {
        let n = values.len();
        match self {
            _ if n == 0 => 0.0,
            Reduce::Mean => values.iter().sum::<f64>() / n as f64,
            Reduce::Median => {
                let mut sorted = values.to_vec();
                sorted.sort_by(f64::total_cmp);
                (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0
            }
        }
    }
}

/// Where a metric is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Stdout,
    Stderr,
    /// A file that the command writes, relative to its working directory.
    File(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Stdout => f.write_str("standard output"),
            Source::Stderr => f.write_str("standard error"),
            Source::File(path) => write!(f, "`{path}`"),
        }
    }
}

/// How it is found there.
#[derive(Clone, Debug)]
enum Find {
    /// RFC 6901.
    Json(String),
    /// The single group of the last match.
    Regex(Regex),
}

/// A declared metric.
#[derive(Clone, Debug)]
pub struct Declared {
    pub name: String,
    unit: Unit,
    /// Base units in one unit of the output.
    factor: f64,
    better: Better,
    kind: Kind,
    pub of: Reduce,
    pub source: Source,
    find: Find,
}

const KEYS: [&str; 7] = ["unit", "better", "of", "kind", "from", "json", "regex"];
/// The form of a declaration, for messages.
const FORM: &str =
    "write NAME,unit=UNIT,better=higher,json=POINTER or NAME,unit=UNIT,better=lower,regex=PATTERN with one group";

/// Units that reports scale, and the size of each in the base unit.
const UNITS: &[(&str, Unit, f64)] = &[
    ("ns", Unit::Ns, 1.0),
    ("us", Unit::Ns, 1e3),
    ("µs", Unit::Ns, 1e3),
    ("ms", Unit::Ns, 1e6),
    ("s", Unit::Ns, 1e9),
    ("min", Unit::Ns, 60e9),
    ("B", Unit::Bytes, 1.0),
    ("KiB", Unit::Bytes, 1024.0),
    ("MiB", Unit::Bytes, 1_048_576.0),
    ("GiB", Unit::Bytes, 1_073_741_824.0),
    ("kB", Unit::Bytes, 1e3),
    ("MB", Unit::Bytes, 1e6),
    ("GB", Unit::Bytes, 1e9),
    ("B/s", Unit::BytesPerSecond, 1.0),
    ("KiB/s", Unit::BytesPerSecond, 1024.0),
    ("MiB/s", Unit::BytesPerSecond, 1_048_576.0),
    ("GiB/s", Unit::BytesPerSecond, 1_073_741_824.0),
    ("kB/s", Unit::BytesPerSecond, 1e3),
    ("MB/s", Unit::BytesPerSecond, 1e6),
    ("GB/s", Unit::BytesPerSecond, 1e9),
];

/// Parses declarations, one per line; the first is the workload's primary.
pub fn parse_all(text: &str) -> Result<Vec<Declared>, String> {
    let mut all: Vec<Declared> = Vec::new();
    for line in text.lines().filter(|l| !l.trim().is_empty()) {
        let declared = Declared::parse(line)?;
        if all.iter().any(|d| d.name == declared.name) {
            return Err(format!("Metric `{}` is declared twice", declared.name));
        }
        all.push(declared);
    }
    Ok(all)
}

impl Declared {
    /// Parses `NAME,unit=UNIT,better=higher|lower[,of=median|mean][,kind=KIND][,from=stderr|FILE],json=POINTER|regex=PATTERN`.
    /// The text after `json=` or `regex=` is the rest of the line, including commas.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut rest = text;
        let mut next = || {
            let found = rest.starts_with("json=") || rest.starts_with("regex=");
            let (piece, after) = if found { (rest, "") } else { rest.split_once(',').unwrap_or((rest, "")) };
            rest = after;
            piece
        };
        let name = next().trim().to_owned();
        check_name(&name)?;
        let wrong = |why: String| format!("Metric `{name}`: {why}");
        let (mut unit, mut better, mut of, mut kind, mut source, mut find) =
            (None, None, Reduce::Median, None, Source::Stdout, None);
        loop {
            let piece = next();
            if piece.is_empty() {
                break;
            }
            let (key, value) =
                piece.split_once('=').ok_or_else(|| wrong(format!("`{piece}` is not a setting; {FORM}")))?;
            match key.trim() {
                "unit" => unit = Some(value.trim()),
                "better" => better = Some(direction(value.trim()).map_err(wrong)?),
                "of" => of = Reduce::parse(value.trim()).map_err(wrong)?,
                "kind" => kind = Some(margins::kind(value.trim()).map_err(|r| wrong(r.message))?),
                "from" => source = from(value.trim()),
                "json" => find = Some(pointer(value).map_err(wrong)?),
                "regex" => find = Some(pattern(value).map_err(wrong)?),
                other => {
                    let right = match suggest::nearest(other, KEYS) {
                        Some(near) => format!("did you mean `{near}`?"),
                        None => format!("it has {}", suggest::list(KEYS)),
                    };
                    return Err(wrong(format!("unknown key `{other}`; {right}")));
                }
            }
        }
        let missing = |what: &str| wrong(format!("{what}; {FORM}"));
        let unit = unit.filter(|u| !u.is_empty()).ok_or_else(|| missing("it has no unit"))?;
        let better = better.ok_or_else(|| missing("it has no `better`"))?;
        let find = find.ok_or_else(|| missing("it has neither `json` nor `regex`"))?;
        let (unit, factor) = match UNITS.iter().find(|(name, ..)| *name == unit) {
            Some((_, unit, factor)) => (*unit, *factor),
            None => (Unit::named(unit), 1.0),
        };
        Ok(Self { kind: kind.unwrap_or_else(|| usual_kind(unit)), name, unit, factor, better, of, source, find })
    }

    pub fn def(&self, primary: bool) -> MetricDef {
        let by = match &self.find {
            Find::Json(pointer) => format!("JSON pointer `{pointer}`"),
            Find::Regex(pattern) => format!("regular expression `{}`", pattern.as_str()),
        };
        MetricDef {
            name: self.name.clone(),
            unit: self.unit,
            better: self.better,
            kind: self.kind,
            primary,
            summary: format!("Printed by the command: {by} in {}", self.source),
        }
    }

    /// The value in the base unit, found in `text`, the content of [`Declared::source`].
    pub fn value(&self, text: &str) -> Result<f64, String> {
        let missing = |why: String| format!("The metric `{}` is missing: {why}", self.name);
        let found = match &self.find {
            Find::Json(pointer) => {
                let document = json(text).ok_or_else(|| missing(format!("{} is not JSON", self.source)))?;
                let found = document.pointer(pointer);
                let found = found.ok_or_else(|| missing(format!("{} has nothing at `{pointer}`", self.source)))?;
                match found {
                    Value::Number(n) => n.to_string(),
                    Value::String(s) => s.clone(),
                    other => return Err(missing(format!("`{pointer}` of {} is not a number: {other}", self.source))),
                }
            }
            Find::Regex(pattern) => {
                let last = pattern.captures_iter(text).last();
                let group = last.and_then(|c| c.get(1).map(|m| m.as_str().to_owned()));
                group.ok_or_else(|| missing(format!("nothing in {} matches `{}`", self.source, pattern.as_str())))?
            }
        };
        let value: f64 = found.trim().parse().map_err(|_| missing(format!("`{found}` is not a number")))?;
        let value = value * self.factor;
        if self.kind.takes(value) {
            return Ok(value);
        }
        let right = if value == 0.0 { "; if 0 is a valid value, declare `kind=usage`" } else { "" };
        Err(format!("The metric `{}` is {found}, and ratios need a number above 0{right}", self.name))
    }
}

/// The whole text as JSON, or else its last line that is JSON (some tools log before their result, or print one result per line).
fn json(text: &str) -> Option<Value> {
    let whole = serde_json::from_str(text).ok();
    whole.or_else(|| text.lines().rev().find_map(|line| serde_json::from_str(line).ok().filter(Value::is_object)))
}

fn check_name(name: &str) -> Result<(), String> {
    let well_formed = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if !well_formed {
        return Err(format!(
            "`{name}` cannot be a metric's name: a name consists of letters, digits, `-`, `_` and `.`; {FORM}"
        ));
    }
    match measured::NAMES.contains(&name) {
        true => Err(format!("Metric `{name}` is always measured; use another name")),
        false => Ok(()),
    }
}

fn direction(word: &str) -> Result<Better, String> {
    match word {
        "higher" => Ok(Better::Higher),
        "lower" => Ok(Better::Lower),
        _ => Err(format!("`{word}` is not a direction; `better` is `higher` or `lower`")),
    }
}

fn from(word: &str) -> Source {
    match word {
        "stdout" => Source::Stdout,
        "stderr" => Source::Stderr,
        path => Source::File(path.to_owned()),
    }
}

fn pointer(text: &str) -> Result<Find, String> {
    if text.is_empty() || text.starts_with('/') {
        return Ok(Find::Json(text.to_owned()));
    }
    Err(format!("`{text}` is not a JSON pointer; it must begin with `/`, such as `/{}`", text.replace('.', "/")))
}

fn pattern(text: &str) -> Result<Find, String> {
    let pattern = Regex::new(text).map_err(|e| format!("`{text}` is not a regular expression: {e}"))?;
    match pattern.captures_len() - 1 {
        1 => Ok(Find::Regex(pattern)),
        0 => Err(format!("`{text}` has no group; put the number in parentheses, such as `([0-9.]+)`")),
        n => Err(format!("`{text}` has {n} groups; keep one, and write the others as `(?:…)`")),
    }
}

fn usual_kind(unit: Unit) -> Kind {
    match unit {
        Unit::Ns => Kind::Cost,
        unit if unit.name().ends_with("/s") || unit.name().ends_with("/min") => Kind::Throughput,
        _ => Kind::Amount,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(text: &str) -> Declared {
        Declared::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    #[test]
    fn a_metric_is_found_where_it_was_said_to_be() {
        for (text, output, want) in [
            ("tps,unit=tx/s,better=higher,regex=tps = ([0-9.]+)", "tps = 1.0\nx\ntps = 812.5 (ok)\n", 812.5),
            ("p,unit=ms,better=lower,json=/latency/p99", r#"{"latency": {"p99": 1.5}}"#, 1.5e6),
            ("p,unit=ms,better=lower,json=/a/1", "log line\n{\"a\": [1, \"2.5\"]}\n", 2.5e6),
            ("rate,unit=MB/s,better=higher,regex=([0-9]+),(?:[0-9]) MB", "12,5 MB", 12e6),
            ("fps,unit=frames/s,better=higher,regex=(-?[0-9.e]+)", "6e1", 60.0),
            ("lost,unit=count,better=lower,kind=usage,regex=lost ([0-9]+)", "lost 0", 0.0),
        ] {
            assert_eq!(declared(text).value(output), Ok(want), "{text}");
        }
        let metric = declared("fps,unit=frames/s,better=higher,of=mean,from=out.json,json=/x");
        let def = metric.def(true);
        assert_eq!((def.unit.name(), def.kind, def.better), ("frames/s", Kind::Throughput, Better::Higher));
        assert_eq!((metric.of, metric.source), (Reduce::Mean, Source::File("out.json".to_owned())));
        assert_eq!(declared("t,unit=s,better=lower,json=/t").def(false).kind, Kind::Cost);
    }

    #[test]
    fn what_is_missing_is_named() {
        for (text, output, want) in [
            ("t,unit=s,better=lower,regex=took (.*)", "nothing", "nothing in standard output matches `took (.*)`"),
            ("t,unit=s,better=lower,regex=took (.*)", "took ages", "`ages` is not a number"),
            ("t,unit=s,better=lower,json=/t", "hello", "standard output is not JSON"),
            ("t,unit=s,better=lower,from=stderr,json=/t", "{}", "standard error has nothing at `/t`"),
            ("t,unit=s,better=lower,json=/t", "{\"t\": [1]}", "is not a number: [1]"),
            ("t,unit=s,better=lower,json=/t", "{\"t\": 0}", "declare `kind=usage`"),
            ("t,unit=s,better=lower,json=/t", "{\"t\": -1}", "need a number above 0"),
        ] {
            let error = declared(text).value(output).unwrap_err();
            assert!(error.contains(want), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_no_declaration_is_refused_with_what_would_be_one() {
        for (text, want) in [
            ("", "cannot be a metric's name"),
            ("a b,unit=s", "cannot be a metric's name"),
            ("wall,unit=s,better=lower,json=/t", "is always measured"),
            ("t,better=lower,json=/t", "it has no unit"),
            ("t,unit=s,json=/t", "it has no `better`"),
            ("t,unit=s,better=less,json=/t", "`better` is `higher` or `lower`"),
            ("t,unit=s,better=lower", "neither `json` nor `regex`"),
            ("t,unit=s,better=lower,json=a.b", "such as `/a/b`"),
            ("t,unit=s,better=lower,regex=([0-9]+", "is not a regular expression"),
            ("t,unit=s,better=lower,regex=[0-9]+", "has no group"),
            ("t,unit=s,better=lower,regex=(a)(b)", "has 2 groups"),
            ("t,units=s,better=lower,json=/t", "did you mean `unit`?"),
            ("t,unit=s,better=lower,of=best,json=/t", "`median` or `mean`"),
            ("t,unit=s,better=lower,json", "is not a setting"),
        ] {
            let error = Declared::parse(text).unwrap_err();
            assert!(error.contains(want), "{text}: {error}");
        }
        assert!(
            parse_all("t,unit=s,better=lower,json=/t\nt,unit=s,better=lower,json=/u").unwrap_err().contains("twice")
        );
    }

    #[test]
    fn several_runs_become_one_value() {
        assert_eq!(Reduce::Median.of(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(Reduce::Median.of(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(Reduce::Mean.of(&[1.0, 2.0, 6.0]), 3.0);
    }
}
