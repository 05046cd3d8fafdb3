INSERT INTO subscription_fold (subscription_id, revision, state) VALUES ($1, $2, $3)
ON CONFLICT (subscription_id) DO UPDATE SET revision = excluded.revision, state = excluded.state
