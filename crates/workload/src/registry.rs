//! The workloads that an executable has. Hosts and the agent are handed one: they run workloads without knowing which there are.

use bigiron_model::plan::{Arm, Plan};
use bigiron_sys::network;

use crate::{Options, Workload};

/// Workloads, in the order in which lists show them.
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

    /// Whether the workload of that name, with `options`, has clients behind network devices.
    pub fn has_network(self, name: &str, options: &Options) -> bool {
        self.find(name).is_some_and(|w| w.needs(options).modules.contains(&network::MODULE))
    }

    /// Whether a workload of the plan has, in a boot of `arm`, clients behind network devices.
    pub fn arm_has_network(self, plan: &Plan, arm: &Arm) -> bool {
        plan.workloads.iter().any(|w| self.has_network(&w.name, &plan.options_in(arm, &w.name)))
    }
}
