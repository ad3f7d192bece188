-- The yearly revenue, averaged over seven years, from orders of less than a fifth of a part's average quantity, for parts of a brand and container.
WITH usual AS (
    SELECT l_partkey AS part, SUM(l_quantity) AS quantity, COUNT(*) AS line_count
      FROM part
      JOIN lineitem ON l_partkey = p_partkey
     WHERE p_brand = {brand} AND p_container = {container}
     GROUP BY l_partkey
)
SELECT SUM(l_extendedprice) / 7.0 AS yearly_revenue
  FROM usual
  JOIN lineitem ON l_partkey = part
 WHERE 5 * l_quantity * line_count < quantity
