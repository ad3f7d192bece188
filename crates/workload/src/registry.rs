//! The workloads of an executable. Hosts and the agent get a registry: they run workloads without knowing which exist.

use bigiron_model::plan::{Arm, Plan};

use crate::{Configured, Options, Workload};

/// Workloads, in the order of lists.
#[derive(Clone, Copy)]
pub struct Registry(&'static [&'static dyn Workload]);

impl Registry {
    pub const fn new(workloads: &'static [&'static dyn Workload]) -> Self {
        Self(workloads)
    }

    /// All of them.
    pub fn all(self) -> &'static [&'static dyn Workload] {
        self.0
    }

    /// The workload of that name.
    pub fn find(self, name: &str) -> Option<&'static dyn Workload> {
        self.0.iter().copied().find(|w| w.name() == name)
    }

    /// The workload with that name, with its options parsed.
    ///
    /// # Errors
    /// It does not exist, or its options are wrong, as in [`Workload::parse`].
    pub fn configure(self, name: &str, options: &Options) -> Result<Box<dyn Configured>, String> {
        self.find(name).ok_or_else(|| format!("This executable has no workload `{name}`"))?.parse(options)
    }

    /// The workloads of a plan with the options of a boot of `arm`, in the plan's order.
    ///
    /// # Errors
    /// As [`Registry::configure`].
    pub fn of_arm(self, plan: &Plan, arm: &Arm) -> Result<Vec<Box<dyn Configured>>, String> {
        plan.workloads.iter().map(|w| self.configure(&w.name, &plan.options_in(arm, &w.name))).collect()
    }
}
