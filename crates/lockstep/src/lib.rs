//! A library that QEMU is started with (LD_PRELOAD) under the exact clock, so that its main loop and its vCPU thread take turns.
//!
//! With `-icount shift=0,sleep=off` an idle guest jumps to its next timer: the main loop, after every wake-up, calls
//! `icount_start_warp_timer()`, which adds the time until that timer to the virtual clock if `all_cpu_threads_idle()`. But a vCPU counts as
//! idle from the moment in which its HLT instruction sets `halted`, and that is some 100 ns before `icount_process_data()` adds the
//! instructions it has executed to the clock. A main loop that comes between the two reckons from a clock that is some instructions
//! behind, and the guest's timer fires that much late: a few nanoseconds of virtual time, once in some hundred thousand jumps, and more
//! often the busier the host. With several vCPUs the same main loop also decides, by when it kicks the vCPU thread, which of them runs next.
//!
//! So here the main loop, back from `ppoll`, takes the big lock only when the vCPU thread (one thread runs all vCPUs in turn) waits for
//! work in `pthread_cond_wait`, and so does its own work only then. It is the only one to wake the vCPU thread, which counts as running from
//! the moment in which it is woken, not from that in which it gets a CPU.
//!
//! Invariant: the main loop never runs beside the vCPU thread, with two exceptions that lose exactness rather than the VM: a signal
//! (QEMU is being told to end) and a vCPU thread that does not wait for all of [`PATIENCE`]. Where that may have changed what the guest
//! computes, QEMU's standard error says [`OUT_OF_TURN`].

#![cfg_attr(not(test), no_std)]

#[cfg(preload)]
mod hooks;
#[cfg(any(preload, test))]
mod kernel;
#[cfg(any(preload, test))]
mod pause;
#[cfg(preload)]
mod text;
#[cfg(preload)]
mod thread;
#[cfg(any(preload, test))]
mod turn;

/// How long the main loop waits for a vCPU thread that does not wait, before it does its work beside it. A guest that computes for so long
/// needs no jump; one that was told to reset while another of its vCPUs spins needs the main loop.
#[derive(Clone, Copy)]
pub struct MainLoopTimeout {
    /// Milliseconds of the vCPU thread's CPU time: of the host's time it may get little, where others work.
    pub cpu_ms: u32,
    /// The main loop looks so often, in milliseconds of the host's time.
    pub slice_ms: u32,
    /// Looks after which it gives up on a thread that neither computes nor waits.
    pub slices: u32,
}

/// What QEMU's main loop has.
pub const PATIENCE: MainLoopTimeout = MainLoopTimeout { cpu_ms: 30_000, slice_ms: 250, slices: 4 * 600 };

/// A line of QEMU's standard error: the main loop ran out of turn while a vCPU may have been halting, so that the guest's time may be off.
pub const OUT_OF_TURN: &str = "bigiron-lockstep: the main loop ran out of turn";

/// Set in the environment of a QEMU whose guest has one vCPU, which need not make room for others.
pub const ONE_VCPU: &core::ffi::CStr = c"BIGIRON_ONE_VCPU";

/// The name that the vCPU thread gets once the library was seen to work (at most 15 bytes): what bigiron looks for.
pub const THREAD_NAME: &core::ffi::CStr = c"vcpu-lockstep";
