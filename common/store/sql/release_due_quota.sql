-- Releases what is due of the given subscriptions, as far as they give access now (S4-11, D13). One statement: locks in
-- the order of R8 (subscription, then schedule), ledger row, balance, history and outbox together.
--   SKIP LOCKED  a subscription that a payment holds is released by that payment or by the next run
--   of u too     the ledger row refers to the subject: an erasure that holds it may be waiting for this subscription
--   c, then due  the conditions are judged again on the locked versions of the rows
--   ON CONFLICT  the ledger's key is the period, whatever schedule row carried it: nothing is paid twice (S4-18)
WITH c AS MATERIALIZED (
  SELECT s.id, s.subject_id
    FROM subscription s
    JOIN subject u ON u.id = s.subject_id
   WHERE s.id = ANY ($1::bigint[])
     AND s.status IN ('TRIALING', 'ACTIVE', 'PAST_DUE')
     AND (s.lifetime OR s.access_until > tenure_now())
     AND s.starts_at <= tenure_now()
     AND (s.pause_at IS NULL OR s.pause_at > tenure_now())
   ORDER BY s.id
     FOR KEY SHARE OF u SKIP LOCKED
     FOR NO KEY UPDATE OF s SKIP LOCKED),
due AS MATERIALIZED (
  SELECT q.id, q.subscription_id, q.meter, q.term_key, q.term_no, q.period_no, q.amount, q.scheduled_at
    FROM quota_schedule q
   WHERE q.subscription_id = ANY (ARRAY(SELECT id FROM c)) AND q.status = 'PENDING' AND q.scheduled_at <= tenure_now()
   ORDER BY q.id
     FOR NO KEY UPDATE),
r AS (
  UPDATE quota_schedule
     SET status = 'RELEASED', settled_at = tenure_now()
   WHERE id = ANY (ARRAY(SELECT id FROM due)) AND status = 'PENDING'),
t AS (
  INSERT INTO quota_transaction (subject_id, subscription_id, meter, biz_type, biz_id, delta, due_at)
  SELECT c.subject_id, d.subscription_id, d.meter, 'monthly_release',
         d.subscription_id || '/' || d.meter || '/' || d.term_key || '/' || d.period_no, d.amount, d.scheduled_at
    FROM due d
    JOIN c ON c.id = d.subscription_id
   ORDER BY d.scheduled_at, d.id
  ON CONFLICT DO NOTHING
  RETURNING biz_id),
paid AS (
  SELECT d.*, row_number() OVER (PARTITION BY d.subscription_id ORDER BY d.scheduled_at, d.id) AS n
    FROM due d
    JOIN t ON t.biz_id = d.subscription_id || '/' || d.meter || '/' || d.term_key || '/' || d.period_no),
g AS (
  INSERT INTO quota_grant (subscription_id, meter, schedule_id, amount, remaining)
  SELECT subscription_id, meter, id, amount, amount FROM paid ORDER BY scheduled_at, id),
u AS (
  UPDATE subscription s
     SET event_seq = s.event_seq + x.n, version = s.version + 1
    FROM (SELECT subscription_id, max(n) AS n FROM paid GROUP BY subscription_id) x
   WHERE s.id = x.subscription_id
  RETURNING s.id, s.event_seq, s.event_seq - x.n AS seq_before, s.episode, s.access_until),
e AS (
  INSERT INTO subscription_event (subscription_id, seq, event_type, business_key, episode, effective_at, old_access_until,
                                  access_until, data, cause)
  SELECT u.id, u.seq_before + p.n, 'subscription.quota_released',
         'quota_released/' || p.meter || '/' || p.term_key || '/' || p.period_no, u.episode, p.scheduled_at,
         u.access_until, u.access_until,
         jsonb_build_object('meter', p.meter, 'amount', p.amount, 'term_no', p.term_no, 'period_no', p.period_no), $2
    FROM u
    JOIN paid p ON p.subscription_id = u.id),
k AS (
  INSERT INTO sink_stream (sink_id, subscription_id, sent_seq, head_seq, next_attempt_at)
  SELECT k.id, u.id, 0, u.event_seq, tenure_now()
    FROM u, sink k
   ORDER BY u.id, k.id
  ON CONFLICT (sink_id, subscription_id) DO UPDATE SET head_seq = excluded.head_seq)
SELECT (SELECT count(*) FROM due) AS due, (SELECT count(*) FROM paid) AS released
