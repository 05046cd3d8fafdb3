-- Facts that the event $1 gave. There is no index from an event to its facts, which every fact would pay for: they are
-- looked for where its body ($4: names of subscriptions, $5: of payments) and its customer ($6) say.
WITH candidate AS MATERIALIZED (
  SELECT s.id
    FROM subscription s
   WHERE s.route_id = $2 AND s.account = $3 AND s.provider_subscription_id = ANY ($4::text[])
  UNION
  SELECT p.subscription_id
    FROM payment p
   WHERE p.route_id = $2 AND p.account = $3 AND p.payment_key = ANY ($5::text[])
  UNION
  SELECT p.subscription_id
    FROM payment_alias a
    JOIN payment p ON p.route_id = a.route_id AND p.account = a.account AND p.payment_key = a.payment_key
   WHERE a.route_id = $2 AND a.account = $3 AND a.alias = ANY ($5::text[])
  UNION
  SELECT s.id
    FROM customer_link l
    JOIN subscription s ON s.subject_id = l.subject_id
   WHERE l.route_id = $2 AND l.account = $3 AND l.customer_id = $6)
SELECT f.subscription_id, f.kind, coalesce(f.money_key, '') AS money_key
  FROM candidate c
  JOIN subscription_fact f ON f.subscription_id = c.id
 WHERE f.provider_event_id = $1
 ORDER BY f.subscription_id, f.order_at, f.rank, f.event_id, f.ordinal
 LIMIT 200
