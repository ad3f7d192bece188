-- A nation's suppliers whose stock of a part exceeds half of what they shipped in a year, for parts whose names begin with a colour.
WITH shipped AS (
    SELECT l_partkey AS part, l_suppkey AS seller, SUM(l_quantity) AS quantity
      FROM part
      JOIN lineitem ON l_partkey = p_partkey
     WHERE p_name LIKE {color} AND l_shipdate >= {first_day} AND l_shipdate < {end_day}
     GROUP BY l_partkey, l_suppkey
), surplus AS (
    SELECT DISTINCT seller
      FROM shipped
      JOIN partsupp ON ps_partkey = part AND ps_suppkey = seller
     WHERE 2 * ps_availqty > quantity
)
SELECT s_name, s_address
  FROM surplus
  JOIN supplier ON s_suppkey = seller
  JOIN nation ON n_nationkey = s_nationkey
 WHERE n_name = {nation}
 ORDER BY s_name
