//! One user: its requests, and their keying and think times.
//!
//! Invariant: the inputs depend only on the configuration's warehouses, terminals and mix, on the seed and on the terminal's
//! number: never on the pace, the responses, or other terminals.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::config::{Config, Pace};
use super::input::{Customer, Input, OrderLine, TransactionKind};
use super::random::{Constants, Rng, stream};
use super::scale::{CUSTOMERS, DISTRICTS, ITEMS, UNUSED_ITEM};

/// Keying times in seconds, by [`TransactionKind::index`] (TPC-C, clause 5.2.5.7).
pub const KEYING_S: [f64; 5] = [18.0, 3.0, 2.0, 2.0, 2.0];
/// Mean think times in seconds, by [`TransactionKind::index`] (clause 5.2.5.7).
pub const THINK_S: [f64; 5] = [12.0, 12.0, 10.0, 5.0, 5.0];

/// A user with its own random draws.
#[derive(Clone, Debug)]
pub struct Terminal {
    inputs: Rng,
    thinking: Rng,
    constants: Constants,
    mix: [u32; 5],
    pace: Pace,
    /// First and last of all warehouses in use.
    touched: (u32, u32),
    /// First and last of its home warehouses: one, unless there are fewer terminals than warehouses.
    home: (u32, u32),
    /// The district of its stock-level (clause 2.8.1.1).
    district: u32,
}

impl Terminal {
    /// Terminal `number` (from 0) of `config.terminals`.
    ///
    /// Homes are spread evenly over the warehouses in use, or this part's share of them: with ten terminals per warehouse each of
    /// its districts has one. With fewer terminals than warehouses, as in DBT-2's event-driven mode, each has an equal range of
    /// them and draws one for every transaction, so that all of them are used.
    ///
    /// Remote warehouses are drawn from those in use other than the home: all of them unless the range is narrower than the
    /// scale, because warehouses outside must be left alone. A single warehouse has no remote lines and payments.
    pub fn new(config: &Config, constants: &Constants, seed: u64, number: u32) -> Self {
        let (first, last) = config.homes();
        let (count, terminals) = (last - first + 1, config.terminals);
        let home = if terminals >= count {
            let home = first + number % count;
            (home, home)
        } else {
            let begin = |number: u32| first + (u64::from(number) * u64::from(count) / u64::from(terminals)) as u32;
            (begin(number), begin(number + 1) - 1)
        };
        Self {
            inputs: Rng::new(seed, stream::inputs(number)),
            thinking: Rng::new(seed, stream::think(number)),
            constants: *constants,
            mix: config.mix,
            pace: config.pace,
            touched: config.touched,
            home,
            district: number / count % DISTRICTS + 1,
        }
    }

    /// Its home warehouses.
    pub fn home(&self) -> RangeInclusive<u32> {
        self.home.0..=self.home.1
    }

    /// Its next request.
    #[allow(clippy::should_implement_trait, reason = "a terminal never ends, so that an Option would say nothing")]
    pub fn next(&mut self) -> Input {
        let kind = self.kind();
        let warehouse = self.inputs.range(self.home.0, self.home.1);
        match kind {
            TransactionKind::NewOrder => self.new_order(warehouse),
            TransactionKind::Payment => self.payment(warehouse),
            TransactionKind::OrderStatus => {
                Input::OrderStatus { warehouse, district: self.any_district(), customer: self.customer() }
            }
            TransactionKind::Delivery => Input::Delivery { warehouse, carrier: self.inputs.range(1, 10) },
            TransactionKind::StockLevel => {
                Input::StockLevel { warehouse, district: self.district, threshold: self.inputs.range(10, 20) }
            }
        }
    }

    /// How long the user types before a transaction is sent. Zero in an open loop.
    pub fn keying(&self, kind: TransactionKind) -> Duration {
        match self.pace {
            Pace::Closed { keying, .. } => Duration::from_secs_f64(KEYING_S[kind.index()] * keying),
            Pace::Open { .. } => Duration::ZERO,
        }
    }

    /// How long the user reads the response: −ln(r) times the mean, at most ten times the mean (clause 5.2.5.4). Zero in an open
    /// loop.
    pub fn think(&mut self, kind: TransactionKind) -> Duration {
        match self.pace {
            Pace::Closed { think, .. } => {
                let means = (-self.thinking.unit().ln()).clamp(0.0, 10.0);
                Duration::from_secs_f64(means * THINK_S[kind.index()] * think)
            }
            Pace::Open { .. } => Duration::ZERO,
        }
    }

    fn kind(&mut self) -> TransactionKind {
        let mut drawn = self.inputs.range(0, self.mix.iter().sum::<u32>() - 1);
        for kind in TransactionKind::ALL {
            match drawn.checked_sub(self.mix[kind.index()]) {
                Some(rest) => drawn = rest,
                None => return kind,
            }
        }
        unreachable!("The draw is less than the sum of the mix")
    }

    fn new_order(&mut self, warehouse: u32) -> Input {
        let district = self.any_district();
        let customer = self.customer_id();
        let count = self.inputs.range(5, 15);
        let roll_back = self.inputs.percent(1);
        let mut lines: Vec<OrderLine> = (0..count)
            .map(|_| OrderLine {
                item: self.inputs.non_uniform(8191, self.constants.ol_i_id, 1, ITEMS),
                supply_warehouse: if self.inputs.percent(1) { self.other_than(warehouse) } else { warehouse },
                quantity: self.inputs.range(1, 10),
            })
            .collect();
        if let Some(last) = lines.last_mut().filter(|_| roll_back) {
            last.item = UNUSED_ITEM;
        }
        Input::NewOrder { warehouse, district, customer, lines }
    }

    fn payment(&mut self, warehouse: u32) -> Input {
        let district = self.any_district();
        let customer_warehouse = if self.inputs.percent(15) { self.other_than(warehouse) } else { warehouse };
        let customer_district = if customer_warehouse == warehouse { district } else { self.any_district() };
        let customer = self.customer();
        let amount = self.inputs.range(100, 500_000);
        Input::Payment { warehouse, district, customer_warehouse, customer_district, customer, amount }
    }

    fn any_district(&mut self) -> u32 {
        self.inputs.range(1, DISTRICTS)
    }

    fn customer_id(&mut self) -> u32 {
        self.inputs.non_uniform(1023, self.constants.c_id, 1, CUSTOMERS)
    }

    /// 60 % by last name.
    fn customer(&mut self) -> Customer {
        if self.inputs.percent(60) {
            Customer::LastName(self.inputs.non_uniform(255, self.constants.run_c_last, 0, 999))
        } else {
            Customer::Id(self.customer_id())
        }
    }

    /// Another warehouse of those in use, all equally likely; the same one if there is no other.
    fn other_than(&mut self, warehouse: u32) -> u32 {
        let (first, last) = self.touched;
        if first == last {
            return warehouse;
        }
        let drawn = self.inputs.range(first, last - 1);
        if drawn >= warehouse { drawn + 1 } else { drawn }
    }
}

#[cfg(test)]
mod tests;
