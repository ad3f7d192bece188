-- The number of orders in three months that have a line received after the promised day, by priority.
SELECT o_orderpriority AS priority, COUNT(*) AS late_orders
  FROM orders
 WHERE o_orderdate >= {first_day}
   AND o_orderdate < {end_day}
   AND EXISTS (SELECT 1 FROM lineitem AS late WHERE late.l_orderkey = o_orderkey AND late.l_receiptdate > late.l_commitdate)
 GROUP BY o_orderpriority
 ORDER BY o_orderpriority
