-- Ends are told once per episode, also where a binary without such keys told them.
SELECT business_key FROM subscription_event WHERE subscription_id = $1 AND business_key = ANY ($2::text[])
UNION ALL
SELECT 'expired/' || episode
  FROM subscription_event
 WHERE subscription_id = $1 AND event_type = 'subscription.expired'
