use std::collections::{HashMap, HashSet};

use super::super::schema::TABLES;
use super::*;
use bigiron_sql::database::SqlValue;

fn table(name: &str) -> &'static Table {
    TABLES.iter().find(|t| t.name == name).unwrap()
}

/// The rows of a warehouse, by column.
struct Columns {
    rows: Vec<Vec<SqlValue>>,
    places: HashMap<&'static str, usize>,
}

impl Columns {
    fn of(name: &str, warehouse: u32) -> Self {
        let table = table(name);
        let places = table.columns.iter().enumerate().map(|(i, (name, _))| (*name, i)).collect();
        Self { rows: values::rows(table, warehouse), places }
    }

    fn values(&self, column: &str) -> impl Iterator<Item = &SqlValue> {
        let place = self.places[column];
        self.rows.iter().map(move |row| &row[place])
    }

    /// NULL as -1, which no column holds.
    fn integers(&self, column: &str) -> Vec<i64> {
        self.values(column)
            .map(|v| match v {
                SqlValue::Integer(i) => *i,
                SqlValue::Null => -1,
                SqlValue::Text(text) => panic!("{column} is text: {text}"),
            })
            .collect()
    }

    fn texts(&self, column: &str) -> Vec<&str> {
        self.values(column)
            .map(|v| match v {
                SqlValue::Text(text) => text.as_str(),
                other => panic!("{column} is no text: {other:?}"),
            })
            .collect()
    }

    /// Checks that all lengths are in this range, and that both ends occur.
    fn lengths(&self, column: &str, low: usize, high: usize) {
        let lengths: Vec<usize> = self.texts(column).iter().map(|t| t.len()).collect();
        assert_eq!((lengths.iter().min(), lengths.iter().max()), (Some(&low), Some(&high)), "{column}");
    }

    /// Checks that all values are in this range, and that both ends are nearly reached.
    fn range(&self, column: &str, low: i64, high: i64) {
        let values = self.integers(column);
        let (min, max) = (*values.iter().min().unwrap(), *values.iter().max().unwrap());
        let slack = (high - low) / 20;
        assert!((low..=low + slack).contains(&min) && (high - slack..=high).contains(&max), "{column}: {min}..{max}");
    }
}

fn share(part: usize, whole: usize) -> f64 {
    100.0 * part as f64 / whole as f64
}

#[test]
fn rows_fit_their_tables_in_the_order_of_their_keys() {
    for table in TABLES {
        let warehouse = *warehouses(table, Scale { warehouses: 3 }).end();
        let columns = Columns::of(table.name, warehouse);
        assert_eq!(columns.rows.len() as u64, count(table, warehouse), "{}", table.name);
        for row in &columns.rows {
            assert_eq!(row.len(), table.columns.len(), "{}", table.name);
            for ((column, kind), value) in table.columns.iter().zip(row) {
                let fits = match value {
                    SqlValue::Null => ["o_carrier_id", "ol_delivery_d"].contains(column),
                    SqlValue::Integer(i) if *kind == "integer" => i32::try_from(*i).is_ok(),
                    SqlValue::Integer(_) => *kind == "bigint" || *kind == "timestamp",
                    SqlValue::Text(text) => {
                        kind.strip_prefix("varchar(")
                            .is_some_and(|n| text.len() <= n.trim_end_matches(')').parse().unwrap())
                            && text.is_ascii()
                    }
                };
                assert!(fits, "{column} {kind}: {value:?}");
            }
        }
        if !table.key.is_empty() {
            let parts: Vec<Vec<i64>> = table.key.iter().map(|column| columns.integers(column)).collect();
            let keys: Vec<Vec<i64>> = (0..columns.rows.len()).map(|i| parts.iter().map(|p| p[i]).collect()).collect();
            assert!(keys.windows(2).all(|two| two[0] < two[1]), "{}", table.name);
        }
    }
}

#[test]
fn cardinalities_are_those_of_the_specification() {
    let scale = Scale { warehouses: 4 };
    let rows = |name: &str| total(table(name), scale);
    assert_eq!(rows("item"), 100_000);
    assert_eq!(rows("warehouse"), 4);
    assert_eq!(rows("district"), 40);
    assert_eq!(rows("stock"), 400_000);
    assert_eq!(rows("customer"), 120_000);
    assert_eq!(rows("history"), 120_000);
    assert_eq!(rows("orders"), 120_000);
    assert_eq!(rows("new_order"), 36_000);
    let lines = rows("order_line");
    assert!(lines.abs_diff(1_200_000) < 12_000, "{lines}");
}

#[test]
fn items_and_stock() {
    let items = Columns::of("item", 0);
    items.range("i_im_id", 1, 10_000);
    items.range("i_price", 100, 10_000);
    items.lengths("i_name", 14, 24);
    let stock = Columns::of("stock", 2);
    stock.range("s_quantity", 10, 100);
    stock.lengths("s_dist_01", 24, 24);
    stock.lengths("s_dist_10", 24, 24);
    for column in ["s_ytd", "s_order_cnt", "s_remote_cnt"] {
        assert!(stock.integers(column).iter().all(|&v| v == 0));
    }
    for (columns, column) in [(&items, "i_data"), (&stock, "s_data")] {
        columns.lengths(column, 26, 50);
        let texts = columns.texts(column);
        let original = texts.iter().filter(|t| t.contains("ORIGINAL")).count();
        assert!((9.7..=10.3).contains(&share(original, texts.len())), "{column}: {original}");
    }
}

#[test]
fn warehouses_and_districts() {
    let warehouse = Columns::of("warehouse", 7);
    assert_eq!(warehouse.integers("w_id"), [7]);
    assert_eq!(warehouse.integers("w_ytd"), [30_000_000]);
    let districts = Columns::of("district", 7);
    assert_eq!(districts.integers("d_id"), (1..=10).collect::<Vec<_>>());
    assert_eq!(districts.integers("d_ytd").iter().sum::<i64>(), 30_000_000);
    assert!(districts.integers("d_next_o_id").iter().all(|&o| o == 3001));
    assert!(districts.integers("d_tax").iter().all(|tax| (0..=2000).contains(tax)));
    for zip in districts.texts("d_zip") {
        assert!(zip.len() == 9 && zip.ends_with("11111") && zip.bytes().all(|b| b.is_ascii_digit()), "{zip}");
    }
    assert!(districts.texts("d_state").iter().all(|s| s.len() == 2 && s.bytes().all(|b| b.is_ascii_uppercase())));
}

#[test]
fn customers_and_their_history() {
    let customers = Columns::of("customer", 1);
    customers.range("c_discount", 0, 5000);
    customers.lengths("c_first", 8, 16);
    customers.lengths("c_phone", 16, 16);
    customers.lengths("c_data", 300, 500);
    customers.lengths("c_street_1", 10, 20);
    let credit = customers.texts("c_credit");
    let bad = credit.iter().filter(|c| **c == "BC").count();
    assert_eq!(bad + credit.iter().filter(|c| **c == "GC").count(), credit.len());
    assert!((9.0..=11.0).contains(&share(bad, credit.len())), "{bad}");
    assert!(customers.integers("c_balance").iter().all(|&b| b == -1000));
    assert!(customers.integers("c_since").iter().all(|&d| d == LOAD_DATE));
    let names = customers.texts("c_last");
    for district in names.chunks(3000) {
        assert!(district[..1000].iter().zip(0..).all(|(name, n)| *name == super::super::random::last_name(n)));
        // NURand(255, …) prefers names whose lower eight bits are many.
        let mut counts: HashMap<&str, u32> = HashMap::new();
        district[1000..].iter().for_each(|name| *counts.entry(name).or_default() += 1);
        assert!(counts.values().any(|&n| n > 10) && counts.len() < 800, "{}", counts.len());
    }
    let history = Columns::of("history", 1);
    assert_eq!(history.integers("h_amount").iter().sum::<i64>(), 30_000_000);
    assert_eq!(history.integers("h_c_id")[2999..3001], [3000, 1]);
    history.lengths("h_data", 12, 24);
}

#[test]
fn orders_agree_with_their_lines() {
    let orders = Columns::of("orders", 3);
    let lines = Columns::of("order_line", 3);
    let (ids, sizes, carriers) =
        (orders.integers("o_id"), orders.integers("o_ol_cnt"), orders.integers("o_carrier_id"));
    assert_eq!(sizes.iter().sum::<i64>() as usize, lines.rows.len());
    let numbers: Vec<i64> = sizes.iter().flat_map(|&size| 1..=size).collect();
    assert_eq!(lines.integers("ol_number"), numbers);
    orders.range("o_ol_cnt", 5, 15);
    for (id, carrier) in ids.iter().zip(&carriers) {
        assert!(if *id < 2101 { (1..=10).contains(carrier) } else { *carrier == -1 });
    }
    for district in orders.integers("o_c_id").chunks(3000) {
        assert_eq!(district.iter().collect::<HashSet<_>>().len(), 3000);
        assert!(district.windows(2).any(|two| two[0] > two[1]));
    }
    let (of, amounts, dates) =
        (lines.integers("ol_o_id"), lines.integers("ol_amount"), lines.integers("ol_delivery_d"));
    for i in 0..of.len() {
        if of[i] < 2101 {
            assert_eq!((amounts[i], dates[i]), (0, LOAD_DATE));
        } else {
            assert!((1..=999_999).contains(&amounts[i]) && dates[i] == -1);
        }
    }
    lines.range("ol_i_id", 1, 100_000);
    let waiting = Columns::of("new_order", 3);
    assert_eq!(waiting.integers("no_o_id")[..900], (2101..=3000).collect::<Vec<_>>());
}

#[test]
fn warehouses_differ_and_are_the_same_again() {
    for name in ["stock", "customer", "orders", "order_line", "history"] {
        let first = Columns::of(name, 1).rows;
        assert!(first == Columns::of(name, 1).rows, "{name}");
        let second = Columns::of(name, 2).rows;
        assert!(first[0] != second[0], "{name}");
        // Apart from the warehouse's number.
        let texts =
            |rows: &[Vec<SqlValue>]| -> Vec<SqlValue> { rows.iter().take(50).flat_map(|r| r[3..].to_vec()).collect() };
        assert!(texts(&first) != texts(&second), "{name}");
    }
}
