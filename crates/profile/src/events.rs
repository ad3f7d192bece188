//! What the model of a processor counts: events that cost a processor more than the instruction's place in the pipeline.
//!
//! Invariant: an event's number never changes its meaning within a version of the plugin's file ([`MAGIC`](crate::MAGIC)).

/// An event. Those from [`Event::FIRST_OF_GEOMETRY`] on are counted once for each [`Geometry`](crate::geometry::Geometry).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Event {
    /// Cycles of `rep movs` and `rep stos`, which the exact clock has charged.
    MoveCycles,
    /// A conditional branch, a return, or an indirect jump or call that went elsewhere than predicted.
    MispredictedBranch,
    MispredictedReturn,
    MispredictedJump,
    /// A page that was in the second-level TLB only.
    SecondTlb,
    /// A page whose address was read from the page tables.
    Walk,
    Cr3Write,
    ControlWrite,
    WriteMsr,
    ReadMsr,
    InvalidatePage,
    Fence,
    Syscall,
    Sysret,
    InterruptReturn,
    Swapgs,
    Locked,
    Divide,
    Cpuid,
    Pause,
    ReadTsc,
    UserAccess,
    SetFlags,
    /// An instruction of unrolled code, which moves memory word by word, as loops that copy or clear it do. Such instructions do not wait for each
    /// other.
    Unrolled,
    /// A word that such code moves.
    UnrolledWord,
    /// A line of instructions that came from L2, the last level, or memory.
    FetchL2,
    FetchLast,
    FetchMemory,
    /// A line of data from there, and not for a store.
    DataL2,
    DataLast,
    DataMemory,
    /// The same, for a store.
    StoreL2,
    StoreLast,
    StoreMemory,
    /// A line for a load or a store, next to a line that had been missed just before, so that a prefetcher would have asked for it.
    StreamL2,
    StreamLast,
    StreamMemory,
    /// The same, of `rep movs` and `rep stos`.
    MoveL2,
    MoveLast,
    MoveMemory,
    /// A line of a page table.
    WalkL2,
    WalkLast,
    WalkMemory,
    /// A line of memory of another NUMA node, in addition to its other event.
    Remote,
}

impl Event {
    pub const ALL: [Self; 44] = [
        Self::MoveCycles,
        Self::MispredictedBranch,
        Self::MispredictedReturn,
        Self::MispredictedJump,
        Self::SecondTlb,
        Self::Walk,
        Self::Cr3Write,
        Self::ControlWrite,
        Self::WriteMsr,
        Self::ReadMsr,
        Self::InvalidatePage,
        Self::Fence,
        Self::Syscall,
        Self::Sysret,
        Self::InterruptReturn,
        Self::Swapgs,
        Self::Locked,
        Self::Divide,
        Self::Cpuid,
        Self::Pause,
        Self::ReadTsc,
        Self::UserAccess,
        Self::SetFlags,
        Self::Unrolled,
        Self::UnrolledWord,
        Self::FetchL2,
        Self::FetchLast,
        Self::FetchMemory,
        Self::DataL2,
        Self::DataLast,
        Self::DataMemory,
        Self::StoreL2,
        Self::StoreLast,
        Self::StoreMemory,
        Self::StreamL2,
        Self::StreamLast,
        Self::StreamMemory,
        Self::MoveL2,
        Self::MoveLast,
        Self::MoveMemory,
        Self::WalkL2,
        Self::WalkLast,
        Self::WalkMemory,
        Self::Remote,
    ];

    pub const FIRST_OF_GEOMETRY: usize = Self::FetchL2 as usize;

    /// Events counted for each geometry.
    pub const OF_GEOMETRY: usize = Self::ALL.len() - Self::FIRST_OF_GEOMETRY;

    /// The place of its count among a row's, given the number of the geometry.
    pub const fn at(self, geometry: usize) -> usize {
        let at = self as usize;
        if at < Self::FIRST_OF_GEOMETRY { at } else { at + geometry * Self::OF_GEOMETRY }
    }

    /// Whether it is counted in samples of a window alone, because the model has to run for it. Others are counted wherever they
    /// happen.
    pub const fn is_sampled(self) -> bool {
        matches!(
            self,
            Self::MispredictedBranch | Self::MispredictedReturn | Self::MispredictedJump | Self::SecondTlb | Self::Walk
        ) || self as usize >= Self::FIRST_OF_GEOMETRY
    }

    /// As it is written in studies' folders and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MoveCycles => "move-cycles",
            Self::MispredictedBranch => "mispredicted-branch",
            Self::MispredictedReturn => "mispredicted-return",
            Self::MispredictedJump => "mispredicted-jump",
            Self::SecondTlb => "tlb-l2",
            Self::Walk => "tlb-walk",
            Self::Cr3Write => "mov-cr3",
            Self::ControlWrite => "mov-cr",
            Self::WriteMsr => "wrmsr",
            Self::ReadMsr => "rdmsr",
            Self::InvalidatePage => "invlpg",
            Self::Fence => "fence",
            Self::Syscall => "syscall",
            Self::Sysret => "sysret",
            Self::InterruptReturn => "iret",
            Self::Swapgs => "swapgs",
            Self::Locked => "locked",
            Self::Divide => "div",
            Self::Cpuid => "cpuid",
            Self::Pause => "pause",
            Self::ReadTsc => "rdtsc",
            Self::UserAccess => "stac-clac",
            Self::SetFlags => "popf",
            Self::Unrolled => "unrolled",
            Self::UnrolledWord => "unrolled-word",
            Self::FetchL2 => "fetch-l2",
            Self::FetchLast => "fetch-llc",
            Self::FetchMemory => "fetch-memory",
            Self::DataL2 => "data-l2",
            Self::DataLast => "data-llc",
            Self::DataMemory => "data-memory",
            Self::StoreL2 => "store-l2",
            Self::StoreLast => "store-llc",
            Self::StoreMemory => "store-memory",
            Self::StreamL2 => "stream-l2",
            Self::StreamLast => "stream-llc",
            Self::StreamMemory => "stream-memory",
            Self::MoveL2 => "move-l2",
            Self::MoveLast => "move-llc",
            Self::MoveMemory => "move-memory",
            Self::WalkL2 => "walk-l2",
            Self::WalkLast => "walk-llc",
            Self::WalkMemory => "walk-memory",
            Self::Remote => "remote-memory",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_their_own_places_and_names() {
        for (n, event) in Event::ALL.into_iter().enumerate() {
            assert_eq!(event as usize, n);
            assert_eq!(Event::ALL.iter().filter(|e| e.name() == event.name()).count(), 1);
        }
        assert_eq!(Event::Remote.at(0) + 1, Event::FetchL2.at(1));
        assert_eq!(Event::Walk.at(0), Event::Walk.at(1));
    }
}
