-- Announces the new head to every enabled sink: the outbox row of the same transaction (S0-23).
INSERT INTO sink_stream (sink_id, subscription_id, sent_seq, head_seq, next_attempt_at)
SELECT k.id, $1, 0, $2, tenure_now()
  FROM sink k
 WHERE k.enabled
 ORDER BY k.id
ON CONFLICT (sink_id, subscription_id) DO UPDATE SET head_seq = excluded.head_seq
