-- The 100 suppliers of a nation that most often were the only late supplier of an order with several suppliers.
SELECT s_name, COUNT(*) AS late_lines
  FROM nation
  JOIN supplier ON s_nationkey = n_nationkey
  JOIN lineitem AS late ON late.l_suppkey = s_suppkey
  JOIN orders ON o_orderkey = late.l_orderkey
 WHERE n_name = {nation}
   AND o_orderstatus = 'F'
   AND late.l_receiptdate > late.l_commitdate
   AND EXISTS (
           SELECT 1
             FROM lineitem AS beside
            WHERE beside.l_orderkey = late.l_orderkey AND beside.l_suppkey <> late.l_suppkey)
   AND NOT EXISTS (
           SELECT 1
             FROM lineitem AS beside
            WHERE beside.l_orderkey = late.l_orderkey
              AND beside.l_suppkey <> late.l_suppkey
              AND beside.l_receiptdate > beside.l_commitdate)
 GROUP BY s_name
 ORDER BY late_lines DESC, s_name
 LIMIT 100
