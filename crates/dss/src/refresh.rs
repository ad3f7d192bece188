//! The two refresh functions: RF1 inserts new orders, RF2 deletes them.
//!
//! Invariant: no row of a refresh counts in any answer, whatever the parameters, so that concurrent queries have exact answers. By query:
//!
//! - 1, 6, 7, 12, 14, 15, 20: every line is shipped and received in 1999, after the last day in any of them.
//! - 3, 4, 5, 8, 10: every order is placed in 1999, after the last day in any of them.
//! - 9, 17, 19: a line's part does not exist, and all of them join it with `part`; so do 8, 14 and 20.
//! - 2, 11, 16: they read neither `orders` nor `lineitem`.
//! - 13: every comment contains all first words and then all second words, so that every pair of words excludes it.
//! - 18: an order has at most 7 lines of at most [`MOST_QUANTITY`], which together do not exceed the smallest threshold.
//! - 21: every order is open (`O`), and the query reads only lines of finished orders, and other lines of the same order.
//! - 22: every customer has orders from the load.

use std::fmt::Write as _;

use bigiron_sys::load::rng::SplitMix64;
use tpchgen::distribution::{Distribution, Distributions};
use tpchgen::generators::OrderGenerator;
use tpchgen::text::TextPool;

use crate::date::Date;
use crate::parameters::{FIRST_WORDS, SECOND_WORDS};
use crate::scale::Scale;
use crate::table::Table;

/// Orders of a refresh per unit of scale.
const ORDERS: u64 = 1500;
/// The generator uses the first 8 of every 32 keys of orders; a refresh uses the others of a block.
const BLOCK: u64 = 32;
const USED: u64 = 8;
const FREE: u64 = BLOCK - USED;
/// Blocks of a transaction: 96 orders.
const BLOCKS: usize = 4;
const MOST_LINES: u64 = 7;
const MOST_QUANTITY: u64 = 40;
/// Customers with orders that the refreshes use.
const CUSTOMERS: usize = 1000;

/// The refreshes of a scale.
pub struct Refresh {
    scale: Scale,
    /// Customers that have orders from the load.
    customers: Vec<i64>,
}

/// Statements of one transaction, for PostgreSQL and SQLite alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    pub statements: Vec<String>,
    pub orders: u64,
    pub lines: u64,
}

/// An order's key, and its number of lines.
struct Order {
    key: u64,
    lines: u64,
}

impl Refresh {
    pub fn new(scale: Scale) -> Self {
        // Customers do not depend on the comments, whose text would need 300 MB.
        let words = Distributions::static_default();
        let text = TextPool::new(1 << 16, words);
        let orders = OrderGenerator::new_with_distributions_and_text_pool(scale.factor(), 1, 1, words, &text);
        let customers = orders.iter().take(CUSTOMERS).map(|order| order.o_custkey).collect();
        Self { scale, customers }
    }

    /// The number of orders that a refresh inserts and then deletes.
    pub fn orders(&self) -> u64 {
        (u64::from(self.scale.thousandths()) * ORDERS).div_ceil(1000)
    }

    /// The number of different sets of orders, counted from 0.
    pub fn sets(&self) -> u64 {
        self.scale.rows(Table::Orders) / USED / self.blocks()
    }

    /// The transactions that insert the orders of a set.
    ///
    /// # Panics
    /// If there is no such set.
    pub fn insert(&self, set: u64) -> impl Iterator<Item = Transaction> + '_ {
        let mut rng = SplitMix64::stream(set, "dss refresh");
        let comment = comment();
        self.transactions(set).map(move |orders| self.inserts(&orders, &comment, &mut rng))
    }

    /// The transactions that delete the orders of a set.
    ///
    /// # Panics
    /// If there is no such set.
    pub fn delete(&self, set: u64) -> impl Iterator<Item = Transaction> + '_ {
        self.transactions(set).map(|orders| {
            let ranges = |column: &str| {
                let blocks = orders.chunk_by(|a, b| a.key / BLOCK == b.key / BLOCK);
                let ranges =
                    blocks.map(|block| format!("{column} BETWEEN {} AND {}", block[0].key, block[block.len() - 1].key));
                ranges.collect::<Vec<_>>().join(" OR ")
            };
            Transaction {
                statements: vec![
                    format!("DELETE FROM lineitem WHERE {}", ranges("l_orderkey")),
                    format!("DELETE FROM orders WHERE {}", ranges("o_orderkey")),
                ],
                orders: orders.len() as u64,
                lines: orders.iter().map(|order| order.lines).sum(),
            }
        })
    }

    /// Blocks of keys that a set uses.
    fn blocks(&self) -> u64 {
        self.orders().div_ceil(FREE)
    }

    /// The orders of each transaction. A set's blocks are spread evenly over all keys, so that every part of the indexes changes.
    fn transactions(&self, set: u64) -> impl Iterator<Item = Vec<Order>> + '_ {
        let (sets, blocks, orders) = (self.sets(), self.blocks(), self.orders());
        assert!(set < sets, "There are {sets} sets");
        let all: Vec<u64> = (0..blocks).collect();
        let groups: Vec<Vec<u64>> = all.chunks(BLOCKS).map(<[u64]>::to_vec).collect();
        groups.into_iter().map(move |group| {
            let of_block = |block: u64| {
                let first = (block * sets + set) * BLOCK + USED;
                let count = FREE.min(orders - block * FREE);
                // All numbers of lines are equally frequent, as in the load.
                (first..first + count).map(|key| Order { key, lines: key % MOST_LINES + 1 })
            };
            group.into_iter().flat_map(of_block).collect()
        })
    }

    fn inserts(&self, orders: &[Order], comment: &str, rng: &mut SplitMix64) -> Transaction {
        let mut heads = "INSERT INTO orders VALUES ".to_owned();
        let mut lines = "INSERT INTO lineitem VALUES ".to_owned();
        let parts = self.scale.rows(Table::Part);
        let suppliers = self.scale.rows(Table::Supplier);
        let words = Distributions::static_default();
        let pick =
            |of: &'static Distribution, rng: &mut SplitMix64| of.get_values()[rng.below(of.size() as u64) as usize];
        let mut count = 0;
        for (place, order) in orders.iter().enumerate() {
            let placed = Date::first_of(1999, 1).plus_days(rng.below(180) as i32);
            let mut total = 0;
            for number in 1..=order.lines {
                let quantity = 1 + rng.below(MOST_QUANTITY);
                let price = quantity * (90_000 + rng.below(110_000));
                let (discount, tax) = (rng.below(11), rng.below(9));
                total += price * (100 - discount) / 100 * (100 + tax) / 100;
                let shipped = placed.plus_days(1 + rng.below(121) as i32);
                let promised = placed.plus_days(30 + rng.below(61) as i32);
                let received = shipped.plus_days(1 + rng.below(30) as i32);
                let separator = if count == 0 { "" } else { ", " };
                let (part, supplier) = (parts + 1 + rng.below(parts), 1 + rng.below(suppliers));
                let instruction = pick(words.ship_instructions(), rng);
                let mode = pick(words.ship_modes(), rng);
                let _ = write!(
                    lines,
                    "{separator}({}, {part}, {supplier}, {number}, {quantity}, {}, {}, {}, 'N', 'O', '{shipped}', '{promised}', '{received}', \
                     '{instruction}', '{mode}', 'refreshed')",
                    order.key,
                    money(price),
                    money(discount),
                    money(tax)
                );
                count += 1;
            }
            let customer = self.customers[rng.below(self.customers.len() as u64) as usize];
            let priority = pick(words.order_priority(), rng);
            let separator = if place == 0 { "" } else { ", " };
            let _ = write!(
                heads,
                "{separator}({}, {customer}, 'O', {}, '{placed}', '{priority}', 'Clerk#{:09}', 0, '{comment}')",
                order.key,
                money(total),
                1 + rng.below(1000)
            );
        }
        Transaction { statements: vec![heads, lines], orders: orders.len() as u64, lines: count }
    }
}

/// An amount in hundredths as a decimal.
fn money(hundredths: u64) -> String {
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

/// All first words of query 13, then all second words.
fn comment() -> String {
    [FIRST_WORDS, SECOND_WORDS].concat().join(" ")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::parameters::LEAST_LARGE_ORDER;
    use crate::table::ColumnType;

    fn refresh(scale: &str) -> Refresh {
        Refresh::new(scale.parse().unwrap())
    }

    #[test]
    fn a_set_has_its_orders_once_and_none_of_the_load_or_of_another_set() {
        for scale in ["0.001", "0.01", "0.1", "1"] {
            let refresh = refresh(scale);
            assert!(refresh.sets() > 100, "{scale}");
            let mut seen = HashSet::new();
            let last = refresh.scale.rows(Table::Orders) / USED * BLOCK;
            for set in [0, 1, refresh.sets() - 1] {
                let orders: Vec<Order> = refresh.transactions(set).flatten().collect();
                assert_eq!(orders.len() as u64, refresh.orders());
                assert!(refresh.transactions(set).all(|orders| orders.len() <= 100));
                for order in orders {
                    assert!(order.key % BLOCK >= USED && order.key < last && seen.insert(order.key), "{}", order.key);
                    assert!((1..=MOST_LINES).contains(&order.lines));
                }
            }
        }
        assert_eq!((refresh("1").orders(), refresh("0.01").orders(), refresh("0.001").orders()), (1500, 15, 2));
    }

    #[test]
    fn delete_removes_what_insert_added() {
        let refresh = refresh("0.1");
        let count = |transactions: Vec<Transaction>| {
            transactions.iter().map(|t| (t.orders, t.lines)).fold((0, 0), |sum, t| (sum.0 + t.0, sum.1 + t.1))
        };
        let inserted = count(refresh.insert(3).collect());
        assert_eq!(inserted, count(refresh.delete(3).collect()));
        assert_eq!(inserted.0, 150);
        assert!(inserted.1 > 500 && inserted.1 < 700, "{}", inserted.1);
        assert_eq!(Vec::from_iter(refresh.insert(3)), Vec::from_iter(refresh.insert(3)));
        assert_ne!(Vec::from_iter(refresh.insert(3)), Vec::from_iter(refresh.insert(4)));
    }

    #[test]
    fn no_order_is_large_and_every_comment_has_each_pair_of_words() {
        assert!(MOST_LINES * MOST_QUANTITY <= u64::from(LEAST_LARGE_ORDER));
        let comment = comment();
        for first in FIRST_WORDS {
            for second in SECOND_WORDS {
                assert!(comment.split_once(first).unwrap().1.contains(second));
            }
        }
        let column = Table::Orders.columns().iter().find(|(name, _)| *name == "o_comment");
        assert!(matches!(column, Some((_, ColumnType::Varchar(length))) if comment.len() <= *length as usize));
    }
}
