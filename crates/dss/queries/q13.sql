-- The distribution of customers by number of orders, including customers without any; excludes orders with two words in their comments.
WITH placed AS (
    SELECT c_custkey AS buyer, COUNT(o_orderkey) AS order_count
      FROM customer
      LEFT JOIN orders ON o_custkey = c_custkey AND o_comment NOT LIKE {words}
     GROUP BY c_custkey
)
SELECT order_count, COUNT(*) AS buyers
  FROM placed
 GROUP BY order_count
 ORDER BY buyers DESC, order_count DESC
