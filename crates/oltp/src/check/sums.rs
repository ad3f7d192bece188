//! The contents of the tables as numbers by which two databases can be compared.
//!
//! Invariant: equal rows give equal numbers on every engine, in any order of the rows.

use anyhow::{Context, Result};
use sha2::{Digest as _, Sha256};

use super::super::schema::{TABLES, Table};
use super::query::{integers, micros, tune, whole_sum};
use bigiron_sql::database::{Database, SqlValue};

/// Number of rows of a table, and exact sums of the columns that transactions change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSum {
    pub table: &'static str,
    pub rows: u64,
    /// Column and sum; money in cents. For a date, the number of non-NULL values.
    pub sums: Vec<(&'static str, i64)>,
}

/// A digest of all columns of all rows of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    pub table: &'static str,
    pub rows: u64,
    /// The sum, modulo 2^128, of the first halves of the rows' SHA-256: independent of their order, and equal rows do not cancel
    /// out.
    pub hash: u128,
}

/// The columns added up by [`sums`].
fn summed(table: &str) -> &'static [&'static str] {
    match table {
        "item" => &["i_price"],
        "warehouse" => &["w_ytd"],
        "district" => &["d_next_o_id", "d_ytd"],
        "stock" => &["s_quantity", "s_ytd", "s_order_cnt", "s_remote_cnt"],
        "customer" => &["c_payment_cnt", "c_delivery_cnt", "c_balance", "c_ytd_payment"],
        "history" => &["h_amount"],
        "orders" => &["o_c_id", "o_carrier_id", "o_ol_cnt", "o_all_local"],
        "new_order" => &["no_o_id"],
        "order_line" => &["ol_quantity", "ol_amount", "ol_delivery_d"],
        _ => &[],
    }
}

/// Counts and adds up: one pass over each table, cheap enough for every trial.
///
/// # Errors
/// If the database refuses a query.
pub fn sums(database: &mut dyn Database) -> Result<Vec<TableSum>> {
    tune(database);
    let dialect = database.dialect();
    let mut all = Vec::new();
    for table in TABLES {
        let columns = summed(table.name);
        let mut sql = String::from("SELECT count(*)");
        for column in columns {
            if kind(table, column) == "timestamp" {
                sql.push_str(&format!(", count({column})"));
            } else {
                sql.push_str(&format!(", {}", whole_sum(dialect, column)));
            }
        }
        let rows = database.rows(&format!("{sql} FROM {}", table.name))?;
        let row = rows.first().with_context(|| format!("No count of {}", table.name))?;
        let number = |value: &SqlValue| if let SqlValue::Integer(n) = value { *n } else { 0 };
        all.push(TableSum {
            table: table.name,
            rows: row.first().map_or(0, number).unsigned_abs(),
            sums: columns.iter().copied().zip(row.iter().skip(1).map(number)).collect(),
        });
    }
    Ok(all)
}

/// Reads and hashes every row of every table, one warehouse and district at a time if the table has them.
///
/// # Errors
/// If the database refuses a query.
pub fn digest(database: &mut dyn Database) -> Result<Vec<Digest>> {
    let warehouses: Vec<[i64; 1]> = integers(database, "SELECT w_id FROM warehouse ORDER BY w_id")?;
    let mut all = Vec::new();
    for table in TABLES {
        let columns: Vec<String> = table
            .columns
            .iter()
            .map(
                |(name, kind)| if *kind == "timestamp" { micros(database.dialect(), name) } else { (*name).to_owned() },
            )
            .collect();
        let select = format!("SELECT {} FROM {}", columns.join(", "), table.name);
        let mut digest = Digest { table: table.name, rows: 0, hash: 0 };
        for part in parts(table, &warehouses) {
            for row in database.rows(&format!("{select}{part}"))? {
                digest.rows += 1;
                digest.hash = digest.hash.wrapping_add(hash(&row));
            }
        }
        all.push(digest);
    }
    Ok(all)
}

/// Conditions that divide a table into parts that fit into memory and use its key; together they cover the whole table.
fn parts(table: &Table, warehouses: &[[i64; 1]]) -> Vec<String> {
    let (Some(warehouse), Some(first), Some(last)) = (table.key.first(), warehouses.first(), warehouses.last()) else {
        return vec![String::new()];
    };
    if warehouse == &"i_id" {
        return vec![String::new()];
    }
    // Rows of nonexistent warehouses count too.
    let mut parts = vec![format!(" WHERE {warehouse} < {}", first[0]), format!(" WHERE {warehouse} > {}", last[0])];
    let mut next = first[0];
    for [w] in warehouses {
        if *w > next {
            parts.push(format!(" WHERE {warehouse} >= {next} AND {warehouse} < {w}"));
        }
        match table.key.get(1) {
            Some(district) if table.key.len() > 2 => {
                parts.push(format!(" WHERE {warehouse} = {w} AND {district} < 1"));
                parts.push(format!(" WHERE {warehouse} = {w} AND {district} > 10"));
                parts.extend((1..=10).map(|d| format!(" WHERE {warehouse} = {w} AND {district} = {d}")));
            }
            _ => parts.push(format!(" WHERE {warehouse} = {w}")),
        }
        next = w + 1;
    }
    parts
}

/// Each value is preceded by its kind and length, so that different rows never have the same encoding.
fn hash(row: &[SqlValue]) -> u128 {
    let mut hasher = Sha256::new();
    for value in row {
        match value {
            SqlValue::Null => hasher.update([0]),
            SqlValue::Integer(n) => {
                hasher.update([1]);
                hasher.update(n.to_le_bytes());
            }
            SqlValue::Text(text) => {
                hasher.update([2]);
                hasher.update((text.len() as u64).to_le_bytes());
                hasher.update(text.as_bytes());
            }
        }
    }
    let hash: [u8; 32] = hasher.finalize().into();
    let mut half = [0; 16];
    half.copy_from_slice(&hash[..16]);
    u128::from_le_bytes(half)
}

fn kind(table: &Table, column: &str) -> &'static str {
    table.columns.iter().find(|(name, _)| *name == column).map_or("", |(_, kind)| kind)
}
