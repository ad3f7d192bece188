//! The report as JSON Lines: one object a line, each with its `type`, so that a stream can be filtered without a parser of the whole report.
//!
//! The objects are those of the JSON report. `bigiron schema lines` prints the schema, which is made here from the report's own.

use serde_json::{Map, Value, json};

use crate::Report;

/// The schema of the JSON report (JSON Schema, draft 2020-12).
pub const REPORT_SCHEMA: &str = include_str!("../report.schema.json");

/// First the study, then its sentences, survival, comparisons and their lines.
pub fn jsonl(report: &Report<'_>) -> String {
    let document: Value = serde_json::from_str(&crate::json(report)).expect("the report is JSON");
    let Value::Object(mut study) = document else { unreachable!("the report is an object") };
    let mut take = |name: &str| match study.remove(name) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    };
    let (sentences, survival, comparisons) = (take("sentences"), take("survival"), take("comparisons"));
    let mut lines = vec![typed("study", study)];
    lines.extend(sentences.into_iter().map(|s| typed("sentence", object(s))));
    lines.extend(survival.into_iter().map(|s| typed("survival", object(s))));
    for comparison in comparisons {
        let mut comparison = object(comparison);
        let judged = comparison.remove("lines");
        let arms: Map<String, Value> = ["baseline", "arm"]
            .into_iter()
            .filter_map(|name| Some((name.to_owned(), comparison.get(name)?.clone())))
            .collect();
        lines.push(typed("comparison", comparison));
        let Some(Value::Array(judged)) = judged else { continue };
        lines.extend(
            judged.into_iter().map(|line| typed("line", arms.clone().into_iter().chain(object(line)).collect())),
        );
    }
    let mut out = String::new();
    for line in lines {
        out.push_str(&line.to_string());
        out.push('\n');
    }
    out
}

fn typed(kind: &str, members: Map<String, Value>) -> Value {
    Value::Object([("type".to_owned(), json!(kind))].into_iter().chain(members).collect())
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

/// The schema of a line: the report's own definitions, each with its `type`.
pub fn lines_schema() -> String {
    let mut report: Value = serde_json::from_str(REPORT_SCHEMA).expect("the schema is JSON");
    let definitions = report["$defs"].take();
    let of = |name: &str| definitions[name].clone();
    let mut study = report.clone();
    for moved in ["sentences", "survival", "comparisons"] {
        without(&mut study, moved);
    }
    for annotation in ["$schema", "$defs", "title", "description"] {
        study.as_object_mut().map(|schema| schema.remove(annotation));
    }
    let sentence = report["properties"]["sentences"]["items"].take();
    let mut comparison = of("comparison");
    without(&mut comparison, "lines");
    let mut line = of("line");
    for arm in ["baseline", "arm"] {
        require(&mut line, arm, json!({ "type": "string" }));
    }
    let kinds = [
        ("study", study),
        ("sentence", sentence),
        ("survival", of("survival")),
        ("comparison", comparison),
        ("line", line),
    ];
    let any: Vec<Value> = kinds
        .into_iter()
        .map(|(kind, mut schema)| {
            require(&mut schema, "type", json!({ "const": kind }));
            schema
        })
        .collect();
    let schema = json!({
        "$schema": report["$schema"],
        "title": "A line of `bigiron report --format jsonl`",
        "oneOf": any,
        "$defs": definitions,
    });
    serde_json::to_string_pretty(&schema).expect("a value is JSON") + "\n"
}

/// Removes a property from the schema of an object.
fn without(schema: &mut Value, name: &str) {
    if let Some(properties) = schema["properties"].as_object_mut() {
        properties.remove(name);
    }
    if let Some(required) = schema["required"].as_array_mut() {
        required.retain(|n| n != name);
    }
}

/// Adds a required property to the schema of an object.
fn require(schema: &mut Value, name: &str, of: Value) {
    schema["properties"][name] = of;
    if let Some(required) = schema["required"].as_array_mut() {
        required.push(json!(name));
    }
}
