-- The 100 largest orders, by price, with more than a quantity of goods.
WITH large AS (
    SELECT l_orderkey AS number, SUM(l_quantity) AS quantity
      FROM lineitem
     GROUP BY l_orderkey
    HAVING SUM(l_quantity) > {quantity}
)
SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, quantity
  FROM large
  JOIN orders ON o_orderkey = number
  JOIN customer ON c_custkey = o_custkey
 ORDER BY o_totalprice DESC, o_orderdate, o_orderkey
 LIMIT 100
