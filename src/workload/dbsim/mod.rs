use super::{Context, Needs, OptionDef, Options, Outcome, Workload};
use crate::metric::MetricDef;

pub struct Dbsim;

impl Workload for Dbsim {
    fn name(&self) -> &'static str {
        "dbsim"
    }
    fn summary(&self) -> &'static str {
        ""
    }
    fn doc(&self) -> &'static str {
        ""
    }
    fn options(&self) -> &'static [OptionDef] {
        &[]
    }
    fn check(&self, _options: &Options) -> Result<(), String> {
        Ok(())
    }
    fn needs(&self, _options: &Options) -> Needs {
        Needs::default()
    }
    fn metrics(&self, _options: &Options) -> Vec<MetricDef> {
        Vec::new()
    }
    fn prepare(&self, _cx: &Context<'_>) -> anyhow::Result<()> {
        Ok(())
    }
    fn run(&self, _cx: &Context<'_>) -> anyhow::Result<Outcome> {
        Ok(Outcome::default())
    }
    fn verify(&self, _cx: &Context<'_>) -> anyhow::Result<()> {
        Ok(())
    }
}
