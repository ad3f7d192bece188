//! ITEM, WAREHOUSE, DISTRICT and STOCK.

use super::super::scale::{ITEMS, ORDERS};
use super::{Part, Sink, address, data, letters, rng};

/// Initial year-to-date amount of a district in cents: 10.00 of each of its customers, as in HISTORY.
const DISTRICT_YTD: i64 = 3_000_000;

pub(super) fn items<S: Sink>(sink: &mut S) -> Result<(), S::Error> {
    let rng = &mut rng(Part::Item, 0, 0);
    for item in 1..=ITEMS as i32 {
        sink.begin();
        sink.integer(item);
        sink.integer(rng.range(1, 10_000) as i32);
        sink.integer(rng.range(100, 10_000) as i32);
        letters(rng, 14, 24, sink);
        data(rng, sink);
        sink.end()?;
    }
    Ok(())
}

pub(super) fn warehouse<S: Sink>(warehouse: u32, sink: &mut S) -> Result<(), S::Error> {
    let rng = &mut rng(Part::Warehouse, warehouse, 0);
    sink.begin();
    sink.integer(warehouse as i32);
    sink.integer(rng.range(0, 2000) as i32);
    sink.bigint(10 * DISTRICT_YTD);
    letters(rng, 6, 10, sink);
    address(rng, sink);
    sink.end()
}

pub(super) fn district<S: Sink>(warehouse: u32, district: u32, sink: &mut S) -> Result<(), S::Error> {
    let rng = &mut rng(Part::District, warehouse, district);
    sink.begin();
    sink.integer(warehouse as i32);
    sink.integer(district as i32);
    sink.integer(ORDERS as i32 + 1);
    sink.integer(rng.range(0, 2000) as i32);
    sink.bigint(DISTRICT_YTD);
    letters(rng, 6, 10, sink);
    address(rng, sink);
    sink.end()
}

pub(super) fn stock<S: Sink>(warehouse: u32, sink: &mut S) -> Result<(), S::Error> {
    let rng = &mut rng(Part::Stock, warehouse, 0);
    for item in 1..=ITEMS as i32 {
        sink.begin();
        sink.integer(warehouse as i32);
        sink.integer(item);
        sink.integer(rng.range(10, 100) as i32);
        // S_YTD, S_ORDER_CNT, S_REMOTE_CNT.
        for _ in 0..3 {
            sink.integer(0);
        }
        for _ in 0..10 {
            sink.text(24, |text| rng.letters(text));
        }
        data(rng, sink);
        sink.end()?;
    }
    Ok(())
}
