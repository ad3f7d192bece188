-- Profit on parts with a colour in their names, by the supplier's nation and the year of the order.
WITH gain AS (
    SELECT n_name AS nation,
           {year o_orderdate} AS ordered,
           l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity AS amount
      FROM part
      JOIN lineitem ON l_partkey = p_partkey
      JOIN partsupp ON ps_partkey = l_partkey AND ps_suppkey = l_suppkey
      JOIN supplier ON s_suppkey = l_suppkey
      JOIN nation ON n_nationkey = s_nationkey
      JOIN orders ON o_orderkey = l_orderkey
     WHERE p_name LIKE {color}
)
SELECT nation, ordered, SUM(amount) AS profit
  FROM gain
 GROUP BY nation, ordered
 ORDER BY nation, ordered DESC
