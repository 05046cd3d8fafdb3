-- The key is the fact's place in the order, so the same fact told twice is stored once.
INSERT INTO subscription_fact (subscription_id, layer, order_at, rank, event_id, ordinal, kind, money_key, plan_revision,
                               body, provider_event_id)
VALUES ($1, $2, $3, $4, $5, $6, $7, nullif($8, ''), $9, $10, $11)
ON CONFLICT DO NOTHING
