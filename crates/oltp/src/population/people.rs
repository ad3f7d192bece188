//! CUSTOMER and HISTORY.

use super::super::random::{load_c_last, syllables};
use super::super::scale::CUSTOMERS;
use super::{LOAD_DATE, Part, Sink, address, fixed, letters, rng};

/// Cents of every customer's single initial payment.
const PAID: i64 = 1000;
/// Customers whose last names are 0..=999 in turn, so that each name exists in each district.
const NAMES: u32 = 1000;

pub(super) fn customers<S: Sink>(warehouse: u32, district: u32, sink: &mut S) -> Result<(), S::Error> {
    let rng = &mut rng(Part::Customer, warehouse, district);
    let c_last = load_c_last();
    for customer in 1..=CUSTOMERS {
        sink.begin();
        sink.integer(warehouse as i32);
        sink.integer(district as i32);
        sink.integer(customer as i32);
        sink.integer(rng.range(0, 5000) as i32);
        // C_PAYMENT_CNT, C_DELIVERY_CNT; the credit limit is 50,000.00.
        sink.integer(1);
        sink.integer(0);
        sink.bigint(5_000_000);
        sink.bigint(-PAID);
        sink.bigint(PAID);
        sink.date(LOAD_DATE);
        let name = if customer <= NAMES { customer - 1 } else { rng.non_uniform(255, c_last, 0, NAMES - 1) };
        let name = syllables(name);
        sink.text(name.iter().map(|s| s.len()).sum(), |mut text| {
            for syllable in name {
                let (here, rest) = text.split_at_mut(syllable.len());
                here.copy_from_slice(syllable.as_bytes());
                text = rest;
            }
        });
        letters(rng, 8, 16, sink);
        fixed("OE", sink);
        fixed(if rng.percent(10) { "BC" } else { "GC" }, sink);
        address(rng, sink);
        sink.text(16, |text| rng.digits(text));
        letters(rng, 300, 500, sink);
        sink.end()?;
    }
    Ok(())
}

pub(super) fn history<S: Sink>(warehouse: u32, district: u32, sink: &mut S) -> Result<(), S::Error> {
    let rng = &mut rng(Part::History, warehouse, district);
    for customer in 1..=CUSTOMERS as i32 {
        sink.begin();
        sink.integer(customer);
        // The customer's home, and the place of the payment.
        for _ in 0..2 {
            sink.integer(district as i32);
            sink.integer(warehouse as i32);
        }
        sink.integer(PAID as i32);
        sink.date(LOAD_DATE);
        letters(rng, 12, 24, sink);
        sink.end()?;
    }
    Ok(())
}
