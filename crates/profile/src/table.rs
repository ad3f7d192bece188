//! Counters by address.
//!
//! Invariant: a counter never moves and keeps its number, because translated code adds to it by its address, or to another number by its index.

/// The counts of an address.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Counter {
    pub(crate) address: u64,
    /// Executions since the machine was switched on: translated code adds to it, or its value is gathered from elsewhere ([`Table::gather`]).
    pub(crate) executed: u64,
    /// What is to be added to `executed`, for an instruction that does not count once for each execution.
    adjusted: i64,
    /// The sum of both when the current span began.
    base: u64,
    /// Executions in spans since the last cut.
    counted: u64,
}

impl Counter {
    fn sum(&self) -> u64 {
        self.executed.wrapping_add_signed(self.adjusted)
    }
}

/// Adds executions to a counter, given its index in its group.
pub(crate) type Add<'a> = dyn FnMut(usize, u64) + 'a;

/// The place of an address in an index whose length is a power of two, `mask` + 1: Fibonacci hashing, because neighbouring instructions differ in their
/// lowest bits.
pub(crate) fn place(address: u64, mask: usize) -> usize {
    (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & mask
}

/// A table of fixed size.
pub(crate) struct Table {
    counters: &'static mut [Counter],
    used: usize,
    /// Numbers of counters from 1, by the address's hash, open addressing.
    index: &'static mut [u32],
    full: bool,
    open: bool,
}

impl Table {
    /// A table in zeroed memory; the length of `index` is a power of two and larger than that of `counters`.
    pub(crate) fn new(counters: &'static mut [Counter], index: &'static mut [u32]) -> Self {
        Self { counters, used: 0, index, full: false, open: false }
    }

    /// The number of the counter for `address`, from 0, created if necessary; `None` if there is no room for another.
    pub(crate) fn counter(&mut self, address: u64) -> Option<usize> {
        let mask = self.index.len() - 1;
        let mut at = place(address, mask);
        loop {
            match self.index[at] {
                0 => break,
                n if self.counters[n as usize - 1].address == address => return Some(n as usize - 1),
                _ => at = (at + 1) & mask,
            }
        }
        if self.used == self.counters.len() {
            self.full = true;
            return None;
        }
        self.counters[self.used].address = address;
        self.used += 1;
        self.index[at] = self.used as u32;
        Some(self.used - 1)
    }

    /// The address of a counter's number of executions.
    pub(crate) fn executed(&mut self, number: usize) -> *mut u64 {
        &raw mut self.counters[number].executed
    }

    /// Adds to a counter what its executions count more or less than one each.
    pub(crate) fn adjust(&mut self, number: usize, by: i64) {
        if let Some(counter) = self.counters.get_mut(number) {
            counter.adjusted += by;
        }
    }

    /// Takes over executions counted elsewhere, in groups of `size` counters in the order of their numbers: `group` adds the counts of a group, given
    /// its number. Call it before a span begins and before it ends.
    pub(crate) fn gather(&mut self, size: usize, group: &mut dyn FnMut(usize, &mut Add<'_>)) {
        for (number, counters) in self.counters[..self.used].chunks_mut(size).enumerate() {
            for counter in &mut *counters {
                counter.executed = 0;
            }
            group(number, &mut |at, count| {
                if let Some(counter) = counters.get_mut(at) {
                    counter.executed += count;
                }
            });
        }
    }

    /// Begins a span.
    pub(crate) fn begin(&mut self) {
        self.open = true;
        for counter in &mut self.counters[..self.used] {
            counter.base = counter.sum();
        }
    }

    /// Ends a span, if one has begun.
    pub(crate) fn end(&mut self) {
        if !core::mem::take(&mut self.open) {
            return;
        }
        for counter in &mut self.counters[..self.used] {
            counter.counted = counter.counted.wrapping_add(counter.sum()).wrapping_sub(counter.base);
        }
    }

    /// Outputs and resets the counts since the last cut: passes the number of addresses, or [`OVERFLOW`](crate::OVERFLOW), to `head`, and each
    /// address with its count to `each`.
    pub(crate) fn cut(&mut self, head: &mut dyn FnMut(u64), each: &mut dyn FnMut(u64, u64)) {
        if self.full {
            head(crate::OVERFLOW);
            return;
        }
        let counters = &mut self.counters[..self.used];
        head(counters.iter().filter(|c| c.counted > 0).count() as u64);
        for counter in counters.iter_mut().filter(|c| c.counted > 0) {
            each(counter.address, counter.counted);
            counter.counted = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(room: usize) -> Table {
        Table::new(vec![Counter::default(); room].leak(), vec![0; (2 * room).next_power_of_two()].leak())
    }

    fn execute(table: &mut Table, address: u64, times: u64) {
        let number = table.counter(address).unwrap();
        let counter = table.executed(number);
        // SAFETY: the counter is the table's, which lives, and nobody else looks at it.
        unsafe { *counter += times };
    }

    fn cut(table: &mut Table) -> (u64, Vec<(u64, u64)>) {
        let (mut head, mut each) = (0, Vec::new());
        table.cut(&mut |n| head = n, &mut |address, count| each.push((address, count)));
        (head, each)
    }

    #[test]
    fn what_is_outside_of_spans_does_not_count_and_spans_add_up() {
        let mut t = table(8);
        execute(&mut t, 1, 100);
        t.begin();
        execute(&mut t, 1, 2);
        execute(&mut t, 2, 3);
        t.end();
        execute(&mut t, 2, 50);
        t.begin();
        execute(&mut t, 2, 4);
        t.end();
        // A second end, which may happen when a window fails half-way.
        t.end();
        assert_eq!(cut(&mut t), (2, vec![(1, 2), (2, 7)]));
        assert_eq!(cut(&mut t), (0, vec![]));
        t.begin();
        execute(&mut t, 1, 1);
        t.end();
        assert_eq!(cut(&mut t), (1, vec![(1, 1)]));
    }

    #[test]
    fn addresses_that_collide_have_counters_of_their_own() {
        let mut t = table(512);
        t.begin();
        for round in 1..=3 {
            for address in 0..512_u64 {
                execute(&mut t, address << 32, round);
            }
        }
        t.end();
        let (n, counts) = cut(&mut t);
        assert_eq!(n, 512);
        assert!(counts.iter().all(|(_, count)| *count == 6));
    }

    #[test]
    fn what_was_counted_elsewhere_is_gathered_by_number() {
        let mut t = table(8);
        for (number, address) in [10, 20, 30].into_iter().enumerate() {
            assert_eq!(t.counter(address), Some(number));
        }
        // Counts of two processors, in groups of two counters.
        let mut elsewhere = [[[1, 2], [3, 0]], [[0, 5], [7, 0]]];
        let gather = |t: &mut Table, elsewhere: &[[[u64; 2]; 2]; 2]| {
            t.gather(2, &mut |group, add| {
                elsewhere.iter().for_each(|cpu| cpu[group].iter().enumerate().for_each(|(at, n)| add(at, *n)));
            });
        };
        gather(&mut t, &elsewhere);
        t.begin();
        elsewhere[0][0][1] += 4;
        elsewhere[1][1][0] += 6;
        gather(&mut t, &elsewhere);
        t.end();
        assert_eq!(cut(&mut t), (2, vec![(20, 4), (30, 6)]));
    }

    #[test]
    fn an_instruction_may_count_less_than_its_executions() {
        let mut t = table(8);
        let number = t.counter(1).unwrap();
        execute(&mut t, 1, 40);
        t.adjust(number, -35);
        t.begin();
        execute(&mut t, 1, 100);
        t.adjust(number, -99);
        t.adjust(number, 14);
        t.end();
        assert_eq!(cut(&mut t), (1, vec![(1, 15)]));
    }

    #[test]
    fn a_full_table_says_so_instead_of_counting_some() {
        let mut t = table(2);
        t.begin();
        for address in 0..2 {
            execute(&mut t, address, 1);
        }
        assert!(t.counter(2).is_none());
        t.end();
        assert_eq!(cut(&mut t), (crate::OVERFLOW, vec![]));
    }
}
