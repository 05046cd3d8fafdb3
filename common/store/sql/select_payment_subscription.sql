-- The subscription of a payment, by its key or any other name of it.
SELECT p.subscription_id, p.payment_key, p.period_starts_at, p.period_ends_at
  FROM payment p
 WHERE p.route_id = $1 AND p.account = $2
   AND p.payment_key = coalesce((SELECT a.payment_key FROM payment_alias a
                                  WHERE a.route_id = $1 AND a.account = $2 AND a.alias = $3), $3)
