//! The statements of the runs `scan` and `spill`. The first value of each answer is the number of rows read.

/// The run `scan`: reads every column of the largest table once, with simple comparisons.
pub const SCAN: &str = "\
SELECT count(*),
       sum(CASE WHEN l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24 THEN l_extendedprice * l_discount ELSE 0 END),
       max(l_partkey), max(l_suppkey), max(l_linenumber), max(l_tax), max(l_returnflag), max(l_linestatus),
       max(l_shipdate), max(l_commitdate), max(l_receiptdate), max(l_shipinstruct), max(l_shipmode), max(l_comment)
FROM lineitem";

/// The run `spill`: a sort of the largest table, and a join of the two largest on expressions without an index.
pub const SPILLS: [&str; 2] = [
    "\
SELECT count(*), sum(place * l_linenumber)
FROM (SELECT l_linenumber, row_number() OVER (ORDER BY l_comment, l_orderkey, l_linenumber) AS place FROM lineitem) AS sorted",
    "\
SELECT count(*), max(o_comment), max(l_comment)
FROM lineitem JOIN orders ON o_orderkey + 1 = l_orderkey + 1",
];

/// The size of the largest table on PostgreSQL, in bytes.
pub const POSTGRES_BYTES: &str = "SELECT pg_table_size('lineitem')";

/// An estimate of it on SQLite, which does not report sizes: the sum of the values' sizes.
pub const SQLITE_BYTES: &str =
    "SELECT sum(110 + length(l_comment) + length(l_shipinstruct) + length(l_shipmode)) FROM lineitem";
