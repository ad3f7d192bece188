//! What a processor takes to move memory by one instruction.
//!
//! Invariant: a set of weights never changes; other figures are another set.

/// What moving memory costs, in cycles, each of which is an instruction's worth of virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    pub name: &'static str,
    /// Most bytes of a short move, which costs `short_cycles` in all.
    pub short_bytes: u64,
    pub short_cycles: u64,
    /// Cycles of a longer move before its first byte.
    pub start_cycles: u64,
    /// Bytes of a longer move for each further cycle.
    pub bytes_per_cycle: u64,
}

impl Weights {
    /// A processor of AMD's with FSRM. Measured on an EPYC (rdtscp around 64 moves within L1, best of 400, against a loop of a cycle an iteration): `rep
    /// movsb` of 1 to 64 bytes 14 cycles, of 256 35, of 1,024 55, of 4,096 151; `rep movsq`, `rep stosb` and `rep stosq` within 20 cycles of that.
    pub const ROME: Self =
        Self { name: "rome-like", short_bytes: 64, short_cycles: 14, start_cycles: 23, bytes_per_cycle: 32 };

    /// A Xeon with FSRM: 35 cycles of start ("Intel 64 and IA-32 Architectures Optimization Reference Manual", "Enhanced REP MOVSB and STOSB Operation");
    /// `rep movsb` of 4,096 bytes took 33.2 ns and of 2,048 bytes 24.3 ns on a Xeon Gold 6348, so 64 bytes a cycle at 3.4 GHz (golang/go#66959). Moves
    /// of up to 128 bytes are enhanced further (the manual, "Fast Short REP MOVSB"), without a figure: those of AMD's.
    pub const ICE_LAKE: Self =
        Self { name: "icelake-like", short_bytes: 128, short_cycles: 14, start_cycles: 35, bytes_per_cycle: 64 };

    pub const ALL: [Self; 2] = [Self::ROME, Self::ICE_LAKE];

    /// Cycles of an instruction that moves this many bytes.
    pub fn cycles(&self, bytes: u64) -> u64 {
        match bytes <= self.short_bytes {
            true => self.short_cycles,
            false => self.start_cycles + bytes.div_ceil(self.bytes_per_cycle),
        }
    }
}
