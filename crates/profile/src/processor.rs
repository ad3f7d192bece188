//! A modelled core: caches of each [`Geometry`], TLBs, and a predictor, and the [`Event`]s that instructions and accesses cause in them.
//!
//! One walk through the TLBs and the predictor serves all geometries. Neither prefetches nor the order in which a processor executes change what is in the
//! caches: a line that a prefetcher would have asked for is missed here, and counted apart.
//!
//! Invariant: what is counted depends on the guest's instructions, addresses and page tables alone.

use crate::cache::Cache;
use crate::events::Event;
use crate::geometry::{Geometry, LINE};
use crate::instruction::End;
use crate::page_table::Walk;
use crate::predictor::Predictor;
use crate::shape::Shape;
use crate::tlb::{Found, Of, Page, Tlbs, Translation};

/// Counts in a row.
pub(crate) const COUNTS: usize = Event::FIRST_OF_GEOMETRY + Geometry::ALL.len() * Event::OF_GEOMETRY;

/// The counts of an address.
pub(crate) type Row = [u64; COUNTS];

/// Streams that are followed.
const STREAMS: usize = 32;

/// What a core works in: page tables, registers, and counts by place ([`Event::at`]).
pub(crate) trait World {
    fn walk(&mut self, address: u64) -> Option<Walk>;
    fn register(&mut self, number: u8) -> u64;
    fn count(&mut self, place: usize);
}

/// Sets of every first-level cache. Their numbers are the same in virtual and physical addresses.
const SETS: usize = Geometry::LARGEST.l1_data.sets;

/// Ways of a geometry in L1 by side. What it holds is at the front of the lists of larger ones.
const fn l1_ways(geometry: Geometry) -> [usize; 2] {
    [geometry.l1_instructions.ways, geometry.l1_data.ways]
}

const SMALL_L1: [usize; 2] = l1_ways(Geometry::SMALLEST);
const SMALL_L2: usize = Geometry::SMALLEST.l2.ways;

/// The line that was used last in a set of all geometries: by its virtual number, and the key of its page in the TLB. Using it again changes nothing.
#[derive(Clone, Copy)]
struct Latest {
    line: u64,
    key: u64,
}

/// A core.
pub(crate) struct Core {
    /// Of the largest geometry; L1 of instructions and of data.
    l1: [Cache; 2],
    l2: Cache,
    /// The line that was missed last in a page, by the page's number; 0 is none.
    streams: [u64; STREAMS],
    tlbs: Tlbs,
    predictor: Predictor,
    /// Of instructions and of data.
    latest: [[Latest; SETS]; 2],
    /// The line of instructions that was used last.
    last_fetch: u64,
    /// The node whose memory is near.
    pub(crate) node: u64,
}

/// What all cores share.
pub(crate) struct Shared {
    last: [Cache; Geometry::ALL.len()],
    /// Bytes of a NUMA node's memory; 0 if there is one node.
    pub(crate) node_bytes: u64,
}

impl Shared {
    pub(crate) fn new(node_bytes: u64) -> Option<Self> {
        let [a, b, c] = Geometry::ALL;
        Some(Self { last: [Cache::new(a.last)?, Cache::new(b.last)?, Cache::new(c.last)?], node_bytes })
    }
}

/// Why a line is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Instructions,
    Data,
    Store,
    /// Data that a repeated move reads or writes.
    Move,
    PageTable,
}

impl Need {
    /// Of the TLB, and of the first-level cache.
    fn side(self) -> Of {
        if self == Need::Instructions { Of::Instructions } else { Of::Data }
    }
}

impl Core {
    /// `None` without memory.
    pub(crate) fn new() -> Option<Self> {
        let Geometry { l1_instructions, l1_data, l2, .. } = Geometry::LARGEST;
        Some(Self {
            l1: [Cache::new(l1_instructions)?, Cache::new(l1_data)?],
            l2: Cache::new(l2)?,
            streams: [0; STREAMS],
            tlbs: Tlbs::new()?,
            predictor: Predictor::new()?,
            latest: [[Latest { line: u64::MAX, key: 0 }; SETS]; 2],
            last_fetch: u64::MAX,
            node: 0,
        })
    }

    /// Forgets which pages there are.
    pub(crate) fn forget_pages(&mut self) {
        self.tlbs.forget_all();
        self.last_fetch = u64::MAX;
    }

    /// Whether a missed line of data follows one that was missed in its page before.
    fn follows(&mut self, line: u64) -> bool {
        let page = line / (4096 / LINE);
        let last = core::mem::replace(&mut self.streams[page as usize % STREAMS], line);
        last != 0 && last.abs_diff(line) <= 2 && last / (4096 / LINE) == page
    }

    /// Uses the line at a physical address.
    ///
    /// L2 is asked where the smallest L1 misses, and the last level where the smallest L2 does, in all geometries: a larger one's lists then have some uses
    /// that it would not have seen.
    fn line(&mut self, shared: &mut Shared, world: &mut impl World, address: u64, need: Need) {
        let (line, side) = (address / LINE, need.side() as usize);
        let at_l1 = self.l1[side].touch(line);
        if at_l1.is_some_and(|at| at < SMALL_L1[side]) {
            return;
        }
        let [l2, last, memory] = match need {
            Need::Instructions => [Event::FetchL2, Event::FetchLast, Event::FetchMemory],
            Need::Data | Need::Store if self.follows(line) => [Event::StreamL2, Event::StreamLast, Event::StreamMemory],
            Need::Data => [Event::DataL2, Event::DataLast, Event::DataMemory],
            Need::Store => [Event::StoreL2, Event::StoreLast, Event::StoreMemory],
            Need::Move => [Event::MoveL2, Event::MoveLast, Event::MoveMemory],
            Need::PageTable => [Event::WalkL2, Event::WalkLast, Event::WalkMemory],
        };
        let at_l2 = self.l2.touch(line);
        let is_small_l2 = at_l2.is_some_and(|at| at < SMALL_L2);
        for (n, geometry) in Geometry::ALL.iter().enumerate() {
            let in_last = !is_small_l2 && shared.last[n].touch(line).is_some();
            if at_l1.is_some_and(|at| at < l1_ways(*geometry)[side]) {
                continue;
            }
            if at_l2.is_some_and(|at| at < geometry.l2.ways) {
                world.count(l2.at(n));
            } else if in_last {
                world.count(last.at(n));
            } else {
                world.count(memory.at(n));
                if shared.node_bytes != 0 && address / shared.node_bytes != self.node {
                    world.count(Event::Remote.at(n));
                }
            }
        }
    }

    /// Finds the page of an address.
    fn translate(&mut self, shared: &mut Shared, world: &mut impl World, of: Of, address: u64) -> Translation {
        match self.tlbs.find(of, address) {
            Found::First(page) => return page,
            Found::Second(page) => {
                world.count(Event::SecondTlb as usize);
                return page;
            }
            Found::Nowhere => {}
        }
        world.count(Event::Walk as usize);
        // Without page tables, as in the firmware, an address is its own.
        let Some(Walk { page, last, above }) = world.walk(address) else {
            let page = Translation { size: Page::Small, base: address & !0xfff & 0x0000_ffff_ffff_ffff };
            self.tlbs.learn(of, address, page);
            return page;
        };
        for (at, read) in [
            (above, page.size == Page::Small && self.tlbs.walker.touch(address >> Page::Large as u32).is_none()),
            (last, true),
        ] {
            if read {
                self.line(shared, world, at, Need::PageTable);
                self.latest[Of::Data as usize][(at / LINE) as usize % SETS].line = u64::MAX;
            }
        }
        self.tlbs.learn(of, address, page);
        page
    }

    /// Uses the line of a virtual address.
    #[inline]
    pub(crate) fn touch(&mut self, shared: &mut Shared, world: &mut impl World, address: u64, need: Need) {
        let (line, of) = (address / LINE, need.side());
        let latest = self.latest[of as usize][line as usize % SETS];
        if latest.line != line || !self.tlbs.was_last(of, latest.key) {
            self.touch_another(shared, world, address, need);
        }
    }

    fn touch_another(&mut self, shared: &mut Shared, world: &mut impl World, address: u64, need: Need) {
        let (line, of) = (address / LINE, need.side());
        let page = self.translate(shared, world, of, address);
        self.line(shared, world, page.physical(address), need);
        self.latest[of as usize][line as usize % SETS] = Latest { line, key: self.tlbs.key(address, page.size) };
    }

    /// Uses the lines from one virtual address to another.
    #[inline]
    pub(crate) fn touch_all(
        &mut self,
        shared: &mut Shared,
        world: &mut impl World,
        (first, last): (u64, u64),
        need: Need,
    ) {
        self.touch(shared, world, first, need);
        for line in first / LINE + 1..=last / LINE {
            self.touch(shared, world, line * LINE, need);
        }
    }

    /// Uses the lines of a block's instructions.
    #[inline]
    pub(crate) fn fetch(&mut self, shared: &mut Shared, world: &mut impl World, (first, last): (u64, u64)) {
        if first / LINE != self.last_fetch || last / LINE != self.last_fetch {
            self.touch_all(shared, world, (first, last), Need::Instructions);
            self.last_fetch = last / LINE;
        }
    }

    /// The guest executes the block that begins at `start` after that one.
    #[inline]
    pub(crate) fn arrive(&mut self, world: &mut impl World, before: &Shape, start: u64) {
        let Shape { end, at: address, next, .. } = *before;
        let (event, predicted) = match end {
            End::Other | End::Repeated | End::Jump => return,
            // An interrupt goes to neither.
            End::Branch(target) if start == next || start == target => {
                (Event::MispredictedBranch, self.predictor.branch(address, start != next))
            }
            End::Branch(_) => return,
            End::Call => return self.predictor.call(next),
            End::IndirectCall => {
                self.predictor.call(next);
                (Event::MispredictedJump, self.predictor.jump(address, start))
            }
            End::IndirectJump => (Event::MispredictedJump, self.predictor.jump(address, start)),
            End::Return => (Event::MispredictedReturn, self.predictor.ret(start)),
            End::Cr3 | End::Control | End::Invalidate(_) => {
                self.last_fetch = u64::MAX;
                match end {
                    End::Cr3 => self.tlbs.switch(),
                    End::Invalidate(number) => self.tlbs.invalidate(world.register(number)),
                    _ => self.tlbs.forget_all(),
                }
                return;
            }
        };
        if !predicted {
            world.count(event as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl World for (Page, Box<Row>) {
        fn walk(&mut self, address: u64) -> Option<Walk> {
            let (size, table) = (self.0, 1 << 40);
            Some(Walk {
                page: Translation { size, base: address >> (size as u32) << (size as u32) },
                last: table + (address >> size as u32) * 8,
                above: table + (1 << 38) + (address >> 21) * 8,
            })
        }

        fn register(&mut self, _number: u8) -> u64 {
            0
        }

        fn count(&mut self, place: usize) {
            self.1[place] += 1;
        }
    }

    /// A machine whose virtual addresses are physical, in pages of 4 KiB or 2 MiB, with page tables at 1 TiB.
    struct Machine {
        core: Core,
        shared: Shared,
        world: (Page, Box<Row>),
    }

    impl Machine {
        fn new(size: Page) -> Self {
            let (core, shared) = (Core::new().unwrap(), Shared::new(0).unwrap());
            Self { core, shared, world: (size, Box::new([0; COUNTS])) }
        }

        fn access(&mut self, address: u64, bytes: u64, need: Need) {
            self.core.touch_all(&mut self.shared, &mut self.world, (address, address + bytes - 1), need);
        }

        /// The counts of a round over `bytes`, one access each `step` bytes, after a first round.
        fn round(&mut self, bytes: u64, step: u64) -> Box<Row> {
            for _ in 0..2 {
                self.world.1.fill(0);
                // Backwards and forwards by an odd stride, so that nothing is a stream.
                let n = bytes / step;
                (0..n).for_each(|k| self.access((1 << 30) + (k * 37 + k / n) % n * step, 8, Need::Data));
            }
            self.world.1.clone()
        }
    }

    #[test]
    fn a_working_set_is_found_where_it_fits() {
        for (bytes, from) in [
            (16 << 10, None),
            (256 << 10, Some(Event::DataL2)),
            (4 << 20, Some(Event::DataLast)),
            (64 << 20, Some(Event::DataMemory)),
        ] {
            let row = Machine::new(Page::Large).round(bytes, LINE);
            for geometry in 0..Geometry::ALL.len() {
                for event in [Event::DataL2, Event::DataLast, Event::DataMemory] {
                    let share = row[event.at(geometry)] as f64 / (bytes / LINE) as f64;
                    let due = if Some(event) == from { 1.0 } else { 0.0 };
                    assert!((share - due).abs() < 0.05, "{event:?} of {bytes} in {geometry}: {share}");
                }
            }
        }
    }

    #[test]
    fn large_pages_spare_walks() {
        let walks = |size| Machine::new(size).round(32 << 20, 4096)[Event::Walk as usize];
        assert_eq!((walks(Page::Small), walks(Page::Large)), (8192, 0));
        let second = |size| Machine::new(size).round(4 << 20, 4096)[Event::SecondTlb as usize];
        assert_eq!((second(Page::Small), second(Page::Large)), (1024, 0));
    }

    #[test]
    fn a_scan_is_a_stream_and_a_move_is_a_move() {
        let mut machine = Machine::new(Page::Small);
        (0..512 << 10).step_by(8).for_each(|at| machine.access(1 << 30 | at, 8, Need::Data));
        let (stream, random) = (machine.world.1[Event::StreamMemory.at(0)], machine.world.1[Event::DataMemory.at(0)]);
        assert_eq!(stream + random, (512 << 10) / LINE);
        assert_eq!(random, 128, "the first line of each page");
        machine.access(1 << 31, 4096, Need::Move);
        assert_eq!(machine.world.1[Event::MoveMemory.at(1)], 64);
        machine.access(1 << 33, 8, Need::Store);
        assert_eq!((machine.world.1[Event::StoreMemory.at(0)], machine.world.1[Event::DataMemory.at(0)]), (1, random));
        // Two lines, two pages.
        machine.world.1.fill(0);
        machine.access((1 << 32) - 4, 8, Need::Data);
        assert_eq!((machine.world.1[Event::DataMemory.at(0)], machine.world.1[Event::Walk as usize]), (2, 2));
    }

    #[test]
    fn memory_of_another_node_is_remote() {
        let mut machine = Machine::new(Page::Large);
        machine.shared.node_bytes = 1 << 30;
        machine.access(1 << 30, 8, Need::Data);
        machine.access(1 << 20, 8, Need::Data);
        // The page tables are beyond both nodes: two entries, and one that was kept.
        assert_eq!(machine.world.1[Event::Remote.at(0)], 1 + 2);
    }

    #[test]
    fn instructions_have_a_cache_of_their_own() {
        let mut machine = Machine::new(Page::Small);
        let mut fetch = |first: u64, last: u64| {
            machine.world.1.fill(0);
            machine.core.fetch(&mut machine.shared, &mut machine.world, (first, last));
            [Event::FetchMemory, Event::FetchL2].map(|event| machine.world.1[event.at(0)])
        };
        assert_eq!(fetch(0x40_0000, 0x40_003f), [1, 0]);
        assert_eq!(fetch(0x40_0030, 0x40_0041), [1, 0]);
        assert_eq!(fetch(0x40_0041, 0x40_0050), [0, 0]);
        assert_eq!(fetch(0x40_0000, 0x40_0050), [0, 0]);
        // 33 KiB further, the first line is in L2.
        for line in 1..=528 {
            fetch(0x40_0000 + line * LINE, 0x40_0000 + line * LINE);
        }
        assert_eq!(fetch(0x40_0000, 0x40_0001), [0, 1]);
    }

    /// A block of an instruction of five bytes that ends so.
    fn ended(end: End) -> Shape {
        let mut shape = Shape::new(0x1000);
        shape.add(0x1000, &[0; 5], 0);
        shape.end = end;
        shape
    }

    #[test]
    fn pages_are_invalidated_whether_or_not_the_core_is_modelled() {
        let walks = |end: Option<End>, seen: bool| {
            let mut machine = Machine::new(Page::Small);
            machine.access(0x1000, 8, Need::Data);
            machine.world.1.fill(0);
            if let Some(end) = end.filter(|end| seen || end.invalidates()) {
                machine.core.arrive(&mut machine.world, &ended(end), 0);
            }
            machine.access(0x1000, 8, Need::Data);
            machine.world.1[Event::Walk as usize]
        };
        for seen in [true, false] {
            assert_eq!(walks(None, seen), 0);
            assert_eq!(walks(Some(End::Call), seen), 0);
            assert_eq!([End::Cr3, End::Control].map(|end| walks(Some(end), seen)), [1, 1]);
            // The register of these tests is 0.
            assert_eq!(walks(Some(End::Invalidate(3)), seen), 0);
        }
        let mut machine = Machine::new(Page::Small);
        machine.access(0x1000, 8, Need::Data);
        machine.core.forget_pages();
        machine.access(0x1000, 8, Need::Data);
        assert_eq!(machine.world.1[Event::Walk as usize], 2);
    }

    #[test]
    fn mispredictions_are_counted_where_control_arrives() {
        let (mut core, mut world) = (Core::new().unwrap(), (Page::Small, Box::new([0; COUNTS])));
        let mut go = |end, to| {
            core.arrive(&mut world, &ended(end), to);
        };
        go(End::Call, 0x2000);
        go(End::Return, 0x1005);
        // A retpoline's return.
        go(End::Call, 0x2000);
        go(End::Return, 0x3000);
        go(End::IndirectJump, 0x4000);
        go(End::IndirectJump, 0x4000);
        // First seen, and not taken; an interrupt.
        go(End::Branch(0x5000), 0x1005);
        go(End::Branch(0x5000), 0x9000);
        go(End::Branch(0x5000), 0x5000);
        let missed = [Event::MispredictedReturn, Event::MispredictedJump, Event::MispredictedBranch]
            .map(|e| world.1[e as usize]);
        assert_eq!(missed, [1, 1, 1]);
    }
}
