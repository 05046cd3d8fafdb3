-- Settles a locked event for good, without applying it.
WITH old AS MATERIALIZED (
  SELECT id, status, reason
    FROM provider_event
   WHERE id = $1),
u AS (
  UPDATE provider_event
     SET status = 'ignored', reason = 'discarded', next_attempt_at = NULL, processed_at = tenure_now()
   WHERE id = $1 AND status IN ('parked', 'failed', 'quarantined', 'dead')
  RETURNING id, status, reason)
INSERT INTO audit (actor, action, object_kind, object_id, before, after, reason, request_id)
SELECT $2, 'discard', 'provider_event', u.id::text, jsonb_build_object('state', old.status, 'reason', old.reason),
       jsonb_build_object('state', u.status, 'reason', u.reason), $3, $4
  FROM u
  JOIN old ON old.id = u.id
