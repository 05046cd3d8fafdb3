INSERT INTO event_conflict (event_id, body, body_sha256) VALUES ($1, $2, $3)
ON CONFLICT (event_id, body_sha256) DO NOTHING
