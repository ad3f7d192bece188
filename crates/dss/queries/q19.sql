-- Revenue from three kinds of parts, by brand, container, size and quantity, sent by air and delivered in person.
WITH wanted AS (
    SELECT p_partkey AS part, {small_quantity} AS least
      FROM part
     WHERE p_brand = {small_brand}
       AND p_size BETWEEN 1 AND 5
       AND p_container IN ('SM CASE', 'SM BOX', 'SM PACK', 'SM PKG')
    UNION ALL
    SELECT p_partkey, {medium_quantity}
      FROM part
     WHERE p_brand = {medium_brand}
       AND p_size BETWEEN 1 AND 10
       AND p_container IN ('MED BAG', 'MED BOX', 'MED PKG', 'MED PACK')
    UNION ALL
    SELECT p_partkey, {large_quantity}
      FROM part
     WHERE p_brand = {large_brand}
       AND p_size BETWEEN 1 AND 15
       AND p_container IN ('LG CASE', 'LG BOX', 'LG PACK', 'LG PKG')
)
SELECT SUM(l_extendedprice * (1 - l_discount)) AS revenue
  FROM wanted
  JOIN lineitem ON l_partkey = part
 WHERE l_quantity BETWEEN least AND least + 10
   AND l_shipinstruct = 'DELIVER IN PERSON'
   AND l_shipmode IN ('AIR', 'AIR REG')
