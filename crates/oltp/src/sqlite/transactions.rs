//! The work of each of the five transactions between BEGIN and COMMIT (TPC-C, clauses 2.4.2 to 2.8.2).
//!
//! Invariant: the resulting rows depend only on the request and on the earlier rows, and equal PostgreSQL's to the byte.

use rusqlite::{Connection, Error, OptionalExtension, Result, params};

use super::super::input::{Customer, Input, OrderLine, Request};
use super::super::output::Output;
use super::super::random::last_name;
use super::super::scale::DISTRICTS;

/// Bytes of C_DATA.
const C_DATA: usize = 500;

/// The stock row of a line with its item's price; one statement for each district, because each has its own column.
const STOCK: [&str; DISTRICTS as usize] = {
    macro_rules! stock {
        ($($column:literal)*) => {
            [$(concat!(
                "SELECT i_price, s_quantity, ", $column, ", i_name, i_data, s_data ",
                "FROM item, stock WHERE i_id = ?1 AND s_w_id = ?2 AND s_i_id = ?1"
            )),*]
        };
    }
    stock!("s_dist_01" "s_dist_02" "s_dist_03" "s_dist_04" "s_dist_05" "s_dist_06" "s_dist_07" "s_dist_08" "s_dist_09" "s_dist_10")
};

/// Everything except BEGIN and COMMIT or, after [`Output::RolledBack`], ROLLBACK.
pub(super) fn run(connection: &Connection, request: &Request) -> Result<Output> {
    let date = request.date;
    match &request.input {
        Input::NewOrder { warehouse, district, customer, lines } => {
            new_order(connection, *warehouse, *district, *customer, lines, date)
        }
        Input::Payment { .. } => payment(connection, &request.input, date),
        Input::OrderStatus { warehouse, district, customer } => {
            order_status(connection, *warehouse, *district, *customer)
        }
        Input::Delivery { warehouse, carrier } => delivery(connection, *warehouse, *carrier, date),
        Input::StockLevel { warehouse, district, threshold } => {
            stock_level(connection, *warehouse, *district, *threshold)
        }
    }
}

fn new_order(
    c: &Connection,
    warehouse: u32,
    district: u32,
    customer: u32,
    lines: &[OrderLine],
    date: i64,
) -> Result<Output> {
    let w_tax: i64 =
        c.prepare_cached("SELECT w_tax FROM warehouse WHERE w_id = ?1")?.query_row([warehouse], |row| row.get(0))?;
    let (order, d_tax): (u32, i64) = c
        .prepare_cached("SELECT d_next_o_id, d_tax FROM district WHERE d_w_id = ?1 AND d_id = ?2")?
        .query_row([warehouse, district], |row| Ok((row.get(0)?, row.get(1)?)))?;
    changed(c.prepare_cached("UPDATE district SET d_next_o_id = ?3 WHERE d_w_id = ?1 AND d_id = ?2")?.execute([
        warehouse,
        district,
        order + 1,
    ])?)?;
    let discount: i64 = c
        .prepare_cached(
            "SELECT c_discount, c_last, c_credit FROM customer WHERE c_w_id = ?1 AND c_d_id = ?2 AND c_id = ?3",
        )?
        .query_row([warehouse, district, customer], |row| row.get(0))?;
    let local = lines.iter().all(|line| line.supply_warehouse == warehouse);
    c.prepare_cached(
        "INSERT INTO orders (o_w_id, o_d_id, o_id, o_c_id, o_carrier_id, o_ol_cnt, o_all_local, o_entry_d) \
         VALUES (?1, ?2, ?3, ?4, NULL, ?5, ?6, ?7)",
    )?
    .execute(params![warehouse, district, order, customer, lines.len() as i64, local, date])?;
    c.prepare_cached("INSERT INTO new_order (no_w_id, no_d_id, no_o_id) VALUES (?1, ?2, ?3)")?
        .execute([warehouse, district, order])?;

    let column = STOCK.get((district as usize).wrapping_sub(1)).ok_or(Error::QueryReturnedNoRows)?;
    let mut find = c.prepare_cached(column)?;
    let mut take = c.prepare_cached(
        "UPDATE stock SET s_quantity = ?3, s_ytd = s_ytd + ?4, s_order_cnt = s_order_cnt + 1, s_remote_cnt = s_remote_cnt + ?5 \
         WHERE s_w_id = ?1 AND s_i_id = ?2",
    )?;
    let mut insert = c.prepare_cached(
        "INSERT INTO order_line (ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, \
         ol_delivery_d, ol_dist_info) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, NULL, ?9)",
    )?;
    let mut sum = 0;
    let mut info = String::with_capacity(24);
    for (line, number) in lines.iter().zip(1_u32..) {
        let OrderLine { item, supply_warehouse: supply, quantity } = *line;
        let found = find
            .query_row([item, supply], |row| {
                info.clear();
                info.push_str(row.get_ref(2)?.as_str()?);
                Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
            })
            .optional()?;
        let Some((price, stock)) = found else { return missing(c, item) };
        let asked = i64::from(quantity);
        let left = if stock - asked >= 10 { stock - asked } else { stock - asked + 91 };
        let amount = asked * price;
        sum += amount;
        take.execute(params![supply, item, left, asked, supply != warehouse])?;
        insert.execute(params![warehouse, district, order, number, item, supply, quantity, amount, info])?;
    }
    let total = sum * (10_000 - discount) * (10_000 + w_tax + d_tax) / 100_000_000;
    Ok(Output::NewOrder { order, total })
}

/// A missing item is the input's request for a rollback; a missing stock is an error.
fn missing(c: &Connection, item: u32) -> Result<Output> {
    if c.prepare_cached("SELECT 1 FROM item WHERE i_id = ?1")?.exists([item])? {
        return Err(Error::QueryReturnedNoRows);
    }
    Ok(Output::RolledBack)
}

/// Checks that a row that must exist was changed.
fn changed(rows: usize) -> Result<()> {
    if rows == 1 { Ok(()) } else { Err(Error::StatementChangedRows(rows)) }
}

/// C_ID; by name, the middle one in the order of first names, the earlier of two.
fn find(c: &Connection, warehouse: u32, district: u32, customer: Customer) -> Result<u32> {
    let name = match customer {
        Customer::Id(id) => return Ok(id),
        Customer::LastName(number) => last_name(number),
    };
    let mut statement = c.prepare_cached(
        "SELECT c_id FROM customer WHERE c_w_id = ?1 AND c_d_id = ?2 AND c_last = ?3 ORDER BY c_first, c_id",
    )?;
    let ids = statement.query_map(params![warehouse, district, name], |row| row.get(0))?;
    let ids: Vec<u32> = ids.collect::<Result<_>>()?;
    ids.get(ids.len().div_ceil(2).wrapping_sub(1)).copied().ok_or(Error::QueryReturnedNoRows)
}

fn payment(c: &Connection, input: &Input, date: i64) -> Result<Output> {
    let &Input::Payment { warehouse, district, customer_warehouse, customer_district, customer, amount } = input else {
        unreachable!("only payments are paid");
    };
    let w_name: String = c
        .prepare_cached("SELECT w_name, w_street_1, w_street_2, w_city, w_state, w_zip FROM warehouse WHERE w_id = ?1")?
        .query_row([warehouse], |row| row.get(0))?;
    changed(
        c.prepare_cached("UPDATE warehouse SET w_ytd = w_ytd + ?2 WHERE w_id = ?1")?.execute([warehouse, amount])?,
    )?;
    let d_name: String = c
        .prepare_cached(
            "SELECT d_name, d_street_1, d_street_2, d_city, d_state, d_zip FROM district WHERE d_w_id = ?1 AND d_id = ?2",
        )?
        .query_row([warehouse, district], |row| row.get(0))?;
    changed(
        c.prepare_cached("UPDATE district SET d_ytd = d_ytd + ?3 WHERE d_w_id = ?1 AND d_id = ?2")?
            .execute([warehouse, district, amount])?,
    )?;

    let id = find(c, customer_warehouse, customer_district, customer)?;
    let key = [customer_warehouse, customer_district, id];
    let (balance, data): (i64, Option<String>) = c
        .prepare_cached(
            "SELECT c_balance, c_credit, c_data, c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip, \
             c_phone, c_since, c_credit_lim, c_discount FROM customer WHERE c_w_id = ?1 AND c_d_id = ?2 AND c_id = ?3",
        )?
        .query_row(key, |row| {
            let bad = row.get_ref(1)?.as_str()? == "BC";
            Ok((row.get(0)?, if bad { Some(row.get(2)?) } else { None }))
        })?;
    let balance = balance - i64::from(amount);
    if let Some(old) = data {
        let mut data = format!("{id} {customer_district} {customer_warehouse} {district} {warehouse} {amount}|{old}");
        data.truncate(data.floor_char_boundary(C_DATA));
        changed(
            c.prepare_cached(
                "UPDATE customer SET c_balance = ?4, c_ytd_payment = c_ytd_payment + ?5, c_payment_cnt = c_payment_cnt + 1, \
                 c_data = ?6 WHERE c_w_id = ?1 AND c_d_id = ?2 AND c_id = ?3",
            )?
            .execute(params![key[0], key[1], key[2], balance, amount, data])?,
        )?;
    } else {
        changed(
            c.prepare_cached(
                "UPDATE customer SET c_balance = ?4, c_ytd_payment = c_ytd_payment + ?5, c_payment_cnt = c_payment_cnt + 1 \
                 WHERE c_w_id = ?1 AND c_d_id = ?2 AND c_id = ?3",
            )?
            .execute(params![key[0], key[1], key[2], balance, amount])?,
        )?;
    }
    c.prepare_cached(
        "INSERT INTO history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_amount, h_date, h_data) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?
    .execute(params![
        id,
        customer_district,
        customer_warehouse,
        district,
        warehouse,
        amount,
        date,
        format!("{w_name}    {d_name}")
    ])?;
    Ok(Output::Payment { customer: id, balance })
}

fn order_status(c: &Connection, warehouse: u32, district: u32, customer: Customer) -> Result<Output> {
    let customer = find(c, warehouse, district, customer)?;
    let key = [warehouse, district, customer];
    let balance = c
        .prepare_cached(
            "SELECT c_balance, c_first, c_middle, c_last FROM customer WHERE c_w_id = ?1 AND c_d_id = ?2 AND c_id = ?3",
        )?
        .query_row(key, |row| row.get(0))?;
    let order: Option<u32> = c
        .prepare_cached(
            "SELECT o_id, o_entry_d, o_carrier_id FROM orders WHERE o_w_id = ?1 AND o_d_id = ?2 AND o_c_id = ?3 \
             ORDER BY o_id DESC LIMIT 1",
        )?
        .query_row(key, |row| row.get(0))
        .optional()?;
    let Some(order) = order else { return Ok(Output::OrderStatus { customer, balance, order: 0, lines: 0 }) };
    let mut statement = c.prepare_cached(
        "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line \
         WHERE ol_w_id = ?1 AND ol_d_id = ?2 AND ol_o_id = ?3",
    )?;
    let mut rows = statement.query([warehouse, district, order])?;
    let mut lines = 0;
    while rows.next()?.is_some() {
        lines += 1;
    }
    Ok(Output::OrderStatus { customer, balance, order, lines })
}

fn delivery(c: &Connection, warehouse: u32, carrier: u32, date: i64) -> Result<Output> {
    let mut oldest =
        c.prepare_cached("SELECT no_o_id FROM new_order WHERE no_w_id = ?1 AND no_d_id = ?2 ORDER BY no_o_id LIMIT 1")?;
    let mut delete = c.prepare_cached("DELETE FROM new_order WHERE no_w_id = ?1 AND no_d_id = ?2 AND no_o_id = ?3")?;
    let mut whose = c.prepare_cached("SELECT o_c_id FROM orders WHERE o_w_id = ?1 AND o_d_id = ?2 AND o_id = ?3")?;
    let mut carry =
        c.prepare_cached("UPDATE orders SET o_carrier_id = ?4 WHERE o_w_id = ?1 AND o_d_id = ?2 AND o_id = ?3")?;
    let mut add =
        c.prepare_cached("SELECT sum(ol_amount) FROM order_line WHERE ol_w_id = ?1 AND ol_d_id = ?2 AND ol_o_id = ?3")?;
    let mut stamp = c.prepare_cached(
        "UPDATE order_line SET ol_delivery_d = ?4 WHERE ol_w_id = ?1 AND ol_d_id = ?2 AND ol_o_id = ?3",
    )?;
    let mut credit = c.prepare_cached(
        "UPDATE customer SET c_balance = c_balance + ?4, c_delivery_cnt = c_delivery_cnt + 1 \
         WHERE c_w_id = ?1 AND c_d_id = ?2 AND c_id = ?3",
    )?;
    let mut delivered = 0;
    for district in 1..=DISTRICTS {
        let order: Option<u32> = oldest.query_row([warehouse, district], |row| row.get(0)).optional()?;
        let Some(order) = order else { continue };
        let key = [warehouse, district, order];
        changed(delete.execute(key)?)?;
        let customer: u32 = whose.query_row(key, |row| row.get(0))?;
        changed(carry.execute([warehouse, district, order, carrier])?)?;
        let amount: i64 = add.query_row(key, |row| row.get(0))?;
        stamp.execute(params![warehouse, district, order, date])?;
        changed(credit.execute(params![warehouse, district, customer, amount])?)?;
        delivered += 1;
    }
    Ok(Output::Delivery { delivered })
}

fn stock_level(c: &Connection, warehouse: u32, district: u32, threshold: u32) -> Result<Output> {
    let next: i64 = c
        .prepare_cached("SELECT d_next_o_id FROM district WHERE d_w_id = ?1 AND d_id = ?2")?
        .query_row([warehouse, district], |row| row.get(0))?;
    // Forces the lines into the outer loop: there are 200, but 100,000 stocks in the warehouse.
    let low = c
        .prepare_cached(
            "SELECT count(DISTINCT ol_i_id) FROM order_line CROSS JOIN stock \
             WHERE ol_w_id = ?1 AND ol_d_id = ?2 AND ol_o_id >= ?3 AND ol_o_id < ?4 \
             AND s_w_id = ?1 AND s_i_id = ol_i_id AND s_quantity < ?5",
        )?
        .query_row(params![warehouse, district, next - 20, next, threshold], |row| row.get(0))?;
    Ok(Output::StockLevel { low })
}
