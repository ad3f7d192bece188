-- The ten orders of a market segment with the largest open revenue, placed before a day and not shipped by then.
SELECT o_orderkey,
       SUM(l_extendedprice * (1 - l_discount)) AS open_revenue,
       o_orderdate,
       o_shippriority
  FROM customer
  JOIN orders ON o_custkey = c_custkey
  JOIN lineitem ON l_orderkey = o_orderkey
 WHERE c_mktsegment = {segment} AND o_orderdate < {day} AND l_shipdate > {day}
 GROUP BY o_orderkey, o_orderdate, o_shippriority
 ORDER BY open_revenue DESC, o_orderdate, o_orderkey
 LIMIT 10
