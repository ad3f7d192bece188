//! The scheduling policy and slice of a thread, which its children inherit (sched_setattr(2)).
//!
//! Invariant: what is read back is what the kernel stores, not what was requested.

use std::io;

use serde::{Deserialize, Serialize};

/// A policy of sched(7), without that of deadlines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    Other,
    Batch,
    Idle,
    /// Real time with priority 1.
    Fifo,
    /// Real time with priority 1, in turn.
    Rr,
}

impl Policy {
    pub const ALL: [(&str, Self); 5] =
        [("other", Self::Other), ("batch", Self::Batch), ("idle", Self::Idle), ("fifo", Self::Fifo), ("rr", Self::Rr)];

    /// From `linux/sched.h`.
    fn number(self) -> u32 {
        match self {
            Self::Other => libc::SCHED_OTHER as u32,
            Self::Fifo => libc::SCHED_FIFO as u32,
            Self::Rr => libc::SCHED_RR as u32,
            Self::Batch => libc::SCHED_BATCH as u32,
            Self::Idle => libc::SCHED_IDLE as u32,
        }
    }

    /// Whether it is one of real time, which has no slice of its own and needs a privilege.
    fn is_real_time(self) -> bool {
        matches!(self, Self::Fifo | Self::Rr)
    }
}

/// `struct sched_attr` of Linux 3.14.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// The slice of other policies than that of deadlines, from Linux 6.12 on.
    runtime: u64,
    deadline: u64,
    period: u64,
}

const SIZE: u32 = size_of::<Attributes>() as u32;

/// Sets policy and slice (nanoseconds) of this thread, those that are given.
///
/// # Errors
/// Those of sched_setattr(2); `PermissionDenied` for real time without a privilege. `Unsupported` if the kernel does not store the slice.
pub fn set(policy: Option<Policy>, slice_ns: Option<u64>) -> io::Result<()> {
    let mut wanted = get()?;
    wanted.size = SIZE;
    if let Some(policy) = policy {
        wanted.policy = policy.number();
        wanted.priority = u32::from(policy.is_real_time());
    }
    // A slice that was never set reads as the kernel's present one, which must not become a fixed one.
    wanted.runtime = slice_ns.unwrap_or(0);
    // SAFETY: the kernel reads as many bytes as the structure says it has.
    if unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let got = get()?;
    if got.policy != wanted.policy || slice_ns.is_some_and(|ns| got.runtime != ns) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(())
}

fn get() -> io::Result<Attributes> {
    let mut got = Attributes::default();
    // SAFETY: the kernel writes at most as many bytes as it is told.
    match unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut got, SIZE, 0) } {
        0 => Ok(got),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_policy_is_stored_and_inherited() {
        thread::spawn(|| {
            set(Some(Policy::Batch), None).unwrap();
            assert_eq!(get().unwrap().policy, Policy::Batch.number());
            let child = thread::spawn(|| get().unwrap().policy).join().unwrap();
            assert_eq!(child, Policy::Batch.number());
            set(Some(Policy::Other), None).unwrap();
            assert_eq!(get().unwrap().policy, Policy::Other.number());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_slice_is_stored_or_the_kernel_is_too_old() {
        thread::spawn(|| match set(None, Some(3_000_000)) {
            Ok(()) => assert_eq!(get().unwrap().runtime, 3_000_000),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::Unsupported),
        })
        .join()
        .unwrap();
    }
}
