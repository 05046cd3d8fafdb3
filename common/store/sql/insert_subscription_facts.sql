-- The key is the fact's place in the order, so the same fact told twice is stored once. Returns those that are new.
INSERT INTO subscription_fact (subscription_id, layer, order_at, rank, event_id, ordinal, kind, money_key, effective_at,
                               plan_revision, body, provider_event_id, actor, reason)
SELECT u.subscription_id, u.layer, u.order_at, u.rank, u.event_id, u.ordinal, u.kind, nullif(u.money_key, ''), u.order_at,
       u.plan_revision, u.body, nullif(u.provider_event_id, 0), u.actor, u.reason
  FROM unnest($1::bigint[], $2::smallint[], $3::timestamptz[], $4::smallint[], $5::text[], $6::integer[], $7::text[],
              $8::text[], $9::bigint[], $10::bytea[], $11::bigint[], $12::text[], $13::text[])
       u (subscription_id, layer, order_at, rank, event_id, ordinal, kind, money_key, plan_revision, body,
          provider_event_id, actor, reason)
ON CONFLICT DO NOTHING
RETURNING subscription_id, ordinal
