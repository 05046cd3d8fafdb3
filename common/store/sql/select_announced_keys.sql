-- Ends are told once per episode, also where a binary without such keys told them.
SELECT e.subscription_id, e.business_key
  FROM unnest($1::bigint[], $2::text[]) u (subscription_id, business_key)
  JOIN subscription_event e ON e.subscription_id = u.subscription_id AND e.business_key = u.business_key
UNION ALL
SELECT e.subscription_id, 'expired/' || e.episode
  FROM subscription_event e
 WHERE e.subscription_id = ANY ($1::bigint[]) AND e.event_type = 'subscription.expired'
