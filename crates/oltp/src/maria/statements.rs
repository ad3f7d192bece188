//! The transactions' statements in MariaDB's SQL.
//!
//! Invariant: the parts of a statement take its parameters, by number, and together do what PostgreSQL's statement does; only an answering part
//! returns what [`crate::sql::answer`] reads.
//!
//! Where PostgreSQL returns rows of an update, the row is read afterwards: it is locked. What a later part needs of an earlier one is kept in a
//! variable of the session, so that no part waits for an answer.

use crate::sql::Statement as S;

/// What is expected of a part's response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Nothing.
    Any,
    /// One row was changed.
    One,
    /// Its rows, or the number of rows that it changed, are the statement's.
    Answer,
}

/// One statement of the server.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    pub sql: &'static str,
    /// For each `?` the number of the statement's parameter, from 0.
    pub parameters: &'static [usize],
    pub expect: Expect,
}

const fn any(sql: &'static str, parameters: &'static [usize]) -> Part {
    Part { sql, parameters, expect: Expect::Any }
}

const fn one(sql: &'static str, parameters: &'static [usize]) -> Part {
    Part { sql, parameters, expect: Expect::One }
}

const fn answer(sql: &'static str, parameters: &'static [usize]) -> Part {
    Part { sql, parameters, expect: Expect::Answer }
}

/// The middle one of a district's customers with one last name: of n in the order of their first names, row ceil(n / 2).
const NAMED: Part = any(
    "SET @customer = (SELECT c_id FROM (SELECT c_id, row_number() OVER (ORDER BY c_first, c_id) AS place, count(*) OVER () AS n \
     FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_last = ?) AS of_name WHERE place = (n + 1) DIV 2)",
    &[0, 1, 2],
);

macro_rules! pay {
    ($customer:literal) => {
        concat!(
            "UPDATE customer SET c_balance = c_balance - ?, c_ytd_payment = c_ytd_payment + ?, c_payment_cnt = c_payment_cnt + 1, \
             c_data = CASE c_credit WHEN 'BC' \
             THEN left(concat(concat_ws(' ', c_id, c_d_id, c_w_id, ?, ?, ?), '|', c_data), 500) ELSE c_data END \
             WHERE c_w_id = ? AND c_d_id = ? AND c_id = ",
            $customer
        )
    };
}

macro_rules! paid {
    ($customer:literal) => {
        concat!(
            "SELECT c_id, c_balance, c_first, c_last, c_credit, c_discount FROM customer \
             WHERE c_w_id = ? AND c_d_id = ? AND c_id = ",
            $customer
        )
    };
}

macro_rules! history {
    ($customer:literal) => {
        concat!(
            "INSERT INTO history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_amount, h_date, h_data) SELECT ",
            $customer,
            ", ?, ?, d_id, w_id, ?, ?, concat(w_name, '    ', d_name) FROM warehouse, district \
             WHERE w_id = ? AND d_w_id = ? AND d_id = ?"
        )
    };
}

macro_rules! customer {
    ($customer:literal) => {
        concat!(
            "SELECT c_id, c_balance, c_first, c_middle, c_last FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_id = ",
            $customer
        )
    };
}

macro_rules! last_order {
    ($columns:literal, $customer:literal) => {
        concat!(
            "SELECT ",
            $columns,
            " FROM orders WHERE o_w_id = ? AND o_d_id = ? AND o_c_id = ",
            $customer,
            " ORDER BY o_id DESC LIMIT 1"
        )
    };
}

macro_rules! last_lines {
    ($customer:literal) => {
        concat!(
            "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line \
             WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = (",
            last_order!("o_id", $customer),
            ")"
        )
    };
}

/// The parts of a statement, in their order.
pub fn parts(statement: S) -> &'static [Part] {
    match statement {
        S::CallNewOrder | S::CallNewOrderByLine => {
            const { &[answer("CALL new_order(?, ?, ?, ?, ?, ?, ?, ?, ?)", &[0, 1, 2, 3, 4, 5, 6, 7, 8])] }
        }
        S::CallPayment => const { &[answer("CALL payment(?, ?, ?, ?, ?, ?, ?, ?)", &[0, 1, 2, 3, 4, 5, 6, 7])] },
        S::CallOrderStatus => const { &[answer("CALL order_status(?, ?, ?, ?)", &[0, 1, 2, 3])] },
        S::CallDelivery => const { &[answer("CALL delivery(?, ?, ?)", &[0, 1, 2])] },
        S::CallStockLevel => const { &[answer("CALL stock_level(?, ?, ?)", &[0, 1, 2])] },
        S::Begin => const { &[answer("START TRANSACTION", &[])] },
        S::BeginSnapshot => {
            const {
                &[
                    any("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", &[]),
                    answer("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY", &[]),
                ]
            }
        }
        S::Commit => const { &[answer("COMMIT", &[])] },
        S::Rollback => const { &[answer("ROLLBACK", &[])] },
        S::TakeOrderNumber => {
            const {
                &[
                    one("UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = ? AND d_id = ?", &[0, 1]),
                    answer("SELECT d_next_o_id - 1, d_tax FROM district WHERE d_w_id = ? AND d_id = ?", &[0, 1]),
                ]
            }
        }
        S::WarehouseTax => const { &[answer("SELECT w_tax FROM warehouse WHERE w_id = ?", &[0])] },
        S::CustomerDiscount => {
            const {
                &[answer(
                    "SELECT c_discount, c_last, c_credit FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
                    &[0, 1, 2],
                )]
            }
        }
        S::InsertOrder => {
            const {
                &[answer(
                    "INSERT INTO orders (o_w_id, o_d_id, o_id, o_c_id, o_ol_cnt, o_all_local, o_entry_d) \
                     SELECT d_w_id, d_id, d_next_o_id - 1, ?, ?, ?, ? FROM district WHERE d_w_id = ? AND d_id = ?",
                    &[2, 3, 4, 5, 0, 1],
                )]
            }
        }
        S::InsertNewOrder => {
            const {
                &[answer(
                    "INSERT INTO new_order (no_w_id, no_d_id, no_o_id) \
                     SELECT d_w_id, d_id, d_next_o_id - 1 FROM district WHERE d_w_id = ? AND d_id = ?",
                    &[0, 1],
                )]
            }
        }
        // Assignments are made from left to right, and each reads only its own column.
        S::TakeStock => {
            const {
                &[
                    any(
                        "UPDATE stock SET s_quantity = s_quantity - ? + CASE WHEN s_quantity - ? >= 10 THEN 0 ELSE 91 END, \
                         s_ytd = s_ytd + ?, s_order_cnt = s_order_cnt + 1, s_remote_cnt = s_remote_cnt + ? \
                         WHERE s_w_id = ? AND s_i_id = ?",
                        &[2, 2, 2, 3, 0, 1],
                    ),
                    answer("SELECT s_quantity FROM stock WHERE s_w_id = ? AND s_i_id = ?", &[0, 1]),
                ]
            }
        }
        S::InsertLine => {
            const {
                &[answer(
                    "INSERT INTO order_line (ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, \
                     ol_dist_info) SELECT d_w_id, d_id, d_next_o_id - 1, ?, i_id, s_w_id, ?, ? * i_price, \
                     CASE d_id WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02 WHEN 3 THEN s_dist_03 WHEN 4 THEN s_dist_04 \
                     WHEN 5 THEN s_dist_05 WHEN 6 THEN s_dist_06 WHEN 7 THEN s_dist_07 WHEN 8 THEN s_dist_08 \
                     WHEN 9 THEN s_dist_09 ELSE s_dist_10 END FROM district, item, stock \
                     WHERE d_w_id = ? AND d_id = ? AND i_id = ? AND s_w_id = ? AND s_i_id = ? RETURNING ol_amount",
                    &[2, 5, 5, 0, 1, 4, 3, 4],
                )]
            }
        }
        S::PayById => const { &[one(pay!("?"), &[3, 3, 5, 4, 3, 0, 1, 2]), answer(paid!("?"), &[0, 1, 2])] },
        S::PayByName => {
            const { &[NAMED, one(pay!("@customer"), &[3, 3, 5, 4, 3, 0, 1]), answer(paid!("@customer"), &[0, 1])] }
        }
        S::PayDistrict => {
            const {
                &[
                    one("UPDATE district SET d_ytd = d_ytd + ? WHERE d_w_id = ? AND d_id = ?", &[2, 0, 1]),
                    answer(
                        "SELECT d_name, d_street_1, d_street_2, d_city, d_state, d_zip FROM district \
                         WHERE d_w_id = ? AND d_id = ?",
                        &[0, 1],
                    ),
                ]
            }
        }
        S::PayWarehouse => {
            const {
                &[
                    one("UPDATE warehouse SET w_ytd = w_ytd + ? WHERE w_id = ?", &[1, 0]),
                    answer(
                        "SELECT w_name, w_street_1, w_street_2, w_city, w_state, w_zip FROM warehouse WHERE w_id = ?",
                        &[0],
                    ),
                ]
            }
        }
        S::HistoryById => const { &[answer(history!("?"), &[2, 1, 0, 3, 6, 4, 4, 5])] },
        // After PayByName of the same transaction.
        S::HistoryByName => const { &[answer(history!("@customer"), &[1, 0, 3, 6, 4, 4, 5])] },
        S::CustomerById => const { &[answer(customer!("?"), &[0, 1, 2])] },
        S::CustomerByName => const { &[NAMED, answer(customer!("@customer"), &[0, 1])] },
        S::LastOrderById => const { &[answer(last_order!("o_id, o_entry_d, o_carrier_id", "?"), &[0, 1, 2])] },
        S::LastOrderByName => const { &[answer(last_order!("o_id, o_entry_d, o_carrier_id", "@customer"), &[0, 1])] },
        S::LastLinesById => const { &[answer(last_lines!("?"), &[0, 1, 0, 1, 2])] },
        S::LastLinesByName => const { &[answer(last_lines!("@customer"), &[0, 1, 0, 1])] },
        S::DeliverDistrict => {
            const {
                &[
                    any("SET @waiting = NULL", &[]),
                    // Waits for another delivery that has taken it, and then takes the next.
                    any(
                        "SELECT no_o_id INTO @waiting FROM new_order WHERE no_w_id = ? AND no_d_id = ? \
                         ORDER BY no_o_id LIMIT 1 FOR UPDATE",
                        &[0, 1],
                    ),
                    any("DELETE FROM new_order WHERE no_w_id = ? AND no_d_id = ? AND no_o_id = @waiting", &[0, 1]),
                    any(
                        "UPDATE orders SET o_carrier_id = ? WHERE o_w_id = ? AND o_d_id = ? AND o_id = @waiting",
                        &[2, 0, 1],
                    ),
                    any(
                        "UPDATE order_line SET ol_delivery_d = ? WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = @waiting",
                        &[3, 0, 1],
                    ),
                    any(
                        "UPDATE customer SET c_balance = c_balance + (SELECT sum(ol_amount) FROM order_line \
                         WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = @waiting), c_delivery_cnt = c_delivery_cnt + 1 \
                         WHERE c_w_id = ? AND c_d_id = ? AND c_id = (SELECT o_c_id FROM orders \
                         WHERE o_w_id = ? AND o_d_id = ? AND o_id = @waiting)",
                        &[0, 1, 0, 1, 0, 1],
                    ),
                    answer("SELECT @waiting FROM DUAL WHERE @waiting IS NOT NULL", &[]),
                ]
            }
        }
        S::NextOrderNumber => {
            const { &[answer("SELECT d_next_o_id FROM district WHERE d_w_id = ? AND d_id = ?", &[0, 1])] }
        }
        S::StockLevel => {
            const {
                &[answer(
                    "SELECT STRAIGHT_JOIN count(DISTINCT s_i_id) FROM district, order_line, stock \
                     WHERE d_w_id = ? AND d_id = ? AND ol_w_id = d_w_id AND ol_d_id = d_id AND ol_o_id >= d_next_o_id - 20 \
                     AND ol_o_id < d_next_o_id AND s_w_id = d_w_id AND s_i_id = ol_i_id AND s_quantity < ?",
                    &[0, 1, 2],
                )]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Mode;

    #[test]
    fn parts_take_what_their_statement_has_and_one_answers() {
        for &statement in [Mode::RoundTrips, Mode::Procedures].into_iter().flat_map(S::of) {
            let parts = parts(statement);
            assert_eq!(parts.iter().filter(|part| part.expect == Expect::Answer).count(), 1, "{statement:?}");
            for part in parts {
                assert_eq!(part.sql.matches('?').count(), part.parameters.len(), "{}", part.sql);
                assert!(part.parameters.iter().all(|n| *n < statement.types().len()), "{}", part.sql);
            }
        }
    }
}
