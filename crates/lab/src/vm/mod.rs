//! The VM: QEMU, its clocks, its disks, its initramfs.

pub mod agent;
pub mod disk;
pub(crate) mod freezer;
pub mod hang_detector;
pub mod initramfs;
pub mod lockstep;
pub mod memory_file;
pub mod moves;
pub mod pinned;
pub mod probe;
pub mod process;
pub mod profile;
pub mod program;
pub mod qemu;
pub mod unpacked;
pub mod watch;
pub mod writes;
