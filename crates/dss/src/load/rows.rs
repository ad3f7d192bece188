//! The generator's rows, field by field.
//!
//! Invariant: fields come in the order of the table's columns, and none is copied on the way.

use std::fmt::Display;

use tpchgen::dates::TPCHDate;
use tpchgen::decimal::TPCHDecimal;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator, PartSuppGenerator,
    RegionGenerator, SupplierGenerator,
};

use crate::scale::{Portion, Scale};
use crate::table::Table;

/// Receives rows.
pub(super) trait Sink {
    type Error;

    fn begin(&mut self);
    fn integer(&mut self, value: i32);
    fn bigint(&mut self, value: i64);
    fn decimal(&mut self, value: TPCHDecimal);
    fn date(&mut self, value: TPCHDate);
    fn text(&mut self, value: &str);
    /// A text that is formatted when it is written.
    fn shown(&mut self, value: &dyn Display);
    fn end(&mut self) -> Result<(), Self::Error>;
}

/// Keys fit into 32 bits up to scale 1000, except those of orders.
fn key<S: Sink>(sink: &mut S, value: i64) {
    sink.integer(value as i32);
}

/// Passes on the rows of a portion of a table. The first call in a process generates the 300 MB of text from which comments are taken.
pub(super) fn write<S: Sink>(table: Table, scale: Scale, portion: Portion, sink: &mut S) -> Result<(), S::Error> {
    let factor = scale.factor();
    let Portion { number, of } = portion;
    match table {
        Table::Region => RegionGenerator::default().iter().try_for_each(|row| {
            sink.begin();
            key(sink, row.r_regionkey);
            sink.text(row.r_name);
            sink.text(row.r_comment);
            sink.end()
        }),
        Table::Nation => NationGenerator::default().iter().try_for_each(|row| {
            sink.begin();
            key(sink, row.n_nationkey);
            sink.text(row.n_name);
            key(sink, row.n_regionkey);
            sink.text(row.n_comment);
            sink.end()
        }),
        Table::Supplier => SupplierGenerator::new(factor, number, of).iter().try_for_each(|row| {
            sink.begin();
            key(sink, row.s_suppkey);
            sink.shown(&row.s_name);
            sink.shown(&row.s_address);
            key(sink, row.s_nationkey);
            sink.shown(&row.s_phone);
            sink.decimal(row.s_acctbal);
            sink.text(&row.s_comment);
            sink.end()
        }),
        Table::Customer => CustomerGenerator::new(factor, number, of).iter().try_for_each(|row| {
            sink.begin();
            key(sink, row.c_custkey);
            sink.shown(&row.c_name);
            sink.shown(&row.c_address);
            key(sink, row.c_nationkey);
            sink.shown(&row.c_phone);
            sink.decimal(row.c_acctbal);
            sink.text(row.c_mktsegment);
            sink.text(row.c_comment);
            sink.end()
        }),
        Table::Part => PartGenerator::new(factor, number, of).iter().try_for_each(|row| {
            sink.begin();
            key(sink, row.p_partkey);
            sink.shown(&row.p_name);
            sink.shown(&row.p_mfgr);
            sink.shown(&row.p_brand);
            sink.text(row.p_type);
            sink.integer(row.p_size);
            sink.text(row.p_container);
            sink.decimal(row.p_retailprice);
            sink.text(row.p_comment);
            sink.end()
        }),
        Table::Partsupp => PartSuppGenerator::new(factor, number, of).iter().try_for_each(|row| {
            sink.begin();
            key(sink, row.ps_partkey);
            key(sink, row.ps_suppkey);
            sink.integer(row.ps_availqty);
            sink.decimal(row.ps_supplycost);
            sink.text(row.ps_comment);
            sink.end()
        }),
        Table::Orders => OrderGenerator::new(factor, number, of).iter().try_for_each(|row| {
            sink.begin();
            sink.bigint(row.o_orderkey);
            key(sink, row.o_custkey);
            sink.text(row.o_orderstatus.as_str());
            sink.decimal(row.o_totalprice);
            sink.date(row.o_orderdate);
            sink.text(row.o_orderpriority);
            sink.shown(&row.o_clerk);
            sink.integer(row.o_shippriority);
            sink.text(row.o_comment);
            sink.end()
        }),
        Table::Lineitem => LineItemGenerator::new(factor, number, of).iter().try_for_each(|row| {
            sink.begin();
            sink.bigint(row.l_orderkey);
            key(sink, row.l_partkey);
            key(sink, row.l_suppkey);
            sink.integer(row.l_linenumber);
            sink.decimal(TPCHDecimal(row.l_quantity * 100));
            sink.decimal(row.l_extendedprice);
            sink.decimal(row.l_discount);
            sink.decimal(row.l_tax);
            sink.text(row.l_returnflag);
            sink.text(row.l_linestatus);
            sink.date(row.l_shipdate);
            sink.date(row.l_commitdate);
            sink.date(row.l_receiptdate);
            sink.text(row.l_shipinstruct);
            sink.text(row.l_shipmode);
            sink.text(row.l_comment);
            sink.end()
        }),
    }
}
