//! Whether an emulator executes this machine's instructions.

use std::arch::x86_64::__cpuid;
use std::sync::OnceLock;

/// The first leaf of what a hypervisor says of itself, and QEMU's name there when it emulates the processor
/// (`TCGTCGTCGTCG`, target/i386/cpu.c).
const HYPERVISOR: u32 = 0x4000_0000;
const EMULATOR: &[u8; 12] = b"TCGTCGTCGTCG";

/// Whether this is a guest of QEMU without a hypervisor.
pub fn is_emulated() -> bool {
    static EMULATED: OnceLock<bool> = OnceLock::new();
    *EMULATED.get_or_init(|| {
        let leaf = __cpuid(HYPERVISOR);
        [leaf.ebx, leaf.ecx, leaf.edx].map(u32::to_le_bytes).concat() == EMULATOR
    })
}
