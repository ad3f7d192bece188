//! The SQL that is prepared once per connection.
//!
//! Invariant: a statement's parameters are those that [`super::script`] binds, and its columns those that [`super::answer`]
//! reads.
//!
//! The client's own statements are plain SQL as far as possible, for servers that only speak PostgreSQL's protocol. Each depends
//! only on inputs and on rows, so that a whole transaction can be sent before its first response arrives: instead of using
//! another statement's response, it reads a row that this transaction has updated, and so locked.

use crate::config::Mode;
use bigiron_sql::pg::oid::{INT4, INT4_ARRAY, TEXT, TIMESTAMP};

/// The middle one of a district's customers with one last name: of n in the order of their first names, row ceil(n / 2).
macro_rules! by_name {
    ($warehouse:literal, $district:literal, $name:literal) => {
        concat!(
            "(SELECT (array_agg(c_id ORDER BY c_first COLLATE \"C\", c_id))[(count(*) + 1) / 2] FROM customer WHERE c_w_id = ",
            $warehouse,
            " AND c_d_id = ",
            $district,
            " AND c_last = ",
            $name,
            ")"
        )
    };
}

/// $1 warehouse, $2 district, $3 customer; $4 amount, $5, $6 the terminal's warehouse and district.
macro_rules! pay {
    ($customer:expr) => {
        concat!(
            "UPDATE customer SET c_balance = c_balance - $4, c_ytd_payment = c_ytd_payment + $4, c_payment_cnt = c_payment_cnt + 1, \
             c_data = CASE c_credit WHEN 'BC' \
             THEN left(concat_ws(' ', c_id, c_d_id, c_w_id, $6::integer, $5::integer, $4::integer) || '|' || c_data, 500) \
             ELSE c_data END WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = ",
            $customer,
            " RETURNING c_id, c_balance, c_first, c_last, c_credit, c_discount"
        )
    };
}

macro_rules! history {
    ($customer:expr) => {
        concat!(
            "INSERT INTO history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_amount, h_date, h_data) SELECT ",
            $customer,
            ", $2, $1, d_id, w_id, $4, $7, w_name || '    ' || d_name FROM warehouse, district \
             WHERE w_id = $5 AND d_w_id = $5 AND d_id = $6"
        )
    };
}

macro_rules! customer {
    ($customer:expr) => {
        concat!(
            "SELECT c_id, c_balance, c_first, c_middle, c_last FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = ",
            $customer
        )
    };
}

macro_rules! last_order {
    ($columns:literal, $customer:expr) => {
        concat!(
            "SELECT ",
            $columns,
            " FROM orders WHERE o_w_id = $1 AND o_d_id = $2 AND o_c_id = ",
            $customer,
            " ORDER BY o_id DESC LIMIT 1"
        )
    };
}

macro_rules! last_lines {
    ($customer:expr) => {
        concat!(
            "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line \
             WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = (",
            last_order!("o_id", $customer),
            ")"
        )
    };
}

/// The statements that can be prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statement {
    CallNewOrder,
    CallNewOrderByLine,
    CallPayment,
    CallOrderStatus,
    CallDelivery,
    CallStockLevel,

    Begin,
    /// For read-only transactions: they see one state, and nothing can fail.
    BeginSnapshot,
    Commit,
    Rollback,
    TakeOrderNumber,
    WarehouseTax,
    CustomerDiscount,
    InsertOrder,
    InsertNewOrder,
    TakeStock,
    InsertLine,
    PayById,
    PayByName,
    PayDistrict,
    PayWarehouse,
    HistoryById,
    HistoryByName,
    CustomerById,
    CustomerByName,
    LastOrderById,
    LastOrderByName,
    LastLinesById,
    LastLinesByName,
    DeliverDistrict,
    NextOrderNumber,
    StockLevel,
}

use Statement as S;

const CALLS: &[Statement] =
    &[S::CallNewOrder, S::CallNewOrderByLine, S::CallPayment, S::CallOrderStatus, S::CallDelivery, S::CallStockLevel];

const OWN: &[Statement] = &[
    S::Begin,
    S::BeginSnapshot,
    S::Commit,
    S::Rollback,
    S::TakeOrderNumber,
    S::WarehouseTax,
    S::CustomerDiscount,
    S::InsertOrder,
    S::InsertNewOrder,
    S::TakeStock,
    S::InsertLine,
    S::PayById,
    S::PayByName,
    S::PayDistrict,
    S::PayWarehouse,
    S::HistoryById,
    S::HistoryByName,
    S::CustomerById,
    S::CustomerByName,
    S::LastOrderById,
    S::LastOrderByName,
    S::LastLinesById,
    S::LastLinesByName,
    S::DeliverDistrict,
    S::NextOrderNumber,
    S::StockLevel,
];

impl Statement {
    /// The statements that a mode needs.
    pub fn of(mode: Mode) -> &'static [Statement] {
        match mode {
            Mode::Procedures => CALLS,
            Mode::Pipelined | Mode::RoundTrips => OWN,
        }
    }

    /// The name of the prepared statement. It is sent with every Bind, so it is short.
    pub fn name(self) -> &'static str {
        match self {
            S::CallNewOrder => "c_new",
            S::CallNewOrderByLine => "c_lines",
            S::CallPayment => "c_pay",
            S::CallOrderStatus => "c_status",
            S::CallDelivery => "c_deliver",
            S::CallStockLevel => "c_stock",
            S::Begin => "begin",
            S::BeginSnapshot => "snapshot",
            S::Commit => "commit",
            S::Rollback => "rollback",
            S::TakeOrderNumber => "n_district",
            S::WarehouseTax => "n_tax",
            S::CustomerDiscount => "n_customer",
            S::InsertOrder => "n_order",
            S::InsertNewOrder => "n_new",
            S::TakeStock => "n_stock",
            S::InsertLine => "n_line",
            S::PayById => "p_id",
            S::PayByName => "p_name",
            S::PayDistrict => "p_district",
            S::PayWarehouse => "p_warehouse",
            S::HistoryById => "p_hist_id",
            S::HistoryByName => "p_hist_name",
            S::CustomerById => "o_id",
            S::CustomerByName => "o_name",
            S::LastOrderById => "o_order_id",
            S::LastOrderByName => "o_order_name",
            S::LastLinesById => "o_lines_id",
            S::LastLinesByName => "o_lines_name",
            S::DeliverDistrict => "deliver",
            S::NextOrderNumber => "s_next",
            S::StockLevel => "s_low",
        }
    }

    pub fn sql(self) -> &'static str {
        match self {
            S::CallNewOrder => "SELECT bigiron.new_order($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            S::CallNewOrderByLine => "SELECT bigiron.new_order_by_line($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            S::CallPayment => "SELECT bigiron.payment($1, $2, $3, $4, $5, $6, $7, $8)",
            S::CallOrderStatus => {
                "SELECT c, balance, o, items, entered, carrier, supplies, quantities, amounts, delivered \
                 FROM bigiron.order_status($1, $2, $3, $4)"
            }
            S::CallDelivery => "SELECT bigiron.delivery($1, $2, $3)",
            S::CallStockLevel => "SELECT bigiron.stock_level($1, $2, $3)",

            S::Begin => "BEGIN",
            S::BeginSnapshot => "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY",
            S::Commit => "COMMIT",
            S::Rollback => "ROLLBACK",
            S::TakeOrderNumber => {
                "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = $1 AND d_id = $2 \
                 RETURNING d_next_o_id - 1, d_tax"
            }
            S::WarehouseTax => "SELECT w_tax FROM warehouse WHERE w_id = $1",
            S::CustomerDiscount => {
                "SELECT c_discount, c_last, c_credit FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3"
            }
            S::InsertOrder => {
                "INSERT INTO orders (o_w_id, o_d_id, o_id, o_c_id, o_ol_cnt, o_all_local, o_entry_d) \
                 SELECT d_w_id, d_id, d_next_o_id - 1, $3, $4, $5, $6 FROM district WHERE d_w_id = $1 AND d_id = $2"
            }
            S::InsertNewOrder => {
                "INSERT INTO new_order (no_w_id, no_d_id, no_o_id) \
                 SELECT d_w_id, d_id, d_next_o_id - 1 FROM district WHERE d_w_id = $1 AND d_id = $2"
            }
            // $1 warehouse, $2 item, $3 quantity, $4 1 if the order comes from another warehouse.
            S::TakeStock => {
                "UPDATE stock SET s_quantity = s_quantity - $3 + CASE WHEN s_quantity - $3 >= 10 THEN 0 ELSE 91 END, \
                 s_ytd = s_ytd + $3, s_order_cnt = s_order_cnt + 1, s_remote_cnt = s_remote_cnt + $4 \
                 WHERE s_w_id = $1 AND s_i_id = $2 RETURNING s_quantity"
            }
            // $1, $2 warehouse and district of the order, $3 number of the line, $4 supply warehouse, $5 item, $6 quantity.
            S::InsertLine => {
                "INSERT INTO order_line (ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, \
                 ol_dist_info) SELECT d_w_id, d_id, d_next_o_id - 1, $3, i_id, s_w_id, $6, $6 * i_price, \
                 CASE d_id WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02 WHEN 3 THEN s_dist_03 WHEN 4 THEN s_dist_04 \
                 WHEN 5 THEN s_dist_05 WHEN 6 THEN s_dist_06 WHEN 7 THEN s_dist_07 WHEN 8 THEN s_dist_08 \
                 WHEN 9 THEN s_dist_09 ELSE s_dist_10 END FROM district, item, stock \
                 WHERE d_w_id = $1 AND d_id = $2 AND i_id = $5 AND s_w_id = $4 AND s_i_id = $5 RETURNING ol_amount"
            }
            S::PayById => pay!("$3"),
            S::PayByName => pay!(by_name!("$1", "$2", "$3")),
            S::PayDistrict => {
                "UPDATE district SET d_ytd = d_ytd + $3 WHERE d_w_id = $1 AND d_id = $2 \
                 RETURNING d_name, d_street_1, d_street_2, d_city, d_state, d_zip"
            }
            S::PayWarehouse => {
                "UPDATE warehouse SET w_ytd = w_ytd + $2 WHERE w_id = $1 \
                 RETURNING w_name, w_street_1, w_street_2, w_city, w_state, w_zip"
            }
            S::HistoryById => history!("$3"),
            S::HistoryByName => history!(by_name!("$1", "$2", "$3")),
            S::CustomerById => customer!("$3"),
            S::CustomerByName => customer!(by_name!("$1", "$2", "$3")),
            S::LastOrderById => last_order!("o_id, o_entry_d, o_carrier_id", "$3"),
            S::LastOrderByName => last_order!("o_id, o_entry_d, o_carrier_id", by_name!("$1", "$2", "$3")),
            S::LastLinesById => last_lines!("$3"),
            S::LastLinesByName => last_lines!(by_name!("$1", "$2", "$3")),
            // $1 warehouse, $2 district, $3 carrier, $4 date. One statement, because afterwards nothing in the tables would
            // identify the order. FOR UPDATE skips an order that another delivery has taken meanwhile, after having waited for
            // it.
            S::DeliverDistrict => {
                "WITH oldest AS (DELETE FROM new_order WHERE no_w_id = $1 AND no_d_id = $2 AND no_o_id = \
                 (SELECT no_o_id FROM new_order WHERE no_w_id = $1 AND no_d_id = $2 ORDER BY no_o_id LIMIT 1 FOR UPDATE) \
                 RETURNING no_o_id), \
                 carried AS (UPDATE orders SET o_carrier_id = $3 FROM oldest WHERE o_w_id = $1 AND o_d_id = $2 AND o_id = no_o_id \
                 RETURNING o_id, o_c_id), \
                 dated AS (UPDATE order_line SET ol_delivery_d = $4 FROM oldest WHERE ol_w_id = $1 AND ol_d_id = $2 \
                 AND ol_o_id = no_o_id RETURNING ol_amount) \
                 UPDATE customer SET c_balance = c_balance + amount, c_delivery_cnt = c_delivery_cnt + 1 \
                 FROM carried, (SELECT sum(ol_amount)::bigint AS amount FROM dated) AS lines \
                 WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = o_c_id RETURNING o_id"
            }
            S::NextOrderNumber => "SELECT d_next_o_id FROM district WHERE d_w_id = $1 AND d_id = $2",
            S::StockLevel => {
                "SELECT count(DISTINCT s_i_id) FROM district, order_line, stock \
                 WHERE d_w_id = $1 AND d_id = $2 AND ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id >= d_next_o_id - 20 \
                 AND ol_o_id < d_next_o_id AND s_w_id = $1 AND s_i_id = ol_i_id AND s_quantity < $3"
            }
        }
    }

    /// The types of its parameters.
    pub fn types(self) -> &'static [u32] {
        match self {
            S::CallNewOrder | S::CallNewOrderByLine => {
                &[INT4, INT4, INT4, INT4, TIMESTAMP, INT4_ARRAY, INT4_ARRAY, INT4_ARRAY, INT4_ARRAY]
            }
            S::CallPayment => &[INT4, INT4, INT4, INT4, INT4, TEXT, INT4, TIMESTAMP],
            S::CallOrderStatus => &[INT4, INT4, INT4, TEXT],
            S::CallDelivery => &[INT4, INT4, TIMESTAMP],
            S::CallStockLevel => &[INT4, INT4, INT4],
            S::Begin | S::BeginSnapshot | S::Commit | S::Rollback => &[],
            S::WarehouseTax => &[INT4],
            S::TakeOrderNumber | S::InsertNewOrder | S::NextOrderNumber | S::PayWarehouse => &[INT4, INT4],
            S::CustomerDiscount | S::CustomerById | S::LastOrderById | S::LastLinesById => &[INT4, INT4, INT4],
            S::PayDistrict | S::StockLevel => &[INT4, INT4, INT4],
            S::CustomerByName | S::LastOrderByName | S::LastLinesByName => &[INT4, INT4, TEXT],
            S::InsertOrder => &[INT4, INT4, INT4, INT4, INT4, TIMESTAMP],
            S::TakeStock => &[INT4, INT4, INT4, INT4],
            S::InsertLine => &[INT4, INT4, INT4, INT4, INT4, INT4],
            S::PayById => &[INT4, INT4, INT4, INT4, INT4, INT4],
            S::PayByName => &[INT4, INT4, TEXT, INT4, INT4, INT4],
            S::HistoryById => &[INT4, INT4, INT4, INT4, INT4, INT4, TIMESTAMP],
            S::HistoryByName => &[INT4, INT4, TEXT, INT4, INT4, INT4, TIMESTAMP],
            S::DeliverDistrict => &[INT4, INT4, INT4, TIMESTAMP],
        }
    }
}
