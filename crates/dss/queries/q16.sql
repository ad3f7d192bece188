-- The number of suppliers without complaints that sell parts of eight sizes, by brand, type and size; excludes one brand and some types.
SELECT p_brand, p_type, p_size, COUNT(DISTINCT ps_suppkey) AS sellers
  FROM part
  JOIN partsupp ON ps_partkey = p_partkey
 WHERE p_size IN {sizes}
   AND p_brand <> {brand}
   AND p_type NOT LIKE {type}
   AND ps_suppkey NOT IN (SELECT s_suppkey FROM supplier WHERE s_comment LIKE '%Customer%Complaints%')
 GROUP BY p_brand, p_type, p_size
 ORDER BY sellers DESC, p_brand, p_type, p_size
