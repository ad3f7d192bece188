-- The value of goods shipped between two nations in either direction, by year.
WITH trade AS (
    SELECT seller.n_name AS origin,
           buyer.n_name AS destination,
           {year l_shipdate} AS shipped,
           l_extendedprice * (1 - l_discount) AS volume
      FROM nation AS seller
      JOIN supplier ON s_nationkey = seller.n_nationkey
      JOIN lineitem ON l_suppkey = s_suppkey
      JOIN orders ON o_orderkey = l_orderkey
      JOIN customer ON c_custkey = o_custkey
      JOIN nation AS buyer ON buyer.n_nationkey = c_nationkey
     WHERE seller.n_name IN {nations}
       AND buyer.n_name IN {nations}
       AND seller.n_nationkey <> buyer.n_nationkey
       AND l_shipdate BETWEEN {date 1995-01-01} AND {date 1996-12-31}
)
SELECT origin, destination, shipped, SUM(volume) AS revenue
  FROM trade
 GROUP BY origin, destination, shipped
 ORDER BY origin, destination, shipped
