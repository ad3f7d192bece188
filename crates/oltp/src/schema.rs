//! The nine tables (TPC-C, clause 1.3), the same on every engine.
//!
//! Invariant: every amount is a whole number, money in cents and rates in ten thousandths, so that sums are exact and engines
//! agree to the cent. No foreign keys, as in DBT-2.

use bigiron_sql::database::Dialect;

/// A table: its name, and its columns with PostgreSQL's types in the order in which rows are loaded.
pub struct Table {
    pub name: &'static str,
    pub columns: &'static [(&'static str, &'static str)],
    /// Columns of the primary key; HISTORY has none.
    pub key: &'static [&'static str],
    /// Fill factor of a page at load in per cent (PostgreSQL): the hot rows of WAREHOUSE and DISTRICT leave room for their next
    /// versions.
    pub fillfactor: u32,
}

/// A secondary index: name, table, columns.
pub struct Index {
    pub name: &'static str,
    pub table: &'static str,
    pub columns: &'static [&'static str],
}

/// In the order in which they are loaded.
pub const TABLES: &[Table] = &[
    Table {
        name: "item",
        columns: &[
            ("i_id", "integer"),
            ("i_im_id", "integer"),
            ("i_price", "integer"),
            ("i_name", "varchar(24)"),
            ("i_data", "varchar(50)"),
        ],
        key: &["i_id"],
        fillfactor: 100,
    },
    Table {
        name: "warehouse",
        columns: &[
            ("w_id", "integer"),
            ("w_tax", "integer"),
            ("w_ytd", "bigint"),
            ("w_name", "varchar(10)"),
            ("w_street_1", "varchar(20)"),
            ("w_street_2", "varchar(20)"),
            ("w_city", "varchar(20)"),
            ("w_state", "varchar(2)"),
            ("w_zip", "varchar(9)"),
        ],
        key: &["w_id"],
        fillfactor: 10,
    },
    Table {
        name: "district",
        columns: &[
            ("d_w_id", "integer"),
            ("d_id", "integer"),
            ("d_next_o_id", "integer"),
            ("d_tax", "integer"),
            ("d_ytd", "bigint"),
            ("d_name", "varchar(10)"),
            ("d_street_1", "varchar(20)"),
            ("d_street_2", "varchar(20)"),
            ("d_city", "varchar(20)"),
            ("d_state", "varchar(2)"),
            ("d_zip", "varchar(9)"),
        ],
        key: &["d_w_id", "d_id"],
        fillfactor: 10,
    },
    Table {
        name: "stock",
        columns: &[
            ("s_w_id", "integer"),
            ("s_i_id", "integer"),
            ("s_quantity", "integer"),
            ("s_ytd", "integer"),
            ("s_order_cnt", "integer"),
            ("s_remote_cnt", "integer"),
            ("s_dist_01", "varchar(24)"),
            ("s_dist_02", "varchar(24)"),
            ("s_dist_03", "varchar(24)"),
            ("s_dist_04", "varchar(24)"),
            ("s_dist_05", "varchar(24)"),
            ("s_dist_06", "varchar(24)"),
            ("s_dist_07", "varchar(24)"),
            ("s_dist_08", "varchar(24)"),
            ("s_dist_09", "varchar(24)"),
            ("s_dist_10", "varchar(24)"),
            ("s_data", "varchar(50)"),
        ],
        key: &["s_w_id", "s_i_id"],
        fillfactor: 90,
    },
    Table {
        name: "customer",
        columns: &[
            ("c_w_id", "integer"),
            ("c_d_id", "integer"),
            ("c_id", "integer"),
            ("c_discount", "integer"),
            ("c_payment_cnt", "integer"),
            ("c_delivery_cnt", "integer"),
            ("c_credit_lim", "bigint"),
            ("c_balance", "bigint"),
            ("c_ytd_payment", "bigint"),
            ("c_since", "timestamp"),
            ("c_last", "varchar(16)"),
            ("c_first", "varchar(16)"),
            ("c_middle", "varchar(2)"),
            ("c_credit", "varchar(2)"),
            ("c_street_1", "varchar(20)"),
            ("c_street_2", "varchar(20)"),
            ("c_city", "varchar(20)"),
            ("c_state", "varchar(2)"),
            ("c_zip", "varchar(9)"),
            ("c_phone", "varchar(16)"),
            ("c_data", "varchar(500)"),
        ],
        key: &["c_w_id", "c_d_id", "c_id"],
        fillfactor: 90,
    },
    Table {
        name: "history",
        columns: &[
            ("h_c_id", "integer"),
            ("h_c_d_id", "integer"),
            ("h_c_w_id", "integer"),
            ("h_d_id", "integer"),
            ("h_w_id", "integer"),
            ("h_amount", "integer"),
            ("h_date", "timestamp"),
            ("h_data", "varchar(24)"),
        ],
        key: &[],
        fillfactor: 100,
    },
    Table {
        name: "orders",
        columns: &[
            ("o_w_id", "integer"),
            ("o_d_id", "integer"),
            ("o_id", "integer"),
            ("o_c_id", "integer"),
            ("o_carrier_id", "integer"),
            ("o_ol_cnt", "integer"),
            ("o_all_local", "integer"),
            ("o_entry_d", "timestamp"),
        ],
        key: &["o_w_id", "o_d_id", "o_id"],
        fillfactor: 100,
    },
    Table {
        name: "new_order",
        columns: &[("no_w_id", "integer"), ("no_d_id", "integer"), ("no_o_id", "integer")],
        key: &["no_w_id", "no_d_id", "no_o_id"],
        fillfactor: 100,
    },
    Table {
        name: "order_line",
        columns: &[
            ("ol_w_id", "integer"),
            ("ol_d_id", "integer"),
            ("ol_o_id", "integer"),
            ("ol_number", "integer"),
            ("ol_i_id", "integer"),
            ("ol_supply_w_id", "integer"),
            ("ol_quantity", "integer"),
            ("ol_amount", "integer"),
            ("ol_delivery_d", "timestamp"),
            ("ol_dist_info", "varchar(24)"),
        ],
        key: &["ol_w_id", "ol_d_id", "ol_o_id", "ol_number"],
        fillfactor: 100,
    },
];

/// Created after the rows are loaded, like the primary keys.
pub const INDEXES: &[Index] = &[
    Index { name: "customer_name", table: "customer", columns: &["c_w_id", "c_d_id", "c_last", "c_first"] },
    Index { name: "orders_customer", table: "orders", columns: &["o_w_id", "o_d_id", "o_c_id", "o_id"] },
];

impl Table {
    /// `CREATE TABLE`; on PostgreSQL without its key, on the others, which store rows in the order of their keys, with it.
    pub fn create(&self, dialect: Dialect) -> String {
        let columns: Vec<String> = self
            .columns
            .iter()
            .map(|(name, kind)| match dialect {
                // Declared at once: creating the key later would otherwise read the table once more to verify it.
                Dialect::Postgres if self.key.contains(name) => format!("{name} {kind} NOT NULL"),
                Dialect::Postgres => format!("{name} {kind}"),
                // Dates are microseconds since 2000-01-01 there, as in PostgreSQL's pages.
                Dialect::Sqlite if kind.starts_with("varchar") => format!("{name} TEXT"),
                Dialect::Sqlite => format!("{name} INTEGER"),
                // Its own `timestamp` ends in 2038 and changes by itself.
                Dialect::MariaDb if *kind == "timestamp" => format!("{name} datetime(6)"),
                Dialect::MariaDb => format!("{name} {kind}"),
            })
            .collect();
        let columns = columns.join(", ");
        match dialect {
            Dialect::Postgres => {
                format!("CREATE TABLE {} ({columns}) WITH (fillfactor = {})", self.name, self.fillfactor)
            }
            Dialect::Sqlite if self.key.is_empty() => format!("CREATE TABLE {} ({columns})", self.name),
            Dialect::Sqlite => {
                format!("CREATE TABLE {} ({columns}, PRIMARY KEY ({})) WITHOUT ROWID", self.name, self.key.join(", "))
            }
            Dialect::MariaDb if self.key.is_empty() => format!("CREATE TABLE {} ({columns}) ENGINE=InnoDB", self.name),
            Dialect::MariaDb => {
                format!("CREATE TABLE {} ({columns}, PRIMARY KEY ({})) ENGINE=InnoDB", self.name, self.key.join(", "))
            }
        }
    }
}
