//! The statements of the runs `scan` and `spill`. The first value of each answer is the number of rows read.

use crate::query::Sql;

/// Reads every column of the largest table once, with simple comparisons.
pub const SCAN: &str = "\
SELECT count(*),
       sum(CASE WHEN l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24 THEN l_extendedprice * l_discount ELSE 0 END),
       max(l_partkey), max(l_suppkey), max(l_linenumber), max(l_tax), max(l_returnflag), max(l_linestatus),
       max(l_shipdate), max(l_commitdate), max(l_receiptdate), max(l_shipinstruct), max(l_shipmode), max(l_comment)
FROM lineitem";

/// A sort of the largest table, and a join of the two largest on expressions without an index.
pub const STATEMENTS: [&str; 2] = [
    "\
SELECT count(*), sum(place * l_linenumber)
FROM (SELECT l_linenumber, row_number() OVER (ORDER BY l_comment, l_orderkey, l_linenumber) AS place FROM lineitem) AS sorted",
    "\
SELECT count(*), max(o_comment), max(l_comment)
FROM lineitem JOIN orders ON o_orderkey + 1 = l_orderkey + 1",
];

/// The query for the size of the largest table. SQLite does not report it; the estimated sum of the values' sizes comes close.
pub fn table_bytes(dialect: Sql) -> &'static str {
    match dialect {
        Sql::Sqlite => {
            "SELECT sum(110 + length(l_comment) + length(l_shipinstruct) + length(l_shipmode)) FROM lineitem"
        }
        Sql::Postgres | Sql::DataFusion => "SELECT pg_table_size('lineitem')",
    }
}
