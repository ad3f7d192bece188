-- Amounts and averages of all lines shipped up to a day, by return flag and line status.
SELECT l_returnflag AS flag,
       l_linestatus AS status,
       SUM(l_quantity) AS quantity,
       SUM(l_extendedprice) AS list_price,
       SUM(l_extendedprice * (1 - l_discount)) AS net_price,
       SUM(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS gross_price,
       AVG(l_quantity) AS usual_quantity,
       AVG(l_extendedprice) AS usual_price,
       AVG(l_discount) AS usual_discount,
       COUNT(*) AS line_count
  FROM lineitem
 WHERE NOT l_shipdate > {last_day}
 GROUP BY l_returnflag, l_linestatus
 ORDER BY l_returnflag, l_linestatus
