-- Announces the new heads to every sink: the outbox rows of the same transaction (S0-23). To a disabled one as well: its
-- rows wait until it is enabled again, none is dropped (C127). Never back: a release of the same
-- transaction may be ahead.
INSERT INTO sink_stream (sink_id, subscription_id, sent_seq, head_seq, next_attempt_at)
SELECT k.id, u.subscription_id, 0, u.head_seq, tenure_now()
  FROM unnest($1::bigint[], $2::bigint[]) u (subscription_id, head_seq)
 CROSS JOIN sink k
 ORDER BY u.subscription_id, k.id
ON CONFLICT (sink_id, subscription_id) DO UPDATE SET head_seq = greatest(sink_stream.head_seq, excluded.head_seq)
