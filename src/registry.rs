//! The workloads of this executable.

use bigiron_workload::Workload;
use bigiron_workload::registry::Registry;

/// Every workload, in the order in which lists show them.
pub const WORKLOADS: Registry = Registry::new(&[
    &bigiron_workloads::micro::Micro,
    &bigiron_dbsim::Dbsim,
    &bigiron_oltp::Oltp,
    &bigiron_workloads::sqlphases::SqlPhases,
    &bigiron_dss::workload::Dss,
    &bigiron_web::workload::Web,
    &bigiron_app::App,
    &bigiron_workloads::multiuser::Multiuser,
    &bigiron_workloads::fs_clients::FsClients,
    &bigiron_workloads::net_clients::NetClients,
    &bigiron_workloads::files::FileService,
    &bigiron_workloads::tio::Tio,
    &bigiron_workloads::raw_io::RawIo,
    &bigiron_workloads::chat::Chat,
    &bigiron_workloads::jvm::JavaBusiness,
    &bigiron_workloads::scripts::Scripts,
    &bigiron_workloads::build::Build,
    &bigiron_workloads::command::Command,
]);

/// Every workload, in the order in which lists show them.
pub fn all() -> &'static [&'static dyn Workload] {
    WORKLOADS.all()
}

/// The workload of that name.
pub fn find(name: &str) -> Option<&'static dyn Workload> {
    WORKLOADS.find(name)
}

#[cfg(test)]
mod tests {
    use bigiron_lab::host::vm::journal_serial;

    use super::*;

    #[test]
    fn every_journal_has_a_serial_number_that_virtio_does_not_cut() {
        // VIRTIO_BLK_ID_BYTES.
        assert!(all().iter().all(|w| journal_serial(w.name()).len() <= 20));
    }
}
