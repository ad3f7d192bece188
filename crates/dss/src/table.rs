//! The eight tables, the same on every engine: names, columns, keys and indexes.
//!
//! Invariant: no column is ever null, and there are no foreign keys, because rows of a refresh refer to parts that do not exist.

use bigiron_sql::database::Dialect;

/// A table of the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Table {
    Region,
    Nation,
    Supplier,
    Customer,
    Part,
    Partsupp,
    Orders,
    Lineitem,
}

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// 32 bits.
    Integer,
    /// 64 bits: keys of orders.
    BigInt,
    /// Two decimal places.
    Decimal,
    Date,
    /// Fixed length; shorter texts end in blanks.
    Char(u32),
    Varchar(u32),
}

use ColumnType::{BigInt, Char, Decimal, Integer, Varchar};

/// A secondary index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Index {
    pub name: &'static str,
    pub table: Table,
    pub columns: &'static [&'static str],
}

const fn index(name: &'static str, table: Table, columns: &'static [&'static str]) -> Index {
    Index { name, table, columns }
}

/// The columns by which tables are joined.
const INDEXES: &[Index] = &[
    index("nation_region", Table::Nation, &["n_regionkey"]),
    index("supplier_nation", Table::Supplier, &["s_nationkey"]),
    index("customer_nation", Table::Customer, &["c_nationkey"]),
    index("partsupp_supplier", Table::Partsupp, &["ps_suppkey"]),
    index("orders_customer", Table::Orders, &["o_custkey"]),
    index("lineitem_part", Table::Lineitem, &["l_partkey", "l_suppkey"]),
    index("lineitem_supplier", Table::Lineitem, &["l_suppkey"]),
];

/// Only for SQLite, which would otherwise read the lines of a month in part order; PostgreSQL scans all lines and hashes them.
const SHIPPED: Index = index("lineitem_shipped", Table::Lineitem, &["l_shipdate"]);

impl Table {
    /// All tables; rows refer only to earlier tables.
    pub const ALL: [Table; 8] = [
        Table::Region,
        Table::Nation,
        Table::Supplier,
        Table::Customer,
        Table::Part,
        Table::Partsupp,
        Table::Orders,
        Table::Lineitem,
    ];

    /// All tables, the largest first, so that no connection is left with a large one at the end.
    pub const BY_SIZE: [Table; 8] = [
        Table::Lineitem,
        Table::Orders,
        Table::Partsupp,
        Table::Customer,
        Table::Part,
        Table::Supplier,
        Table::Nation,
        Table::Region,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Table::Region => "region",
            Table::Nation => "nation",
            Table::Supplier => "supplier",
            Table::Customer => "customer",
            Table::Part => "part",
            Table::Partsupp => "partsupp",
            Table::Orders => "orders",
            Table::Lineitem => "lineitem",
        }
    }

    /// Names and types, in the order in which rows are loaded.
    pub const fn columns(self) -> &'static [(&'static str, ColumnType)] {
        match self {
            Table::Region => &[("r_regionkey", Integer), ("r_name", Char(25)), ("r_comment", Varchar(152))],
            Table::Nation => {
                &[("n_nationkey", Integer), ("n_name", Char(25)), ("n_regionkey", Integer), ("n_comment", Varchar(152))]
            }
            Table::Supplier => &[
                ("s_suppkey", Integer),
                ("s_name", Char(25)),
                ("s_address", Varchar(40)),
                ("s_nationkey", Integer),
                ("s_phone", Char(15)),
                ("s_acctbal", Decimal),
                ("s_comment", Varchar(101)),
            ],
            Table::Customer => &[
                ("c_custkey", Integer),
                ("c_name", Varchar(25)),
                ("c_address", Varchar(40)),
                ("c_nationkey", Integer),
                ("c_phone", Char(15)),
                ("c_acctbal", Decimal),
                ("c_mktsegment", Char(10)),
                ("c_comment", Varchar(117)),
            ],
            Table::Part => &[
                ("p_partkey", Integer),
                ("p_name", Varchar(55)),
                ("p_mfgr", Char(25)),
                ("p_brand", Char(10)),
                ("p_type", Varchar(25)),
                ("p_size", Integer),
                ("p_container", Char(10)),
                ("p_retailprice", Decimal),
                ("p_comment", Varchar(23)),
            ],
            Table::Partsupp => &[
                ("ps_partkey", Integer),
                ("ps_suppkey", Integer),
                ("ps_availqty", Integer),
                ("ps_supplycost", Decimal),
                ("ps_comment", Varchar(199)),
            ],
            Table::Orders => &[
                ("o_orderkey", BigInt),
                ("o_custkey", Integer),
                ("o_orderstatus", Char(1)),
                ("o_totalprice", Decimal),
                ("o_orderdate", ColumnType::Date),
                ("o_orderpriority", Char(15)),
                ("o_clerk", Char(15)),
                ("o_shippriority", Integer),
                ("o_comment", Varchar(79)),
            ],
            Table::Lineitem => &[
                ("l_orderkey", BigInt),
                ("l_partkey", Integer),
                ("l_suppkey", Integer),
                ("l_linenumber", Integer),
                ("l_quantity", Decimal),
                ("l_extendedprice", Decimal),
                ("l_discount", Decimal),
                ("l_tax", Decimal),
                ("l_returnflag", Char(1)),
                ("l_linestatus", Char(1)),
                ("l_shipdate", ColumnType::Date),
                ("l_commitdate", ColumnType::Date),
                ("l_receiptdate", ColumnType::Date),
                ("l_shipinstruct", Char(25)),
                ("l_shipmode", Char(10)),
                ("l_comment", Varchar(44)),
            ],
        }
    }

    /// Columns of the primary key.
    pub const fn key(self) -> &'static [&'static str] {
        match self {
            Table::Region => &["r_regionkey"],
            Table::Nation => &["n_nationkey"],
            Table::Supplier => &["s_suppkey"],
            Table::Customer => &["c_custkey"],
            Table::Part => &["p_partkey"],
            Table::Partsupp => &["ps_partkey", "ps_suppkey"],
            Table::Orders => &["o_orderkey"],
            Table::Lineitem => &["l_orderkey", "l_linenumber"],
        }
    }

    /// `CREATE TABLE`. In SQLite a key of one column is the row's number, and part of the table; every other key is created after the
    /// rows are loaded.
    pub fn create(self, dialect: Dialect) -> String {
        let columns: Vec<String> = self
            .columns()
            .iter()
            .map(|(name, kind)| {
                let is_number = dialect == Dialect::Sqlite && self.key() == [*name];
                let key = if is_number { " PRIMARY KEY" } else { "" };
                format!("{name} {} NOT NULL{key}", kind.in_sql(dialect))
            })
            .collect();
        format!("CREATE TABLE {} ({})", self.name(), columns.join(", "))
    }

    /// The secondary indexes.
    pub fn indexes(self, dialect: Dialect) -> impl Iterator<Item = &'static Index> {
        let shipped = (dialect == Dialect::Sqlite).then_some(&SHIPPED);
        INDEXES.iter().chain(shipped).filter(move |index| index.table == self)
    }
}

impl Index {
    pub fn create(&self) -> String {
        format!("CREATE INDEX {} ON {} ({})", self.name, self.table.name(), self.columns.join(", "))
    }
}

impl ColumnType {
    fn in_sql(self, dialect: Dialect) -> String {
        if dialect == Dialect::Sqlite {
            let affinity = match self {
                Integer | BigInt => "INTEGER",
                Decimal => "REAL",
                ColumnType::Date | Char(_) | Varchar(_) => "TEXT",
            };
            return affinity.to_owned();
        }
        match self {
            Integer => "integer".to_owned(),
            BigInt => "bigint".to_owned(),
            Decimal => "numeric(15,2)".to_owned(),
            ColumnType::Date => "date".to_owned(),
            Char(length) => format!("char({length})"),
            Varchar(length) => format!("varchar({length})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_keys_and_indexes_name_columns() {
        let mut names: Vec<&str> = Table::ALL.iter().flat_map(|t| t.columns()).map(|(name, _)| *name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|two| two[0] != two[1]));
        for table in Table::ALL {
            assert!(Table::BY_SIZE.contains(&table));
            let is_column = |name: &&str| table.columns().iter().any(|(column, _)| column == name);
            assert!(table.key().iter().all(&is_column), "{table:?}");
            for dialect in [Dialect::Postgres, Dialect::Sqlite] {
                assert!(table.indexes(dialect).all(|index| index.columns.iter().all(&is_column)));
            }
        }
    }

    #[test]
    fn statements_are_those_of_the_dialect() {
        assert_eq!(
            Table::Region.create(Dialect::Postgres),
            "CREATE TABLE region (r_regionkey integer NOT NULL, r_name char(25) NOT NULL, r_comment varchar(152) NOT NULL)"
        );
        assert_eq!(
            Table::Region.create(Dialect::Sqlite),
            "CREATE TABLE region (r_regionkey INTEGER NOT NULL PRIMARY KEY, r_name TEXT NOT NULL, r_comment TEXT NOT NULL)"
        );
        assert!(!Table::Lineitem.create(Dialect::Sqlite).contains("PRIMARY KEY"));
    }
}
