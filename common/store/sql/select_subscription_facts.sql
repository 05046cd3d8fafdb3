SELECT subscription_id, event_id, body
  FROM subscription_fact
 WHERE subscription_id = ANY ($1::bigint[])
 ORDER BY subscription_id, order_at, rank, event_id, ordinal
