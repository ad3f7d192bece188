-- The five transactions as procedures of MariaDB: one call, one transaction, one answer.
--
-- Rows are locked in one order by all of them: NEW-ORDER, customer, district, warehouse, stock by (warehouse, item).
-- Money is in cents, rates are in ten thousandths. MariaDB has no arrays: a list of numbers is a text with ten digits for each.

-- The lines come sorted by (warehouse, item), and are updated as they come.
CREATE OR REPLACE PROCEDURE new_order(
    p_w integer, p_d integer, p_c integer, p_local integer, p_at datetime(6),
    p_numbers varchar(150), p_items varchar(150), p_supplies varchar(150), p_quantities varchar(150))
MODIFIES SQL DATA
BEGIN
    DECLARE v_o, v_tax, v_rest, v_item, v_supply, v_q integer;
    DECLARE v_price, v_amount bigint;
    DECLARE v_dist varchar(24);
    DECLARE v_at integer DEFAULT 1;
    DECLARE v_total bigint DEFAULT 0;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    START TRANSACTION;
    UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = p_w AND d_id = p_d;
    SELECT d_next_o_id - 1, 10000 + w_tax + d_tax, 10000 - c_discount INTO v_o, v_tax, v_rest
      FROM district, warehouse, customer
     WHERE d_w_id = p_w AND d_id = p_d AND w_id = p_w AND c_w_id = p_w AND c_d_id = p_d AND c_id = p_c;
    INSERT INTO orders (o_w_id, o_d_id, o_id, o_c_id, o_ol_cnt, o_all_local, o_entry_d)
    VALUES (p_w, p_d, v_o, p_c, length(p_items) DIV 10, p_local, p_at);
    INSERT INTO new_order (no_w_id, no_d_id, no_o_id) VALUES (p_w, p_d, v_o);
    WHILE v_at < length(p_items) DO
        SET v_item = CAST(substr(p_items, v_at, 10) AS SIGNED);
        SET v_supply = CAST(substr(p_supplies, v_at, 10) AS SIGNED);
        SET v_q = CAST(substr(p_quantities, v_at, 10) AS SIGNED);
        SET v_price = NULL;
        SELECT i_price INTO v_price FROM item WHERE i_id = v_item;
        UPDATE stock
           SET s_quantity = s_quantity - v_q + CASE WHEN s_quantity - v_q >= 10 THEN 0 ELSE 91 END,
               s_ytd = s_ytd + v_q,
               s_order_cnt = s_order_cnt + 1,
               s_remote_cnt = s_remote_cnt + CASE WHEN v_supply = p_w THEN 0 ELSE 1 END
         WHERE s_w_id = v_supply AND s_i_id = v_item;
        IF v_price IS NULL OR ROW_COUNT() <> 1 THEN
            SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'An item is not in stock', MYSQL_ERRNO = 30001;
        END IF;
        SELECT CASE p_d WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02 WHEN 3 THEN s_dist_03 WHEN 4 THEN s_dist_04
                        WHEN 5 THEN s_dist_05 WHEN 6 THEN s_dist_06 WHEN 7 THEN s_dist_07 WHEN 8 THEN s_dist_08
                        WHEN 9 THEN s_dist_09 ELSE s_dist_10 END
          INTO v_dist FROM stock WHERE s_w_id = v_supply AND s_i_id = v_item;
        SET v_amount = v_q * v_price;
        INSERT INTO order_line (ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_dist_info)
        VALUES (p_w, p_d, v_o, CAST(substr(p_numbers, v_at, 10) AS SIGNED), v_item, v_supply, v_q, v_amount, v_dist);
        SET v_total = v_total + v_amount;
        SET v_at = v_at + 10;
    END WHILE;
    COMMIT;
    SELECT v_o, v_total * v_rest * v_tax DIV 100000000;
END;

-- A customer by number, or, where that is NULL, by last name: of all of that name in the order of their first names, row ceil(n / 2).
CREATE OR REPLACE FUNCTION customer_of(p_w integer, p_d integer, p_c integer, p_name varchar(16)) RETURNS integer
READS SQL DATA
BEGIN
    IF p_c IS NOT NULL THEN
        RETURN p_c;
    END IF;
    RETURN (SELECT c_id FROM (
        SELECT c_id, row_number() OVER (ORDER BY c_first, c_id) AS place, count(*) OVER () AS n
          FROM customer WHERE c_w_id = p_w AND c_d_id = p_d AND c_last = p_name) AS of_name WHERE place = (n + 1) DIV 2);
END;

CREATE OR REPLACE PROCEDURE payment(
    p_w integer, p_d integer, p_cw integer, p_cd integer, p_c integer, p_name varchar(16), p_amount integer, p_at datetime(6))
MODIFIES SQL DATA
BEGIN
    DECLARE v_c integer;
    DECLARE v_balance bigint;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    START TRANSACTION;
    SET v_c = customer_of(p_cw, p_cd, p_c, p_name);
    UPDATE customer
       SET c_balance = c_balance - p_amount,
           c_ytd_payment = c_ytd_payment + p_amount,
           c_payment_cnt = c_payment_cnt + 1,
           c_data = CASE c_credit
               WHEN 'BC' THEN left(concat(concat_ws(' ', v_c, p_cd, p_cw, p_d, p_w, p_amount), '|', c_data), 500)
               ELSE c_data END
     WHERE c_w_id = p_cw AND c_d_id = p_cd AND c_id = v_c;
    IF ROW_COUNT() <> 1 THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'No such customer', MYSQL_ERRNO = 30002;
    END IF;
    SELECT c_balance INTO v_balance FROM customer WHERE c_w_id = p_cw AND c_d_id = p_cd AND c_id = v_c;
    UPDATE district SET d_ytd = d_ytd + p_amount WHERE d_w_id = p_w AND d_id = p_d;
    UPDATE warehouse SET w_ytd = w_ytd + p_amount WHERE w_id = p_w;
    INSERT INTO history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_amount, h_date, h_data)
    SELECT v_c, p_cd, p_cw, d_id, w_id, p_amount, p_at, concat(w_name, '    ', d_name)
      FROM warehouse, district WHERE w_id = p_w AND d_w_id = p_w AND d_id = p_d;
    COMMIT;
    SELECT v_c, v_balance;
END;

-- All of it sees one snapshot, so that the lines are those of the order.
CREATE OR REPLACE PROCEDURE order_status(p_w integer, p_d integer, p_c integer, p_name varchar(16))
READS SQL DATA
BEGIN
    DECLARE v_c, v_o, v_carrier integer;
    DECLARE v_balance bigint;
    DECLARE v_entered datetime(6);
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;
    START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY;
    SET v_c = customer_of(p_w, p_d, p_c, p_name);
    SELECT c_balance INTO v_balance FROM customer WHERE c_w_id = p_w AND c_d_id = p_d AND c_id = v_c;
    SELECT o_id, o_entry_d, o_carrier_id INTO v_o, v_entered, v_carrier FROM orders
     WHERE o_w_id = p_w AND o_d_id = p_d AND o_c_id = v_c ORDER BY o_id DESC LIMIT 1;
    SELECT v_c, v_balance, v_o, count(*), v_entered, v_carrier,
           group_concat(concat_ws(' ', ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d) SEPARATOR ';')
      FROM order_line WHERE ol_w_id = p_w AND ol_d_id = p_d AND ol_o_id = v_o;
    COMMIT;
END;

CREATE OR REPLACE PROCEDURE delivery(p_w integer, p_carrier integer, p_at datetime(6))
MODIFIES SQL DATA
BEGIN
    DECLARE v_d integer DEFAULT 1;
    DECLARE v_delivered integer DEFAULT 0;
    DECLARE v_o, v_c integer;
    DECLARE v_amount bigint;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    START TRANSACTION;
    WHILE v_d <= 10 DO
        SET v_o = NULL;
        -- Waits for another delivery that has taken it, and then takes the next.
        SELECT no_o_id INTO v_o FROM new_order WHERE no_w_id = p_w AND no_d_id = v_d ORDER BY no_o_id LIMIT 1 FOR UPDATE;
        IF v_o IS NOT NULL THEN
            DELETE FROM new_order WHERE no_w_id = p_w AND no_d_id = v_d AND no_o_id = v_o;
            UPDATE orders SET o_carrier_id = p_carrier WHERE o_w_id = p_w AND o_d_id = v_d AND o_id = v_o;
            SELECT o_c_id INTO v_c FROM orders WHERE o_w_id = p_w AND o_d_id = v_d AND o_id = v_o;
            UPDATE order_line SET ol_delivery_d = p_at WHERE ol_w_id = p_w AND ol_d_id = v_d AND ol_o_id = v_o;
            SELECT sum(ol_amount) INTO v_amount FROM order_line WHERE ol_w_id = p_w AND ol_d_id = v_d AND ol_o_id = v_o;
            UPDATE customer SET c_balance = c_balance + v_amount, c_delivery_cnt = c_delivery_cnt + 1
             WHERE c_w_id = p_w AND c_d_id = v_d AND c_id = v_c;
            SET v_delivered = v_delivered + 1;
        END IF;
        SET v_d = v_d + 1;
    END WHILE;
    COMMIT;
    SELECT v_delivered;
END;

CREATE OR REPLACE PROCEDURE stock_level(p_w integer, p_d integer, p_threshold integer)
READS SQL DATA
BEGIN
    DECLARE v_next integer;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;
    START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY;
    SELECT d_next_o_id INTO v_next FROM district WHERE d_w_id = p_w AND d_id = p_d;
    SELECT STRAIGHT_JOIN count(DISTINCT s_i_id) FROM order_line JOIN stock ON s_w_id = p_w AND s_i_id = ol_i_id
     WHERE ol_w_id = p_w AND ol_d_id = p_d AND ol_o_id >= v_next - 20 AND ol_o_id < v_next AND s_quantity < p_threshold;
    COMMIT;
END;
