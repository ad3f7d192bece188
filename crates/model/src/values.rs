//! The measured values of one trial, by metric name. Only the plan says what a name means (unit, direction, kind).

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

use crate::metric::MetricDef;

/// Values in the metrics' base units, by workload and metric. As JSON: `{"micro": {"fork-exit": 256.5}}`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Values(BTreeMap<String, BTreeMap<String, f64>>);

impl Values {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of values, over all workloads.
    pub fn len(&self) -> usize {
        self.0.values().map(BTreeMap::len).sum()
    }

    pub fn get(&self, workload: &str, metric: &str) -> Option<f64> {
        self.0.get(workload)?.get(metric).copied()
    }

    pub fn insert(&mut self, workload: &str, metric: &str, value: f64) {
        self.0.entry(workload.to_owned()).or_default().insert(metric.to_owned(), value);
    }

    pub fn remove(&mut self, workload: &str, metric: &str) {
        if let Some(values) = self.0.get_mut(workload) {
            values.remove(metric);
        }
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Multiplies every value.
    pub fn scale(&mut self, factor: f64) {
        self.0.values_mut().flat_map(BTreeMap::values_mut).for_each(|value| *value *= factor);
    }

    /// The values of one workload, by name.
    pub fn of(&self, workload: &str) -> impl Iterator<Item = (&str, f64)> {
        self.0.get(workload).into_iter().flatten().map(|(metric, value)| (metric.as_str(), *value))
    }

    /// Checks that the values are exactly the metrics that `workloads` declare, each valid for comparison.
    ///
    /// # Errors
    /// The first missing, undeclared or invalid value.
    pub fn check<'a>(&self, workloads: impl IntoIterator<Item = (&'a str, &'a [MetricDef])>) -> Result<(), String> {
        let mut declared = 0;
        for (workload, defs) in workloads {
            for def in defs {
                let name = format!("{workload}.{}", def.name);
                match self.get(workload, &def.name) {
                    None => return Err(format!("The workload did not deliver `{name}`")),
                    Some(value) if !def.kind.takes(value) => {
                        return Err(format!(
                            "The workload delivered {value} for `{name}`; it must be a number above 0"
                        ));
                    }
                    Some(_) => {}
                }
            }
            let names = self.0.get(workload).into_iter().flat_map(BTreeMap::keys);
            if let Some(name) = names.into_iter().find(|name| !defs.iter().any(|def| def.name == **name)) {
                return Err(format!("The workload delivered `{workload}.{name}`, which the plan does not declare"));
            }
            declared += defs.len();
        }
        match self.len() > declared {
            true => Err("A workload that is not in the plan delivered metrics".to_owned()),
            false => Ok(()),
        }
    }
}

/// Also reads format 1, a list of metrics that each repeated their declaration.
impl<'de> Deserialize<'de> for Values {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Read)
    }
}

struct Read;

/// A metric of format 1; the rest of its content is in the plan.
#[derive(Deserialize)]
struct Metric {
    workload: String,
    name: String,
    value: f64,
}

impl<'de> Visitor<'de> for Read {
    type Value = Values;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("values by workload and metric")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Values, A::Error> {
        let mut values = Values::default();
        while let Some((workload, of)) = map.next_entry()? {
            values.0.insert(workload, of);
        }
        Ok(values)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Values, A::Error> {
        let mut values = Values::default();
        while let Some(Metric { workload, name, value }) = seq.next_element()? {
            values.insert(&workload, &name, value);
        }
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::{Better, Kind, Unit};

    fn values(of: &[(&str, &str, f64)]) -> Values {
        let mut values = Values::default();
        of.iter().for_each(|(workload, metric, value)| values.insert(workload, metric, *value));
        values
    }

    #[test]
    fn both_formats_are_read_to_the_bit() {
        let third = 1.0 / 3.0;
        let text = format!(r#"{{"micro":{{"fork":{third},"geomean":2.5}}}}"#);
        let want = values(&[("micro", "fork", third), ("micro", "geomean", 2.5)]);
        assert_eq!(serde_json::from_str::<Values>(&text).unwrap(), want);
        assert_eq!(serde_json::to_string(&want).unwrap(), text);
        let more = r#""unit":"ns","better":"lower","kind":"cost","primary":true"#;
        let old = format!(
            r#"[{{"workload":"micro","name":"geomean",{more},"value":2.5}},{{"workload":"micro","name":"fork",{more},"value":{third}}}]"#
        );
        assert_eq!(serde_json::from_str::<Values>(&old).unwrap(), want);
        assert!(serde_json::from_str::<Values>(r#"{"micro":{"fork":null}}"#).is_err());
        assert!(serde_json::from_str::<Values>("3").unwrap_err().to_string().contains("values by workload and metric"));
    }

    #[test]
    fn values_are_exactly_what_was_declared_and_fit_to_be_compared() {
        let def = |name: &str, kind| MetricDef {
            name: name.to_owned(),
            unit: Unit::Ns,
            better: Better::Lower,
            kind,
            primary: false,
            summary: String::new(),
        };
        let defs = [def("fork", Kind::Cost), def("faults", Kind::Usage)];
        let check = |of: &[(&str, &str, f64)]| values(of).check([("micro", &defs[..])]);
        check(&[("micro", "fork", 1.0), ("micro", "faults", 0.0)]).unwrap();
        for (of, says) in [
            (&[("micro", "fork", 1.0)][..], "did not deliver `micro.faults`"),
            (&[("micro", "fork", 0.0), ("micro", "faults", 0.0)], "delivered 0 for `micro.fork`"),
            (&[("micro", "fork", 1.0), ("micro", "faults", f64::NAN)], "delivered NaN for `micro.faults`"),
            (&[("micro", "fork", 1.0), ("micro", "faults", 0.0), ("micro", "x", 1.0)], "delivered `micro.x`, which"),
            (&[("micro", "fork", 1.0), ("micro", "faults", 0.0), ("dbsim", "x", 1.0)], "is not in the plan"),
        ] {
            let error = check(of).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
