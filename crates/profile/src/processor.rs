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
use crate::tlb::{Found, Of, Page, Tlbs, Translation};

/// Counts in a row.
pub(crate) const COUNTS: usize = Event::FIRST_OF_GEOMETRY + Geometry::ALL.len() * Event::OF_GEOMETRY;

/// The counts of an address.
pub(crate) type Row = [u64; COUNTS];

/// Streams that are followed.
const STREAMS: usize = 32;

/// What a core has of its own in one geometry.
struct Private {
    l1: [Cache; 2],
    l2: Cache,
    /// The line that was missed last in a page, by the page's number; 0 is none.
    streams: [u64; STREAMS],
}

/// A core.
pub(crate) struct Core {
    private: [Private; Geometry::ALL.len()],
    tlbs: Tlbs,
    predictor: Predictor,
    last_fetch: u64,
    /// The block executed last: how it ended, where its last instruction begins, and where the next instruction would be.
    pub(crate) ended: (End, u64, u64),
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
        let [a, b] = Geometry::ALL;
        Some(Self { last: [Cache::new(a.last)?, Cache::new(b.last)?], node_bytes })
    }
}

/// Why a line is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Instructions,
    Data,
    /// Data that a repeated move reads or writes.
    Move,
    PageTable,
}

impl Private {
    fn new(geometry: Geometry) -> Option<Self> {
        Some(Self {
            l1: [Cache::new(geometry.l1_instructions)?, Cache::new(geometry.l1_data)?],
            l2: Cache::new(geometry.l2)?,
            streams: [0; STREAMS],
        })
    }

    /// Whether a missed line of data follows one that was missed in its page before.
    fn follows(&mut self, line: u64) -> bool {
        let page = line / (4096 / LINE);
        let last = core::mem::replace(&mut self.streams[page as usize % STREAMS], line);
        last != 0 && last.abs_diff(line) <= 2 && last / (4096 / LINE) == page
    }
}

impl Core {
    /// `None` without memory.
    pub(crate) fn new() -> Option<Self> {
        let [a, b] = Geometry::ALL;
        Some(Self {
            private: [Private::new(a)?, Private::new(b)?],
            tlbs: Tlbs::new()?,
            predictor: Predictor::new()?,
            last_fetch: 0,
            ended: (End::Other, 0, 0),
            node: 0,
        })
    }

    /// Forgets which pages there are.
    pub(crate) fn forget_pages(&mut self) {
        self.tlbs.forget_all();
    }

    /// Uses the line at a physical address.
    #[inline]
    pub(crate) fn line(&mut self, shared: &mut Shared, row: &mut Row, address: u64, need: Need) {
        let line = address / LINE;
        let [l2, last, memory] = match need {
            Need::Instructions => [Event::FetchL2, Event::FetchLast, Event::FetchMemory],
            Need::Data => [Event::DataL2, Event::DataLast, Event::DataMemory],
            Need::Move => [Event::MoveL2, Event::MoveLast, Event::MoveMemory],
            Need::PageTable => [Event::WalkL2, Event::WalkLast, Event::WalkMemory],
        };
        for (n, private) in self.private.iter_mut().enumerate() {
            if private.l1[usize::from(need != Need::Instructions)].touch(line) {
                continue;
            }
            let [l2, last, memory] = match need == Need::Data && private.follows(line) {
                true => [Event::StreamL2, Event::StreamLast, Event::StreamMemory],
                false => [l2, last, memory],
            };
            if private.l2.touch(line) {
                row[l2.at(n)] += 1;
            } else if shared.last[n].touch(line) {
                row[last.at(n)] += 1;
            } else {
                row[memory.at(n)] += 1;
                if shared.node_bytes != 0 && address / shared.node_bytes != self.node {
                    row[Event::Remote.at(n)] += 1;
                }
            }
        }
    }

    /// Finds the page of an address; `walk` reads the page tables.
    #[inline]
    pub(crate) fn translate(
        &mut self,
        shared: &mut Shared,
        row: &mut Row,
        (of, address): (Of, u64),
        walk: &mut dyn FnMut(u64) -> Option<Walk>,
    ) -> Translation {
        match self.tlbs.find(of, address) {
            Found::First(page) => page,
            Found::Second(page) => {
                row[Event::SecondTlb as usize] += 1;
                page
            }
            Found::Nowhere => self.walk(shared, row, (of, address), walk),
        }
    }

    #[cold]
    fn walk(
        &mut self,
        shared: &mut Shared,
        row: &mut Row,
        (of, address): (Of, u64),
        walk: &mut dyn FnMut(u64) -> Option<Walk>,
    ) -> Translation {
        row[Event::Walk as usize] += 1;
        // Without page tables, as in the firmware, an address is its own.
        let Some(Walk { page, last, above }) = walk(address) else {
            let page = Translation { size: Page::Small, base: address & !0xfff & 0x0000_ffff_ffff_ffff };
            self.tlbs.learn(of, address, page);
            return page;
        };
        if page.size == Page::Small && !self.tlbs.walker.touch(address >> Page::Large as u32) {
            self.line(shared, row, above, Need::PageTable);
        }
        self.line(shared, row, last, Need::PageTable);
        self.tlbs.learn(of, address, page);
        page
    }

    /// Fetches the lines of instructions between two addresses of a page.
    #[inline]
    pub(crate) fn fetch(
        &mut self,
        shared: &mut Shared,
        row: &mut Row,
        (from, to): (u64, u64),
        walk: &mut dyn FnMut(u64) -> Option<Walk>,
    ) {
        let page = self.translate(shared, row, (Of::Instructions, from), walk);
        for line in page.physical(from) / LINE..=page.physical(to) / LINE {
            if line != self.last_fetch {
                self.last_fetch = line;
                self.line(shared, row, line * LINE, Need::Instructions);
            }
        }
    }

    /// Reads or writes `bytes` at an address, within a page or a little beyond it.
    #[inline]
    pub(crate) fn access(
        &mut self,
        shared: &mut Shared,
        row: &mut Row,
        (address, bytes, need): (u64, u64, Need),
        walk: &mut dyn FnMut(u64) -> Option<Walk>,
    ) {
        let page = self.translate(shared, row, (Of::Data, address), walk);
        let last = address + bytes - 1;
        let first_line = page.physical(address) / LINE;
        // What lies on another page is of another translation.
        let in_page = last.min(address | ((1 << page.size as u32) - 1));
        for line in first_line..=page.physical(in_page) / LINE {
            self.line(shared, row, line * LINE, need);
        }
        if in_page != last {
            let page = self.translate(shared, row, (Of::Data, last), walk);
            self.line(shared, row, page.physical(last), need);
        }
    }

    /// The guest executes the block that begins at `start`: settles how the block before has ended. `register` reads one of the guest's.
    #[inline]
    pub(crate) fn arrive(&mut self, row: &mut Row, start: u64, register: impl Fn(u8) -> u64) {
        let (end, address, next) = self.ended;
        let predicted = match end {
            End::Other | End::Jump => return,
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
            End::Cr3 => return self.tlbs.switch(),
            End::Control => return self.tlbs.forget_all(),
            End::Invalidate(number) => return self.tlbs.invalidate(register(number)),
        };
        if let (event, false) = predicted {
            row[event as usize] += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine whose virtual addresses are physical, in pages of 4 KiB or 2 MiB, with page tables at 1 TiB.
    struct Machine {
        core: Core,
        shared: Shared,
        row: Box<Row>,
        size: Page,
    }

    impl Machine {
        fn new(size: Page) -> Self {
            let (core, shared) = (Core::new().unwrap(), Shared::new(0).unwrap());
            Self { core, shared, row: Box::new([0; COUNTS]), size }
        }

        fn access(&mut self, address: u64, bytes: u64, need: Need) {
            let size = self.size;
            let mut walk = |address: u64| {
                let page = Translation { size, base: address >> (size as u32) << (size as u32) };
                let table = 1 << 40;
                Some(Walk {
                    page,
                    last: table + (address >> size as u32) * 8,
                    above: table + (1 << 38) + (address >> 21) * 8,
                })
            };
            self.core.access(&mut self.shared, &mut self.row, (address, bytes, need), &mut walk);
        }

        /// The counts of a round over `bytes`, one access each `step` bytes, after a first round.
        fn round(&mut self, bytes: u64, step: u64) -> Box<Row> {
            for _ in 0..2 {
                self.row.fill(0);
                // Backwards and forwards by an odd stride, so that nothing is a stream.
                let n = bytes / step;
                (0..n).for_each(|k| self.access((1 << 30) + (k * 37 + k / n) % n * step, 8, Need::Data));
            }
            self.row.clone()
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
            for geometry in 0..2 {
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
        let (stream, random) = (machine.row[Event::StreamMemory.at(0)], machine.row[Event::DataMemory.at(0)]);
        assert_eq!(stream + random, (512 << 10) / LINE);
        assert_eq!(random, 128, "the first line of each page");
        machine.access(1 << 31, 4096, Need::Move);
        assert_eq!(machine.row[Event::MoveMemory.at(1)], 64);
        // Two lines, two pages.
        machine.row.fill(0);
        machine.access((1 << 32) - 4, 8, Need::Data);
        assert_eq!((machine.row[Event::DataMemory.at(0)], machine.row[Event::Walk as usize]), (2, 2));
    }

    #[test]
    fn memory_of_another_node_is_remote() {
        let mut machine = Machine::new(Page::Large);
        machine.shared.node_bytes = 1 << 30;
        machine.access(1 << 30, 8, Need::Data);
        machine.access(1 << 20, 8, Need::Data);
        // The page tables are beyond both nodes: two entries, and one that was kept.
        assert_eq!(machine.row[Event::Remote.at(0)], 1 + 2);
    }

    #[test]
    fn mispredictions_are_counted_where_control_arrives() {
        let (mut core, mut row) = (Core::new().unwrap(), [0; COUNTS]);
        let mut go = |end, to| {
            core.ended = (end, 0x1000, 0x1005);
            core.arrive(&mut row, to, |_| 0);
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
        let missed =
            [Event::MispredictedReturn, Event::MispredictedJump, Event::MispredictedBranch].map(|e| row[e as usize]);
        assert_eq!(missed, [1, 1, 1]);
    }
}
