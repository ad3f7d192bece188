-- A nation's share in a region's purchases of a part type, in each of two years.
WITH sale AS (
    SELECT {year o_orderdate} AS ordered, origin.n_name AS nation, l_extendedprice * (1 - l_discount) AS volume
      FROM part
      JOIN lineitem ON l_partkey = p_partkey
      JOIN supplier ON s_suppkey = l_suppkey
      JOIN nation AS origin ON origin.n_nationkey = s_nationkey
      JOIN orders ON o_orderkey = l_orderkey
      JOIN customer ON c_custkey = o_custkey
      JOIN nation AS home ON home.n_nationkey = c_nationkey
      JOIN region ON r_regionkey = home.n_regionkey
     WHERE p_type = {type}
       AND r_name = {region}
       AND o_orderdate BETWEEN {date 1995-01-01} AND {date 1996-12-31}
)
SELECT ordered, SUM(CASE WHEN nation = {nation} THEN volume ELSE 0 END) / SUM(volume) AS market_share
  FROM sale
 GROUP BY ordered
 ORDER BY ordered
