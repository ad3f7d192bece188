-- Lines of two ship modes that shipped in time but arrived late in a year: urgent orders and others.
SELECT l_shipmode AS mode,
       COUNT(*) FILTER (WHERE o_orderpriority IN ('1-URGENT', '2-HIGH')) AS urgent_lines,
       COUNT(*) FILTER (WHERE o_orderpriority NOT IN ('1-URGENT', '2-HIGH')) AS other_lines
  FROM lineitem
  JOIN orders ON o_orderkey = l_orderkey
 WHERE l_shipmode IN {modes}
   AND l_shipdate < l_commitdate
   AND l_commitdate < l_receiptdate
   AND l_receiptdate >= {first_day}
   AND l_receiptdate < {end_day}
 GROUP BY l_shipmode
 ORDER BY l_shipmode
