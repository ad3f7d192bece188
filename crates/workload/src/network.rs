//! The option of workloads whose servers and clients can be behind network devices.

use bigiron_model::workload::Options;
use bigiron_sys::network;

use super::OptionDef;

/// The network below TCP.
pub const NETWORK: OptionDef = OptionDef {
    name: "network",
    default: "loopback",
    allowed: &["loopback", "veth"],
    summary: "The network below TCP: a loopback, or a pair of devices between two network namespaces",
};

/// Whether the options ask for a pair of devices.
pub fn over_devices(options: &Options) -> bool {
    options.get(NETWORK.name).is_some_and(|network| network == "veth")
}

/// The kernel modules for it.
pub fn modules(over_devices: bool) -> Vec<&'static str> {
    if over_devices { vec![network::MODULE] } else { Vec::new() }
}
