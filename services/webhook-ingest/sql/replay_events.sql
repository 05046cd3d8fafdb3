-- Has the locked events of $1 tried at once. One that was applied is marked, so that a try without effect leaves it
-- applied (settle_provider_events).
WITH old AS MATERIALIZED (
  SELECT id, status, reason, attempt_count
    FROM provider_event
   WHERE id = ANY ($1::bigint[])),
u AS (
  UPDATE provider_event e
     SET status = 'received', attempt_count = 0, next_attempt_at = tenure_now(), processed_at = NULL,
         reason = CASE WHEN e.status = 'applied' OR e.status = 'received' AND e.reason = 'replay_of_applied'
                       THEN 'replay_of_applied' ELSE '' END
   WHERE e.id = ANY ($1::bigint[])
  RETURNING e.id, e.status, e.reason)
INSERT INTO audit (actor, action, object_kind, object_id, before, after, reason, request_id)
SELECT $2, 'replay', 'provider_event', u.id::text,
       jsonb_build_object('state', old.status, 'reason', old.reason, 'attempt_count', old.attempt_count),
       jsonb_build_object('state', u.status, 'reason', u.reason, 'attempt_count', 0), $3, $4
  FROM u
  JOIN old ON old.id = u.id
 ORDER BY u.id
