-- For each part of a size and material, the suppliers in a region that sell it at the region's lowest cost; the 100 with the largest balance.
WITH offer AS (
    SELECT ps_partkey AS part, p_mfgr AS maker, ps_supplycost AS cost, s_suppkey AS seller, n_name AS nation
      FROM region
      JOIN nation ON n_regionkey = r_regionkey
      JOIN supplier ON s_nationkey = n_nationkey
      JOIN partsupp ON ps_suppkey = s_suppkey
      JOIN part ON p_partkey = ps_partkey
     WHERE r_name = {region} AND p_size = {size} AND p_type LIKE {material}
), ranked AS (
    SELECT part, maker, seller, nation, RANK() OVER (PARTITION BY part ORDER BY cost) AS place
      FROM offer
)
SELECT s_acctbal, s_name, nation, part, maker, s_address, s_phone, s_comment
  FROM ranked
  JOIN supplier ON s_suppkey = seller
 WHERE place = 1
 ORDER BY s_acctbal DESC, nation, s_name, part
 LIMIT 100
