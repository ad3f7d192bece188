//! The size of the database: TPC-C's cardinalities per warehouse (clause 1.2 of its specification).

/// Districts of a warehouse.
pub const DISTRICTS: u32 = 10;
/// Customers of a district.
pub const CUSTOMERS: u32 = 3000;
/// Orders of a district right after load, one for each customer.
pub const ORDERS: u32 = 3000;
/// The first order of a district that is not delivered yet, right after load.
pub const FIRST_NEW_ORDER: u32 = 2101;
/// Number of items, for any number of warehouses; each warehouse has a stock of each.
pub const ITEMS: u32 = 100_000;
/// An item number that does not exist: the last item of the one new-order in a hundred that must be rolled back.
pub const UNUSED_ITEM: u32 = ITEMS + 1;

/// The number of warehouses, numbered from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    pub warehouses: u32,
}
