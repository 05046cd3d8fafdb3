INSERT INTO subscription_fold (subscription_id, revision, state)
SELECT u.subscription_id, u.revision, u.state
  FROM unnest($1::bigint[], $2::integer[], $3::bytea[]) u (subscription_id, revision, state)
ON CONFLICT (subscription_id) DO UPDATE SET revision = excluded.revision, state = excluded.state
