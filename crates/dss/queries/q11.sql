-- The parts with more than a fraction of the value of all stock at a nation's suppliers.
WITH stock AS (
    SELECT ps_partkey AS part, SUM(ps_supplycost * ps_availqty) AS worth
      FROM nation
      JOIN supplier ON s_nationkey = n_nationkey
      JOIN partsupp ON ps_suppkey = s_suppkey
     WHERE n_name = {nation}
     GROUP BY ps_partkey
), everything AS (
    SELECT SUM(worth) AS total_worth FROM stock
)
SELECT part, worth
  FROM stock
 CROSS JOIN everything
 WHERE worth * {inverse_fraction} > total_worth
 ORDER BY worth DESC, part
