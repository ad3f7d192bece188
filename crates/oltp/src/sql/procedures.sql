-- The five transactions as functions of PostgreSQL: one call, one answer. Installed by `install_procedures`.
--
-- Rows are locked in one order by all of them: NEW-ORDER, customer, district, warehouse, stock by (warehouse, item).
-- Money is in cents, rates are in ten thousandths.

CREATE SCHEMA IF NOT EXISTS bigiron;

CREATE OR REPLACE FUNCTION bigiron.new_order(
    w integer, d integer, c integer, local integer, at timestamp,
    numbers integer[], items integer[], supplies integer[], quantities integer[])
RETURNS bigint[] LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    o integer;
    tax integer;
    rest integer;
    found_lines integer;
    amount bigint;
BEGIN
    UPDATE district SET d_next_o_id = d_next_o_id + 1
      FROM warehouse, customer
     WHERE d_w_id = w AND d_id = d AND w_id = w AND c_w_id = w AND c_d_id = d AND c_id = c
    RETURNING d_next_o_id - 1, 10000 + w_tax + d_tax, 10000 - c_discount INTO o, tax, rest;
    INSERT INTO orders (o_w_id, o_d_id, o_id, o_c_id, o_ol_cnt, o_all_local, o_entry_d)
    VALUES (w, d, o, c, cardinality(items), local, at);
    INSERT INTO new_order (no_w_id, no_d_id, no_o_id) VALUES (w, d, o);
    -- The lines come sorted by (warehouse, item), and are updated as they come.
    WITH taken AS (
        UPDATE stock
           SET s_quantity = s_quantity - q + CASE WHEN s_quantity - q >= 10 THEN 0 ELSE 91 END,
               s_ytd = s_ytd + q,
               s_order_cnt = s_order_cnt + 1,
               s_remote_cnt = s_remote_cnt + CASE WHEN supply = w THEN 0 ELSE 1 END
          FROM unnest(numbers, items, supplies, quantities) AS line (number, item, supply, q)
          JOIN item ON i_id = line.item
         WHERE s_w_id = supply AND s_i_id = line.item
        RETURNING number, line.item, supply, q, q * i_price AS price,
            CASE d WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02 WHEN 3 THEN s_dist_03 WHEN 4 THEN s_dist_04
                   WHEN 5 THEN s_dist_05 WHEN 6 THEN s_dist_06 WHEN 7 THEN s_dist_07 WHEN 8 THEN s_dist_08
                   WHEN 9 THEN s_dist_09 ELSE s_dist_10 END AS dist
    ), written AS (
        INSERT INTO order_line (ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_dist_info)
        SELECT w, d, o, number, item, supply, q, price, dist FROM taken
        RETURNING ol_amount
    )
    SELECT count(*), sum(ol_amount) INTO found_lines, amount FROM written;
    IF found_lines <> cardinality(items) THEN
        RAISE EXCEPTION 'An item is not in stock, or is asked for twice' USING ERRCODE = 'BG001';
    END IF;
    RETURN ARRAY[o, amount * rest * tax / 100000000];
END $$;

-- The same for an order that names an item of a warehouse twice, which one UPDATE would take only once: line by line.
CREATE OR REPLACE FUNCTION bigiron.new_order_by_line(
    w integer, d integer, c integer, local integer, at timestamp,
    numbers integer[], items integer[], supplies integer[], quantities integer[])
RETURNS bigint[] LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    o integer;
    tax integer;
    rest integer;
    price integer;
    q integer;
    dist text;
    amount bigint = 0;
BEGIN
    UPDATE district SET d_next_o_id = d_next_o_id + 1
      FROM warehouse, customer
     WHERE d_w_id = w AND d_id = d AND w_id = w AND c_w_id = w AND c_d_id = d AND c_id = c
    RETURNING d_next_o_id - 1, 10000 + w_tax + d_tax, 10000 - c_discount INTO o, tax, rest;
    INSERT INTO orders (o_w_id, o_d_id, o_id, o_c_id, o_ol_cnt, o_all_local, o_entry_d)
    VALUES (w, d, o, c, cardinality(items), local, at);
    INSERT INTO new_order (no_w_id, no_d_id, no_o_id) VALUES (w, d, o);
    FOR i IN 1..cardinality(items) LOOP
        q = quantities[i];
        UPDATE stock
           SET s_quantity = s_quantity - q + CASE WHEN s_quantity - q >= 10 THEN 0 ELSE 91 END,
               s_ytd = s_ytd + q,
               s_order_cnt = s_order_cnt + 1,
               s_remote_cnt = s_remote_cnt + CASE WHEN supplies[i] = w THEN 0 ELSE 1 END
          FROM item
         WHERE s_w_id = supplies[i] AND s_i_id = items[i] AND i_id = items[i]
        RETURNING q * i_price,
            CASE d WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02 WHEN 3 THEN s_dist_03 WHEN 4 THEN s_dist_04
                   WHEN 5 THEN s_dist_05 WHEN 6 THEN s_dist_06 WHEN 7 THEN s_dist_07 WHEN 8 THEN s_dist_08
                   WHEN 9 THEN s_dist_09 ELSE s_dist_10 END
          INTO price, dist;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'An item is not in stock' USING ERRCODE = 'BG001';
        END IF;
        INSERT INTO order_line (ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_dist_info)
        VALUES (w, d, o, numbers[i], items[i], supplies[i], q, price, dist);
        amount = amount + price;
    END LOOP;
    RETURN ARRAY[o, amount * rest * tax / 100000000];
END $$;

-- A customer by number, or, where that is NULL, by last name: of all of that name in the order of their first names, row ceil(n / 2).
CREATE OR REPLACE FUNCTION bigiron.payment(
    w integer, d integer, cw integer, cd integer, c integer, name text, amount integer, at timestamp)
RETURNS bigint[] LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    balance bigint;
    district_name text;
    warehouse_name text;
BEGIN
    IF c IS NULL THEN
        SELECT (array_agg(c_id ORDER BY c_first COLLATE "C", c_id))[(count(*) + 1) / 2] INTO c
          FROM customer WHERE c_w_id = cw AND c_d_id = cd AND c_last = name;
    END IF;
    UPDATE customer
       SET c_balance = c_balance - amount,
           c_ytd_payment = c_ytd_payment + amount,
           c_payment_cnt = c_payment_cnt + 1,
           c_data = CASE c_credit
               WHEN 'BC' THEN left(concat_ws(' ', c, cd, cw, d, w, amount) || '|' || c_data, 500)
               ELSE c_data END
     WHERE c_w_id = cw AND c_d_id = cd AND c_id = c
    RETURNING c_balance INTO balance;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'No such customer' USING ERRCODE = 'BG002';
    END IF;
    UPDATE district SET d_ytd = d_ytd + amount WHERE d_w_id = w AND d_id = d RETURNING d_name INTO district_name;
    UPDATE warehouse SET w_ytd = w_ytd + amount WHERE w_id = w RETURNING w_name INTO warehouse_name;
    INSERT INTO history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_amount, h_date, h_data)
    VALUES (c, cd, cw, d, w, amount, at, warehouse_name || '    ' || district_name);
    RETURN ARRAY[c, balance];
END $$;

-- STABLE: all of it sees one snapshot, so that the lines are those of the order.
CREATE OR REPLACE FUNCTION bigiron.order_status(
    w integer, d integer, INOUT c integer, name text, OUT balance bigint, OUT o integer, OUT entered timestamp, OUT carrier integer,
    OUT items integer[], OUT supplies integer[], OUT quantities integer[], OUT amounts integer[], OUT delivered timestamp[])
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
BEGIN
    IF c IS NULL THEN
        SELECT (array_agg(c_id ORDER BY c_first COLLATE "C", c_id))[(count(*) + 1) / 2] INTO c
          FROM customer WHERE c_w_id = w AND c_d_id = d AND c_last = name;
    END IF;
    SELECT c_balance INTO balance FROM customer WHERE c_w_id = w AND c_d_id = d AND c_id = c;
    SELECT o_id, o_entry_d, o_carrier_id INTO o, entered, carrier
      FROM orders WHERE o_w_id = w AND o_d_id = d AND o_c_id = c ORDER BY o_id DESC LIMIT 1;
    SELECT array_agg(ol_i_id), array_agg(ol_supply_w_id), array_agg(ol_quantity), array_agg(ol_amount), array_agg(ol_delivery_d)
      INTO items, supplies, quantities, amounts, delivered
      FROM order_line WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = o;
END $$;

CREATE OR REPLACE FUNCTION bigiron.delivery(w integer, carrier integer, at timestamp)
RETURNS integer LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    o integer;
    c integer;
    amount bigint;
    delivered integer = 0;
BEGIN
    FOR d IN 1..10 LOOP
        LOOP
            DELETE FROM new_order
             WHERE no_w_id = w AND no_d_id = d
               AND no_o_id = (SELECT no_o_id FROM new_order WHERE no_w_id = w AND no_d_id = d ORDER BY no_o_id LIMIT 1)
            RETURNING no_o_id INTO o;
            EXIT WHEN FOUND;
            -- None is waiting, or another delivery has just taken the oldest one.
            EXIT WHEN NOT EXISTS (SELECT FROM new_order WHERE no_w_id = w AND no_d_id = d);
        END LOOP;
        CONTINUE WHEN o IS NULL;
        UPDATE orders SET o_carrier_id = carrier WHERE o_w_id = w AND o_d_id = d AND o_id = o RETURNING o_c_id INTO c;
        WITH lines AS (
            UPDATE order_line SET ol_delivery_d = at WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = o RETURNING ol_amount
        )
        SELECT sum(ol_amount) INTO amount FROM lines;
        UPDATE customer SET c_balance = c_balance + amount, c_delivery_cnt = c_delivery_cnt + 1
         WHERE c_w_id = w AND c_d_id = d AND c_id = c;
        delivered = delivered + 1;
    END LOOP;
    RETURN delivered;
END $$;

CREATE OR REPLACE FUNCTION bigiron.stock_level(w integer, d integer, threshold integer)
RETURNS integer LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
DECLARE
    next integer;
    low integer;
BEGIN
    SELECT d_next_o_id INTO next FROM district WHERE d_w_id = w AND d_id = d;
    SELECT count(DISTINCT s_i_id) INTO low
      FROM order_line JOIN stock ON s_w_id = w AND s_i_id = ol_i_id
     WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id >= next - 20 AND ol_o_id < next AND s_quantity < threshold;
    RETURN low;
END $$;
