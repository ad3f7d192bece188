//! The rows of a freshly loaded database (TPC-C, clause 4.3.3).
//!
//! Invariant: a row depends only on its table, warehouse and district: warehouses can be generated in any order, by any thread,
//! for any scale and any engine, with the same bytes.

mod goods;
mod orders;
mod people;

#[cfg(test)]
mod tests;
#[cfg(test)]
pub mod values;

use super::random::{LOAD_SEED, Rng, stream};
use super::scale::{CUSTOMERS, DISTRICTS, FIRST_NEW_ORDER, ITEMS, ORDERS, Scale};
use super::schema::Table;

/// The date of all loaded rows, microseconds since 2000-01-01: 2024-01-01, 8766 days later.
pub const LOAD_DATE: i64 = 8766 * 86_400 * 1_000_000;

/// The destination of rows: field after field in the order of the table's columns, written directly in an engine's format.
pub trait Sink {
    type Error;

    /// Begins a row.
    fn begin(&mut self);
    fn integer(&mut self, value: i32);
    fn bigint(&mut self, value: i64);
    /// Microseconds since 2000-01-01.
    fn date(&mut self, value: i64);
    fn null(&mut self);
    /// A text of `length` bytes, written by `fill`, which is called exactly once.
    fn text(&mut self, length: usize, fill: impl FnOnce(&mut [u8]));

    /// Ends a row.
    ///
    /// # Errors
    /// If the engine refused this row or an earlier one.
    fn end(&mut self) -> Result<(), Self::Error>;
}

/// Writes a warehouse's rows (from 1) in a table, in the order of the primary key. ITEM belongs to no warehouse and is warehouse
/// 0.
///
/// # Errors
/// Those of the sink.
pub fn write<S: Sink>(table: &Table, warehouse: u32, sink: &mut S) -> Result<(), S::Error> {
    let each_district = |sink: &mut S, rows: fn(u32, u32, &mut S) -> Result<(), S::Error>| {
        (1..=DISTRICTS).try_for_each(|district| rows(warehouse, district, sink))
    };
    match table.name {
        "item" => goods::items(sink),
        "warehouse" => goods::warehouse(warehouse, sink),
        "district" => each_district(sink, goods::district),
        "stock" => goods::stock(warehouse, sink),
        "customer" => each_district(sink, people::customers),
        "history" => each_district(sink, people::history),
        "orders" => each_district(sink, orders::orders),
        "new_order" => each_district(sink, orders::new_orders),
        "order_line" => each_district(sink, orders::order_lines),
        other => unreachable!("Nothing is known of the rows of {other}"),
    }
}

/// The warehouses of a table, in the form that [`write`] accepts: 0 for ITEM, else all of them.
pub fn warehouses(table: &Table, scale: Scale) -> std::ops::RangeInclusive<u32> {
    if table.name == "item" { 0..=0 } else { 1..=scale.warehouses }
}

/// The exact number of rows that [`write`] gives, even for ORDER-LINE, whose orders have random lengths.
pub fn count(table: &Table, warehouse: u32) -> u64 {
    let of_district = match table.name {
        "item" | "stock" => return u64::from(ITEMS),
        "warehouse" => return 1,
        "district" => 1,
        "customer" | "history" => CUSTOMERS,
        "orders" => ORDERS,
        "new_order" => ORDERS + 1 - FIRST_NEW_ORDER,
        "order_line" => return (1..=DISTRICTS).map(|district| orders::count_lines(warehouse, district)).sum(),
        other => unreachable!("Nothing is known of the rows of {other}"),
    };
    u64::from(DISTRICTS * of_district)
}

/// Number of rows of a table in the whole database.
pub fn total(table: &Table, scale: Scale) -> u64 {
    warehouses(table, scale).map(|warehouse| count(table, warehouse)).sum()
}

/// The parts with separate random draws.
#[derive(Clone, Copy)]
enum Part {
    Item,
    Warehouse,
    District,
    Stock,
    Customer,
    History,
    Orders,
    OrderLine,
    /// The numbers of lines, which ORDERS and ORDER-LINE must share.
    OrderSizes,
}

fn rng(part: Part, warehouse: u32, district: u32) -> Rng {
    Rng::new(LOAD_SEED, stream::rows(part as u8, warehouse, district))
}

/// An a-string of random length (clause 4.3.2.2).
fn letters(rng: &mut Rng, low: u32, high: u32, sink: &mut impl Sink) {
    let length = rng.range(low, high);
    sink.text(length as usize, |text| rng.letters(text));
}

/// A fixed text.
fn fixed(value: &str, sink: &mut impl Sink) {
    sink.text(value.len(), |text| text.copy_from_slice(value.as_bytes()));
}

/// Two streets, a city, a state and a zip code of four random digits and `11111` (clause 4.3.2.7).
fn address(rng: &mut Rng, sink: &mut impl Sink) {
    for _ in 0..3 {
        letters(rng, 10, 20, sink);
    }
    sink.text(2, |text| text.fill_with(|| rng.range(u32::from(b'A'), u32::from(b'Z')) as u8));
    sink.text(9, |text| {
        rng.digits(&mut text[..4]);
        text[4..].fill(b'1');
    });
}

/// I_DATA or S_DATA: 26 to 50 characters, in 10 % of the rows with `ORIGINAL` somewhere among them (clause 4.3.3.1).
fn data(rng: &mut Rng, sink: &mut impl Sink) {
    const MARK: &[u8] = b"ORIGINAL";
    let length = rng.range(26, 50) as usize;
    sink.text(length, |text| {
        rng.letters(text);
        if rng.percent(10) {
            let at = rng.range(0, (length - MARK.len()) as u32) as usize;
            text[at..at + MARK.len()].copy_from_slice(MARK);
        }
    });
}
