//! Modelled cycles: what the instructions that a window executed would cost a processor, by the events that a model of its caches, TLBs and
//! predictions counted (crates/profile).
//!
//! An interval model (Eyerman, Eeckhout, Karkhanis, Smith: "A mechanistic performance model for superscalar out-of-order processors", TOCS 27(2), 2009):
//! instructions take the cycles that a pipeline without interruption takes, and each event adds its penalty.
//!
//! Invariant: counts come from the guest alone, so cycles repeat exactly; a set of penalties never changes, other penalties are another set.

use serde::{Deserialize, Serialize};

pub use bigiron_profile::events::Event;
pub use bigiron_profile::geometry::Geometry;

/// Counts in a function, by place ([`Event::at`]), none of them 0.
pub type Counts = Vec<(u8, u64)>;

/// A name for each place in [`Counts`]; written with them, so that later versions can read them.
pub fn places() -> Vec<String> {
    let mut names = vec![String::new(); Event::FIRST_OF_GEOMETRY + Geometry::ALL.len() * Event::OF_GEOMETRY];
    for event in Event::ALL {
        for (n, geometry) in Geometry::ALL.iter().enumerate() {
            names[event.at(n)] = match (event as usize) < Event::FIRST_OF_GEOMETRY {
                true => event.name().to_owned(),
                false => format!("{} {}", event.name(), geometry.name),
            };
        }
    }
    names
}

/// What cycles are spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Component {
    /// Instructions in the pipeline.
    Instructions,
    /// `rep movs` and `rep stos`.
    Moves,
    /// Lines of instructions that were not in L1.
    Fetch,
    Mispredictions,
    /// Lines of data that were not in L1.
    Data,
    Tlb,
    /// Instructions that the pipeline cannot hide: privileged, locked, serialising.
    Special,
}

impl Component {
    pub const ALL: [Self; 7] =
        [Self::Instructions, Self::Moves, Self::Fetch, Self::Mispredictions, Self::Data, Self::Tlb, Self::Special];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Instructions => "instructions",
            Self::Moves => "moves",
            Self::Fetch => "instruction fetch",
            Self::Mispredictions => "mispredictions",
            Self::Data => "data",
            Self::Tlb => "TLB",
            Self::Special => "special instructions",
        }
    }

    pub const fn of(event: Event) -> Self {
        match event {
            Event::MoveCycles => Self::Moves,
            Event::Unrolled | Event::UnrolledWord => Self::Instructions,
            Event::MispredictedBranch | Event::MispredictedReturn | Event::MispredictedJump => Self::Mispredictions,
            Event::SecondTlb | Event::Walk | Event::WalkL2 | Event::WalkLast | Event::WalkMemory => Self::Tlb,
            Event::FetchL2 | Event::FetchLast | Event::FetchMemory => Self::Fetch,
            Event::DataL2
            | Event::DataLast
            | Event::DataMemory
            | Event::StoreL2
            | Event::StoreLast
            | Event::StoreMemory
            | Event::StreamL2
            | Event::StreamLast
            | Event::StreamMemory
            | Event::MoveL2
            | Event::MoveLast
            | Event::MoveMemory
            | Event::Remote => Self::Data,
            _ => Self::Special,
        }
    }
}

/// A processor's penalties.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Processor {
    pub name: &'static str,
    pub ghz: f64,
    /// Index into [`Geometry::ALL`].
    geometry: usize,
    /// Cycles of an instruction where nothing interrupts the pipeline.
    instruction: f64,
    /// Cycles of a word that unrolled code moves ([`Event::UnrolledWord`]): its stores are what such code waits for.
    word: f64,
    /// Cycles of a repeated move for each that the exact clock has charged.
    moves: f64,
    /// Cycles until data comes from L2, the last level, and memory, beyond a hit in L1.
    latency: [f64; 3],
    /// The parts of these that execution out of order does not hide.
    exposed: [f64; 3],
    /// Cycles until a store has the line that it missed, which execution does not wait for: the store buffer does.
    store: [f64; 3],
    /// Cycles for each line of a stream that was prefetched; none without a prefetcher.
    stream: Option<[f64; 3]>,
    /// Cycles of a misprediction.
    mispredicted: f64,
    /// Cycles of an entry of the second-level TLB, and of a walk whose lines are in L1.
    tlb: [f64; 2],
    /// Cycles more until a line comes from another node.
    remote: f64,
    /// Instructions that the pipeline cannot hide.
    special: Special,
}

/// Cycles of instructions that the pipeline cannot hide.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Special {
    locked: f64,
    divide: f64,
    pause: f64,
    fence: f64,
    read_tsc: f64,
    set_flags: f64,
}

impl Special {
    /// Measured on an AMD EPYC beside a chain of 1,000 additions of a cycle each, best of 400: `lock xadd` 8, `lock cmpxchg` 9, `xchg` with memory 8,
    /// `div` 9, `pause` 90, `lfence` 17, `rdtsc` 35, `pushf` with `popf` 20.
    const EPYC: Self = Self { locked: 8.0, divide: 9.0, pause: 90.0, fence: 17.0, read_tsc: 35.0, set_flags: 20.0 };

    /// `pause` up to 140 ("Intel 64 and IA-32 Architectures Optimization Reference Manual", Skylake and later); the others by uops.info, Ice Lake: `lock
    /// xadd` 18, `div r64` 15, `rdtsc` 25, `popf` 20; `lfence` as the EPYC.
    const ICE_LAKE: Self =
        Self { locked: 18.0, divide: 15.0, pause: 140.0, fence: 17.0, read_tsc: 25.0, set_flags: 20.0 };

    /// Measured by benches/processor on an EPYC of family 26 beside a chain of additions, which hides most of them: `pause` 33 to 51, `lfence` 13 to 15,
    /// the others 0 to 2.
    const TURIN: Self = Self { locked: 2.0, divide: 2.0, pause: 36.0, fence: 15.0, read_tsc: 2.0, set_flags: 2.0 };
}

/// Cycles of privileged instructions, which a program cannot measure, in every set.
fn privileged(event: Event) -> f64 {
    match event {
        // 79 to enter the kernel and 71 to leave it: Soares, Stumm: "FlexSC", OSDI 2010, section 2.1.
        Event::Syscall => 79.0,
        Event::Sysret => 71.0,
        // "A move to CR3 is on the order of a hundred cycles": the kernel's Documentation/arch/x86/pti.rst; CR4 is taken to be as slow.
        Event::Cr3Write | Event::ControlWrite => 100.0,
        // "Each single flush is about 100 ns": the kernel's arch/x86/mm/tlb.c, at 3.3 GHz.
        Event::InvalidatePage => 330.0,
        // Microcode that serialises, as `mov` to CR3: taken to be as slow. `rdmsr` does not serialise: as `rdtsc`.
        Event::WriteMsr => 100.0,
        Event::ReadMsr => 35.0,
        // Five words from the stack, and segments loaded in microcode, without prediction: taken as twice `sysret`.
        Event::InterruptReturn => 142.0,
        // Without virtualisation; serialises as `wrmsr`.
        Event::Cpuid => 100.0,
        // An exchange with an MSR that no program can read: taken as `lfence`, which the kernel puts behind it.
        Event::Swapgs => 17.0,
        // `stac` and `clac` stop loads and stores around them: taken as a locked operation.
        Event::UserAccess => 8.0,
        _ => 0.0,
    }
}

/// Cycles of a store that misses. Measured on an AMD EPYC by benches/store-misses: stores to random lines of 256 KiB, 4 MiB and 256 MiB in large pages,
/// single ones and four at a time, before chains of 16 to 400 dependent additions, made these 0 to 0.7, 0 to 0.7, and 0.1 to 6.2 cycles a store slower.
const STORE: [f64; 3] = [0.5, 0.5, 3.0];

/// AMD EPYC "Rome" at 3.3 GHz. L2 13 cycles, last level 34 (7-cpu.com, Zen 2; a hit in L1 takes 4), memory 113 ns (AnandTech 14694). A misprediction
/// 17: a retpoline took 22 cycles on an EPYC, a call and a return that were predicted 3, and the kernel's safe return 20. An instruction half a
/// cycle: four to six are dispatched, and dependences leave about two; an argued figure, not a measured one. A word is stored in a cycle (Zen 2's
/// software optimization guide, 56305, section 2.12). Of an L2 hit a window of 224 instructions hides nearly all, of a miss to memory little. A
/// prefetched line takes what its transfer takes: 64 bytes at 32 a cycle from L2, at about 10 from the last level, at 20 GB/s from memory.
const ROME: Processor = Processor {
    name: "rome-like",
    ghz: 3.3,
    geometry: 0,
    instruction: 0.5,
    word: 1.0,
    moves: 1.0,
    latency: [9.0, 30.0, 370.0],
    exposed: [0.3, 0.6, 0.8],
    store: STORE,
    stream: Some([2.0, 6.0, 11.0]),
    mispredicted: 17.0,
    tlb: [7.0, 12.0],
    remote: 230.0,
    special: Special::EPYC,
};

/// Intel Xeon "Ice Lake-SP" at 3.4 GHz. L2 14 cycles, last level 70 (the mesh of a server part), memory 100 ns; a hit in L1 takes 5 (7-cpu.com; Chips
/// and Cheese). Five instructions are dispatched in a cycle instead of Rome's four to six. Two words can be stored in a cycle; on an EPYC that stores
/// as many, unrolled loops took 6.1 cycles to copy a line and 4.1 to clear one (benches/model-moves): taken between. A line comes from L2 at 48 bytes
/// a cycle (Intel's optimization manual, "Cache parameters of the Ice Lake client microarchitecture": sustained). Another node is 60 ns away.
const ICE_LAKE: Processor = Processor {
    name: "icelake-like",
    ghz: 3.4,
    geometry: 1,
    instruction: 0.4,
    word: 0.6,
    moves: 1.0,
    latency: [9.0, 65.0, 340.0],
    exposed: [0.3, 0.6, 0.8],
    store: STORE,
    stream: Some([1.3, 8.0, 13.0]),
    mispredicted: 17.0,
    tlb: [7.0, 12.0],
    remote: 200.0,
    special: Special::ICE_LAKE,
};

/// AMD EPYC "Turin" at 4.2 GHz. Measured by benches/processor on a virtual machine with one (family 26): a hit in L1 takes 5 cycles, L2 15, the last
/// level 53 to 57, memory 133 ns. A misprediction 20: a retpoline took 25 cycles, a call and a return that were predicted 5. Eight instructions are
/// dispatched in a cycle instead of Rome's four to six: a third of a cycle each, argued like Rome's figure. Two words can be stored in a cycle, as on
/// Ice Lake: unrolled loops took 4.1 cycles to copy a line, and as many to clear one. `rep movsb` of 1,024 bytes took 50 cycles, of 4,096 123, and
/// `rep stosb` 45 and 118; the clock charges 55 and 151. Lines of a stream from L2 and the last level, read by loops that do little else, took no
/// longer than those in L1, and `rep movsb` a fifth of a cycle and 1.2 cycles more for each line that it read or wrote; a stream's line from memory
/// took 4.7 cycles more. Another node is taken to be as far away as Rome's.
const TURIN: Processor = Processor {
    name: "turin-like",
    ghz: 4.2,
    geometry: 2,
    instruction: 0.33,
    word: 0.51,
    moves: 0.85,
    latency: [10.0, 50.0, 555.0],
    exposed: [0.3, 0.6, 0.8],
    store: STORE,
    stream: Some([0.2, 1.2, 4.7]),
    mispredicted: 20.0,
    tlb: [7.0, 12.0],
    remote: 290.0,
    special: Special::TURIN,
};

/// All sets, the first of them first in reports. Without a prefetcher a stream's lines are misses like others, which is the other bound. The pessimistic
/// one overlaps nothing.
pub const PROCESSORS: [Processor; 7] = [
    ROME,
    Processor { name: "rome-like, no prefetcher", stream: None, ..ROME },
    ICE_LAKE,
    Processor { name: "icelake-like, no prefetcher", stream: None, ..ICE_LAKE },
    TURIN,
    Processor { name: "turin-like, no prefetcher", stream: None, ..TURIN },
    Processor {
        name: "pessimistic",
        instruction: 1.0,
        word: 2.0,
        latency: [14.0, 70.0, 450.0],
        exposed: [1.0, 1.0, 1.0],
        store: [14.0, 70.0, 450.0],
        stream: None,
        mispredicted: 25.0,
        tlb: [10.0, 35.0],
        remote: 300.0,
        special: Special::ICE_LAKE,
        ..ROME
    },
];

impl Processor {
    /// Cycles that an event adds.
    pub fn penalty(&self, event: Event) -> f64 {
        let [l2, last, memory] = [0, 1, 2].map(|level| self.latency[level] * self.exposed[level]);
        let stream = self.stream.unwrap_or([l2, last, memory]);
        // A move's own loads overlap, whatever the prefetcher does.
        let moved = self.stream.or(ROME.stream).unwrap_or([l2, last, memory]);
        match event {
            Event::MoveCycles => self.moves,
            Event::UnrolledWord => self.word,
            Event::MispredictedBranch | Event::MispredictedReturn | Event::MispredictedJump => self.mispredicted,
            Event::SecondTlb => self.tlb[0],
            Event::Walk => self.tlb[1],
            // The front end waits for all of it, but runs ahead by what its queue holds: half an L2 hit.
            Event::FetchL2 => self.latency[0] * self.exposed[0].max(0.5),
            Event::FetchLast => self.latency[1],
            Event::FetchMemory => self.latency[2],
            Event::DataL2 => l2,
            Event::DataLast => last,
            Event::DataMemory => memory,
            Event::StoreL2 => self.store[0],
            Event::StoreLast => self.store[1],
            Event::StoreMemory => self.store[2],
            Event::StreamL2 => stream[0],
            Event::StreamLast => stream[1],
            Event::StreamMemory => stream[2],
            Event::MoveL2 => moved[0],
            Event::MoveLast => moved[1],
            Event::MoveMemory => moved[2],
            // Nothing goes on until the page is known.
            Event::WalkL2 => self.latency[0],
            Event::WalkLast => self.latency[1],
            Event::WalkMemory => self.latency[2],
            Event::Remote => self.remote,
            Event::Locked => self.special.locked,
            Event::Divide => self.special.divide,
            Event::Pause => self.special.pause,
            Event::Fence => self.special.fence,
            Event::ReadTsc => self.special.read_tsc,
            Event::SetFlags => self.special.set_flags,
            event => privileged(event),
        }
    }

    /// Cycles by component of code that executed `instructions`, which include a repeated move's charged cycles, and whose events are `count`.
    pub fn components(&self, instructions: f64, count: impl Fn(usize) -> f64) -> [f64; Component::ALL.len()] {
        let mut cycles = [0.0; Component::ALL.len()];
        // These have their own cycles below; those of unrolled code are its words.
        let apart = count(Event::MoveCycles as usize) + count(Event::Unrolled as usize);
        cycles[Component::Instructions as usize] = self.instruction * (instructions - apart).max(0.0);
        for event in Event::ALL {
            cycles[Component::of(event) as usize] += self.penalty(event) * count(event.at(self.geometry));
        }
        cycles
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_their_own_names() {
        let places = places();
        assert_eq!(places[Event::Walk as usize], "tlb-walk");
        assert_eq!(places[Event::DataMemory.at(1)], "data-memory icelake-like");
        assert!(places.iter().all(|p| !p.is_empty() && places.iter().filter(|q| *q == p).count() == 1));
    }

    #[test]
    fn cycles_are_instructions_and_penalties() {
        let counts = |at: usize| match at {
            at if at == Event::MoveCycles as usize => 100.0,
            at if at == Event::MispredictedReturn as usize => 2.0,
            at if at == Event::Unrolled as usize => 200.0,
            at if at == Event::UnrolledWord as usize => 80.0,
            at if at == Event::StreamMemory.at(0) => 4.0,
            at if at == Event::StreamMemory.at(1) => 1000.0,
            _ => 0.0,
        };
        let [with, without] = [0, 1].map(|set| PROCESSORS[set].components(1100.0, counts));
        assert_eq!(with, [400.0 + 80.0, 100.0, 0.0, 34.0, 44.0, 0.0, 0.0]);
        assert_eq!(without[Component::Data as usize], 4.0 * 370.0 * 0.8);
        let icelake = PROCESSORS[2].components(1100.0, counts);
        assert_eq!(icelake[Component::Data as usize], 13000.0);
    }

    #[test]
    fn no_event_is_free_and_the_pessimistic_set_is_the_dearest() {
        let [.., pessimistic] = PROCESSORS;
        // In nanoseconds: memory is as far away from a processor of a higher frequency.
        let time = |processor: &Processor, event| processor.penalty(event) / processor.ghz;
        // The words that unrolled code moves are all that it takes.
        for event in Event::ALL.into_iter().filter(|event| *event != Event::Unrolled) {
            for processor in &PROCESSORS {
                assert!(processor.penalty(event) > 0.0, "{event:?} {}", processor.name);
                let is_move = matches!(event, Event::MoveL2 | Event::MoveLast | Event::MoveMemory);
                // Measured: `lfence` and `rdtsc` are dearer on one than on another.
                let is_measured = Component::of(event) == Component::Special;
                assert!(is_move || is_measured || time(processor, event) <= time(&pessimistic, event), "{event:?}");
            }
        }
    }
}
