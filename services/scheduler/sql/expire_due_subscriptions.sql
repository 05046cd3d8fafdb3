-- Claims a batch of due rows and expires it in one statement (R6, R8, S0-13, S0-14).
--   MATERIALIZED   else the planner may run the LIMIT again and claim more (C098)
--   status literal else a generic plan cannot use the partial index
--   id = ANY(ARRAY(...)) a join to the CTE is three times slower, ctids lose rows
--   the UPDATE repeats the condition: a renewal that commits between the claim and the write wins (C038, S0-15)
-- $1, $2: keyset cursor of the pass; $3: rows at most.
WITH c AS MATERIALIZED (
  SELECT id, access_until
    FROM subscription
   WHERE status IN ('TRIALING', 'ACTIVE', 'PAST_DUE')
     AND access_until <= tenure_now()
     -- Paused before its end, or at it: that is what it becomes, by the step that applies scheduled changes.
     AND (pause_at IS NULL OR pause_at > access_until)
     AND (access_until, id) > ($1::timestamptz, $2::bigint)
   ORDER BY access_until, id
   LIMIT $3
     FOR NO KEY UPDATE SKIP LOCKED),
u AS (
  UPDATE subscription s
     SET status = 'EXPIRED', expired_at = tenure_now(), event_seq = s.event_seq + 1, version = s.version + 1,
         -- An operator who brought an ended row back by hand has not counted a new life; the end is announced all the same.
         episode = s.episode + CASE WHEN EXISTS (SELECT 1 FROM subscription_event h
                                                  WHERE h.subscription_id = s.id AND h.episode = s.episode
                                                    AND h.event_type = 'subscription.expired') THEN 1 ELSE 0 END
   WHERE s.id = ANY (ARRAY(SELECT id FROM c))
     AND s.status IN ('TRIALING', 'ACTIVE', 'PAST_DUE')
     AND s.access_until <= tenure_now()
     AND (s.pause_at IS NULL OR s.pause_at > s.access_until)
  RETURNING s.id, s.event_seq, s.episode, s.access_until),
q AS (
  UPDATE quota_schedule
     SET status = 'CANCELLED', settled_at = tenure_now()
   WHERE status = 'PENDING' AND subscription_id = ANY (ARRAY(SELECT id FROM u))),
e AS (
  INSERT INTO subscription_event (subscription_id, seq, event_type, business_key, episode, effective_at, old_access_until,
                                  access_until, cause)
  SELECT u.id, u.event_seq, 'subscription.expired', 'expired/' || u.episode, u.episode, u.access_until, u.access_until,
         u.access_until, 'job:subscription_maintenance'
    FROM u),
k AS (
  INSERT INTO sink_stream (sink_id, subscription_id, sent_seq, head_seq, next_attempt_at)
  SELECT k.id, u.id, 0, u.event_seq, tenure_now()
    FROM u, sink k
   ORDER BY u.id, k.id
  ON CONFLICT (sink_id, subscription_id) DO UPDATE SET head_seq = excluded.head_seq),
-- The greatest pair, not the greatest of each column: the cursor must pass exactly what was seen.
l AS (
  SELECT access_until, id FROM c ORDER BY access_until DESC, id DESC LIMIT 1)
SELECT (SELECT count(*) FROM c) AS found,
       (SELECT count(*) FROM u) AS expired,
       (SELECT access_until FROM l) AS last_access_until,
       (SELECT id FROM l) AS last_id
