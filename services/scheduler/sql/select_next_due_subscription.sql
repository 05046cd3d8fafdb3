-- The row behind the cursor, whoever holds it: where a pass goes on after a row that cannot be swept.
SELECT access_until, id
  FROM subscription
 WHERE status IN ('TRIALING', 'ACTIVE', 'PAST_DUE')
   AND access_until <= tenure_now()
   AND (pause_at IS NULL OR pause_at > access_until)
   AND (access_until, id) > ($1::timestamptz, $2::bigint)
 ORDER BY access_until, id
 LIMIT 1
