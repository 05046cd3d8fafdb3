INSERT INTO subscription_event (subscription_id, seq, event_type, episode, effective_at, access_until, cause)
VALUES ($1, $2, $3, $4, $5, $6, $7)
