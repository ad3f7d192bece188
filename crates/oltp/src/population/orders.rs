//! ORDERS, NEW-ORDER and ORDER-LINE.

use super::super::random::Rng;
use super::super::scale::{FIRST_NEW_ORDER, ITEMS, ORDERS};
use super::{LOAD_DATE, Part, Sink, rng};

/// The numbers of lines of a district's orders, in turn.
struct Sizes(Rng);

impl Sizes {
    fn new(warehouse: u32, district: u32) -> Self {
        Self(rng(Part::OrderSizes, warehouse, district))
    }

    fn next(&mut self) -> u32 {
        self.0.range(5, 15)
    }
}

pub(super) fn orders<S: Sink>(warehouse: u32, district: u32, sink: &mut S) -> Result<(), S::Error> {
    let rng = &mut rng(Part::Orders, warehouse, district);
    let mut sizes = Sizes::new(warehouse, district);
    let mut customers = [0; ORDERS as usize];
    rng.permutation(&mut customers);
    for (order, customer) in (1..=ORDERS).zip(customers) {
        sink.begin();
        sink.integer(warehouse as i32);
        sink.integer(district as i32);
        sink.integer(order as i32);
        sink.integer(customer as i32);
        if order < FIRST_NEW_ORDER {
            sink.integer(rng.range(1, 10) as i32);
        } else {
            sink.null();
        }
        sink.integer(sizes.next() as i32);
        sink.integer(1);
        sink.date(LOAD_DATE);
        sink.end()?;
    }
    Ok(())
}

pub(super) fn new_orders<S: Sink>(warehouse: u32, district: u32, sink: &mut S) -> Result<(), S::Error> {
    for order in FIRST_NEW_ORDER..=ORDERS {
        sink.begin();
        sink.integer(warehouse as i32);
        sink.integer(district as i32);
        sink.integer(order as i32);
        sink.end()?;
    }
    Ok(())
}

pub(super) fn order_lines<S: Sink>(warehouse: u32, district: u32, sink: &mut S) -> Result<(), S::Error> {
    let rng = &mut rng(Part::OrderLine, warehouse, district);
    let mut sizes = Sizes::new(warehouse, district);
    for order in 1..=ORDERS {
        for line in 1..=sizes.next() as i32 {
            sink.begin();
            sink.integer(warehouse as i32);
            sink.integer(district as i32);
            sink.integer(order as i32);
            sink.integer(line);
            sink.integer(rng.range(1, ITEMS) as i32);
            sink.integer(warehouse as i32);
            sink.integer(5);
            if order < FIRST_NEW_ORDER {
                sink.integer(0);
                sink.date(LOAD_DATE);
            } else {
                sink.integer(rng.range(1, 999_999) as i32);
                sink.null();
            }
            sink.text(24, |text| rng.letters(text));
            sink.end()?;
        }
    }
    Ok(())
}

pub(super) fn count_lines(warehouse: u32, district: u32) -> u64 {
    let mut sizes = Sizes::new(warehouse, district);
    (0..ORDERS).map(|_| u64::from(sizes.next())).sum()
}
