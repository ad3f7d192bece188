//! A library preloaded into QEMU (LD_PRELOAD) under the exact clock, which makes its main loop and its vCPU thread take turns.
//!
//! With `-icount shift=0,sleep=off` an idle guest jumps to its next timer: after every wake-up, the main loop calls `icount_start_warp_timer()`,
//! which adds the time until that timer to the virtual clock if `all_cpu_threads_idle()`. But a vCPU counts as idle from the moment its HLT
//! instruction sets `halted`, some 100 ns before `icount_process_data()` adds its executed instructions to the clock. A main loop that runs between
//! the two starts from a clock that is a few instructions behind, and the guest's timer fires late by that amount: a few nanoseconds of virtual time,
//! once in some hundred thousand jumps, and more often on a busy host. With several vCPUs, the main loop also decides, by the moment at which it
//! kicks the vCPU thread, which vCPU runs next.
//!
//! Therefore the main loop, after returning from `ppoll`, takes the big lock (and does its work) only while the vCPU thread (one thread runs all
//! vCPUs in turn) waits for work in `pthread_cond_wait`. Only the main loop wakes the vCPU thread, which counts as running from the moment it is
//! woken, not from the moment it gets a CPU.
//!
//! Under [`QUANTUM`] it also has several vCPUs run in parallel virtual time, see `quanta`.
//!
//! Invariant: the main loop never runs in parallel with the vCPU thread, with two exceptions that lose exactness rather than the VM: a signal (QEMU
//! is being told to end), and a vCPU thread that does not wait for the whole of [`PATIENCE`]. If that may have changed the guest's computation,
//! QEMU's standard error says [`OUT_OF_TURN`].

#![cfg_attr(not(test), no_std)]

#[cfg(preload)]
mod hooks;
#[cfg(any(preload, test))]
mod kernel;
#[cfg(any(preload, test))]
mod layout;
#[cfg(any(preload, test))]
mod pause;
#[cfg(any(preload, test))]
mod quanta;
#[cfg(preload)]
mod text;
#[cfg(preload)]
mod thread;
#[cfg(any(preload, test))]
mod turn;

/// How long the main loop waits for a vCPU thread that does not wait, before it works in parallel with it. A guest that computes for so long needs no
/// jump; a guest that was told to reset while another of its vCPUs spins needs the main loop.
#[derive(Clone, Copy)]
pub struct MainLoopTimeout {
    /// Milliseconds of the vCPU thread's CPU time, because it may get little of the host's time on a busy host.
    pub cpu_ms: u32,
    /// The interval between the main loop's checks, in milliseconds of the host's time.
    pub slice_ms: u32,
    /// Number of checks after which it gives up on a thread that neither computes nor waits.
    pub slices: u32,
}

/// The main loop's limits in QEMU.
pub const PATIENCE: MainLoopTimeout = MainLoopTimeout { cpu_ms: 30_000, slice_ms: 250, slices: 4 * 600 };

/// A line of QEMU's standard error: the main loop ran out of turn while a vCPU may have been halting, so the guest's time may be off.
pub const OUT_OF_TURN: &str = "bigiron-lockstep: the main loop ran out of turn";

/// Set in the environment of a QEMU whose guest has one vCPU, which need not yield to others.
pub const ONE_VCPU: &core::ffi::CStr = c"BIGIRON_ONE_VCPU";

/// Set in the environment of a QEMU whose vCPUs run in parallel virtual time, to the nanoseconds by which one of them may be ahead of another.
pub const QUANTUM: &core::ffi::CStr = c"BIGIRON_QUANTUM";

/// A line of QEMU's standard error: its vCPUs cannot run in parallel virtual time, and it has ended.
pub const NO_QUANTA: &str = "bigiron-lockstep: this QEMU does not keep the time of its vCPUs as QEMU 7.2 does";

/// The name of the vCPU thread once the library is known to work (at most 15 bytes); bigiron looks for it.
pub const THREAD_NAME: &core::ffi::CStr = c"vcpu-lockstep";
