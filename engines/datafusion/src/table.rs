//! The eight tables: their names and, for a scale factor, their rows as Arrow batches.

use datafusion::arrow::array::RecordBatchReader;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator, PartSuppGenerator,
    RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RegionArrow, SupplierArrow,
};

pub struct Table {
    pub name: &'static str,
    /// Rows in batches, for a scale factor. Decimals are `Decimal128(15, 2)`, dates `Date32`.
    pub rows: fn(f64) -> Box<dyn RecordBatchReader>,
}

/// Small tables first, so that errors appear early.
pub const TABLES: [Table; 8] = [
    Table { name: "region", rows: |scale| Box::new(RegionArrow::new(RegionGenerator::new(scale, 1, 1))) },
    Table { name: "nation", rows: |scale| Box::new(NationArrow::new(NationGenerator::new(scale, 1, 1))) },
    Table { name: "supplier", rows: |scale| Box::new(SupplierArrow::new(SupplierGenerator::new(scale, 1, 1))) },
    Table { name: "customer", rows: |scale| Box::new(CustomerArrow::new(CustomerGenerator::new(scale, 1, 1))) },
    Table { name: "part", rows: |scale| Box::new(PartArrow::new(PartGenerator::new(scale, 1, 1))) },
    Table { name: "partsupp", rows: |scale| Box::new(PartSuppArrow::new(PartSuppGenerator::new(scale, 1, 1))) },
    Table { name: "orders", rows: |scale| Box::new(OrderArrow::new(OrderGenerator::new(scale, 1, 1))) },
    Table { name: "lineitem", rows: |scale| Box::new(LineItemArrow::new(LineItemGenerator::new(scale, 1, 1))) },
];
