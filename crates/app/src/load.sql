CREATE TABLE dealer (id int PRIMARY KEY, name varchar(40), credit bigint NOT NULL, balance bigint NOT NULL, paid bigint NOT NULL);
CREATE TABLE item (id int PRIMARY KEY, name varchar(40), about varchar(200), price bigint NOT NULL, stock bigint NOT NULL, loaded bigint NOT NULL);
CREATE TABLE component (id int PRIMARY KEY, name varchar(40), cost bigint NOT NULL, low int NOT NULL, stock bigint NOT NULL, ordered int NOT NULL, loaded bigint NOT NULL);
CREATE TABLE part (item int, component int, quantity int NOT NULL, PRIMARY KEY (item, component));
CREATE TABLE orders (id {serial} PRIMARY KEY, dealer int NOT NULL, state int NOT NULL, total bigint NOT NULL);
CREATE TABLE line (order_id bigint, number int, item int NOT NULL, quantity int NOT NULL, amount bigint NOT NULL, built int NOT NULL, PRIMARY KEY (order_id, number));
CREATE TABLE work (id {serial} PRIMARY KEY, item int NOT NULL, quantity int NOT NULL, stage int NOT NULL, order_id bigint);
CREATE TABLE purchase (id {serial} PRIMARY KEY, component int NOT NULL, quantity int NOT NULL, cost bigint NOT NULL, delivered int NOT NULL);

INSERT INTO item SELECT n, concat('Item ', n), repeat(concat(md5(concat('item ', n)), ' '), 4), 1000 + n * 7919 % 9000, 1000 + n * 37 % 500, 0 FROM {1..{items} n};
INSERT INTO component SELECT n, concat('Component ', n), 10 + n * 31 % 90, 1000, 1000 + n * 37 % 400, 0, 0 FROM {1..{components} n};
INSERT INTO part SELECT i, (i * 7 + k * 13) % {components} + 1, 1 + (i + k) % 2 FROM {1..{items} i}, {1..{parts} k};
INSERT INTO line SELECT o, k, item.id, (o + k) % 10 + 1, ((o + k) % 10 + 1) * item.price, 0
    FROM {1..{orders} o}, {1..3 k}, item WHERE item.id = (o * 7 + k * 11) % {items} + 1;
INSERT INTO orders (dealer, state, total) SELECT (o - 1) % {dealers} + 1, CASE o % 3 WHEN 0 THEN 0 ELSE 1 END, total FROM
    (SELECT order_id AS o, sum(amount) AS total FROM line GROUP BY order_id) totals ORDER BY o;
INSERT INTO dealer SELECT n, concat('Dealer ', n), 10000000 + n % 10 * 2000000,
    coalesce(sum(CASE state WHEN 0 THEN total END), 0), coalesce(sum(CASE state WHEN 1 THEN total END), 0)
    FROM {1..{dealers} n} LEFT JOIN orders ON dealer = n GROUP BY n ORDER BY n;
INSERT INTO work (item, quantity, stage) SELECT n % {items} + 1, 3 + n % 10, n % 3 FROM {1..300 n};
INSERT INTO purchase (component, quantity, cost, delivered) SELECT n * 7 % {components} + 1, 200, 200 * (10 + n), 0 FROM {1..60 n};
UPDATE component SET ordered = 200 WHERE id IN (SELECT component FROM purchase);
UPDATE item SET loaded = stock + coalesce((SELECT sum(quantity) FROM line WHERE line.item = item.id), 0);
UPDATE component SET loaded = stock + coalesce((SELECT sum(work.quantity * part.quantity) FROM work JOIN part ON part.item = work.item WHERE part.component = component.id), 0);

CREATE INDEX orders_dealer ON orders (dealer, id);
CREATE INDEX work_stage ON work (stage, id);
CREATE INDEX work_order ON work (order_id);
CREATE INDEX purchase_due ON purchase (delivered, id);
{analyze}
