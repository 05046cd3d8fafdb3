-- The key is the fact's place in the order, so the same fact told twice is stored once.
INSERT INTO subscription_fact (subscription_id, layer, order_at, rank, event_id, ordinal, kind, money_key, effective_at,
                               plan_revision, body, provider_event_id, actor, reason)
VALUES ($1, $2, $3, $4, $5, $6, $7, nullif($8, ''), $9, $10, $11, nullif($12::bigint, 0), $13, $14)
ON CONFLICT DO NOTHING
