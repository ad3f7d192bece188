-- The 20 customers with the largest value of returned goods among the orders of three months.
WITH returned AS (
    SELECT o_custkey AS buyer, SUM(l_extendedprice * (1 - l_discount)) AS lost_revenue
      FROM orders
      JOIN lineitem ON l_orderkey = o_orderkey
     WHERE o_orderdate >= {first_day} AND o_orderdate < {end_day} AND l_returnflag = 'R'
     GROUP BY o_custkey
)
SELECT c_custkey, c_name, lost_revenue, c_acctbal, n_name, c_address, c_phone, c_comment
  FROM returned
  JOIN customer ON c_custkey = buyer
  JOIN nation ON n_nationkey = c_nationkey
 ORDER BY lost_revenue DESC, c_custkey
 LIMIT 20
