//! The NUMA memory policy of a thread, which its children inherit.
//!
//! Invariant: the value read back is what the kernel stores, not what was requested.

use std::io;

use serde::{Deserialize, Serialize};

/// The nodes that pages come from (set_mempolicy(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// The kernel's default: the node of the CPU that touches a page first; balancing may move the page.
    Default,
    /// One node; others when it is full.
    Preferred,
    /// Only these nodes.
    Bind,
    /// These nodes in turn.
    Interleave,
    /// The node of the CPU that touches a page first; balancing leaves the page there.
    Local,
    /// These nodes in turn, each as often as its weight.
    WeightedInterleave,
}

impl Mode {
    /// From `linux/mempolicy.h`; not every libc has the last one.
    fn number(self) -> i32 {
        match self {
            Mode::Default => libc::MPOL_DEFAULT,
            Mode::Preferred => libc::MPOL_PREFERRED,
            Mode::Bind => libc::MPOL_BIND,
            Mode::Interleave => libc::MPOL_INTERLEAVE,
            Mode::Local => libc::MPOL_LOCAL,
            Mode::WeightedInterleave => 6,
        }
    }
}

const BITS: usize = u64::BITS as usize;
/// Most nodes of x86-64 kernels (`CONFIG_NODES_SHIFT` is at most 10).
pub const NODES: usize = 1024;

/// Sets the policy of this thread.
///
/// # Errors
/// `InvalidInput` for a mode that this kernel does not have, or nodes without memory; `PermissionDenied` where a container forbids it.
pub fn set(mode: Mode, nodes: &[u32]) -> io::Result<()> {
    let mut mask = [0_u64; NODES / BITS];
    for node in nodes {
        let node = *node as usize;
        *mask.get_mut(node / BITS).ok_or(io::ErrorKind::InvalidInput)? |= 1 << (node % BITS);
    }
    let (pointer, bits) = if nodes.is_empty() { (std::ptr::null(), 0) } else { (mask.as_ptr(), NODES + 1) };
    // SAFETY: the kernel reads one bit less than it is told, which is what the array has.
    match unsafe { libc::syscall(libc::SYS_set_mempolicy, libc::c_long::from(mode.number()), pointer, bits) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether this thread's policy is `mode` over `nodes`, which are sorted.
///
/// # Errors
/// Those of get_mempolicy(2).
pub fn is(mode: Mode, nodes: &[u32]) -> io::Result<bool> {
    let (number, got) = get()?;
    // Kernels before 5.14 store `local` as a preference for no particular node.
    let local = mode == Mode::Local && number == libc::MPOL_PREFERRED && got.is_empty();
    Ok(local || number == mode.number() && got == nodes)
}

/// The policy of this thread: its number and its nodes.
fn get() -> io::Result<(i32, Vec<u32>)> {
    let (mut number, mut mask) = (0_i32, [0_u64; NODES / BITS]);
    // SAFETY: the kernel writes one number, and one bit less than it is told into the array.
    let result = unsafe {
        libc::syscall(
            libc::SYS_get_mempolicy,
            &raw mut number,
            mask.as_mut_ptr(),
            NODES + 1,
            std::ptr::null::<u8>(),
            0_usize,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let nodes = (0..NODES).filter(|n| mask[n / BITS] >> (n % BITS) & 1 == 1);
    Ok((number, nodes.map(|n| n as u32).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::skipped;

    /// Runs `test` in a separate thread, so that its policy ends with the test.
    fn alone<T: Send>(test: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| scope.spawn(test).join().unwrap())
    }

    #[test]
    fn a_policy_is_read_back() {
        alone(|| {
            for (mode, nodes) in
                [(Mode::Interleave, &[0][..]), (Mode::Bind, &[0]), (Mode::Preferred, &[0]), (Mode::Local, &[])]
            {
                match set(mode, nodes) {
                    // A container may restrict it to processes with CAP_SYS_NICE.
                    Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                        return skipped("policies of memory", e);
                    }
                    other => other.unwrap(),
                }
                assert!(is(mode, nodes).unwrap(), "{mode:?}: {:?}", get().unwrap());
                assert!(!is(Mode::WeightedInterleave, nodes).unwrap());
            }
            set(Mode::Default, &[]).unwrap();
            assert!(is(Mode::Default, &[]).unwrap());
        });
    }

    #[test]
    fn a_node_that_cannot_be_is_refused() {
        alone(|| {
            assert_eq!(set(Mode::Bind, &[NODES as u32]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
            assert!(set(Mode::Bind, &[NODES as u32 - 1]).is_err());
        });
    }
}
