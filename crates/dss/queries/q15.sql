-- The suppliers with the largest revenue in three months.
WITH revenue AS (
    SELECT l_suppkey AS seller, SUM(l_extendedprice * (1 - l_discount)) AS amount
      FROM lineitem
     WHERE l_shipdate >= {first_day} AND l_shipdate < {end_day}
     GROUP BY l_suppkey
), ranked AS (
    SELECT seller, amount, RANK() OVER (ORDER BY amount DESC) AS place
      FROM revenue
)
SELECT s_suppkey, s_name, s_address, s_phone, amount
  FROM ranked
  JOIN supplier ON s_suppkey = seller
 WHERE place = 1
 ORDER BY s_suppkey
