-- The releases that are due behind a keyset cursor, of subscriptions that give access. What the locks then find changed is
-- judged again by release_due_quota. The status literals are what the partial indexes are made on.
SELECT q.subscription_id, q.scheduled_at, q.id
  FROM quota_schedule q
  JOIN subscription s ON s.id = q.subscription_id
 WHERE q.status = 'PENDING'
   AND q.scheduled_at <= tenure_now()
   AND (q.scheduled_at, q.id) > ($1::timestamptz, $2::bigint)
   AND s.status IN ('TRIALING', 'ACTIVE', 'PAST_DUE')
   AND (s.lifetime OR s.access_until > tenure_now())
   AND (s.pause_at IS NULL OR s.pause_at > tenure_now())
 ORDER BY q.scheduled_at, q.id
 LIMIT $3
