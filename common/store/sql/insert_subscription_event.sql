INSERT INTO subscription_event (subscription_id, seq, event_type, business_key, episode, effective_at, old_access_until,
                                access_until, data, actor, reason, cause)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, jsonb_object($9::text[], $10::text[]), $11, $12, $13)
