-- Customers with seven country codes, more than the average positive balance and no orders, by country code.
WITH account AS (
    SELECT c_custkey AS holder, SUBSTR(c_phone, 1, 2) AS code, c_acctbal AS balance
      FROM customer
     WHERE SUBSTR(c_phone, 1, 2) IN {codes}
), credit AS (
    SELECT SUM(balance) AS total_balance, COUNT(*) AS accounts
      FROM account
     WHERE balance > 0
)
SELECT code, COUNT(*) AS holders, SUM(balance) AS balances
  FROM account
 CROSS JOIN credit
 WHERE balance * accounts > total_balance
   AND NOT EXISTS (SELECT 1 FROM orders WHERE o_custkey = holder)
 GROUP BY code
 ORDER BY code
