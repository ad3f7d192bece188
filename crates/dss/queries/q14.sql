-- The percentage of promoted parts in a month's revenue.
SELECT 100.00 * SUM(CASE WHEN p_type LIKE 'PROMO%' THEN l_extendedprice * (1 - l_discount) ELSE 0 END)
           / SUM(l_extendedprice * (1 - l_discount)) AS promoted_share
  FROM lineitem
  JOIN part ON p_partkey = l_partkey
 WHERE l_shipdate >= {first_day} AND l_shipdate < {end_day}
