SELECT event_id, body
  FROM subscription_fact
 WHERE subscription_id = $1
 ORDER BY order_at, rank, event_id, ordinal
