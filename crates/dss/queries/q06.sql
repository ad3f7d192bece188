-- The additional revenue of a year without a range of discounts on small quantities.
SELECT SUM(l_extendedprice * l_discount) AS forgone
  FROM lineitem
 WHERE l_discount BETWEEN {least_discount} AND {most_discount}
   AND l_quantity < {quantity}
   AND l_shipdate >= {first_day}
   AND l_shipdate < {end_day}
