-- What webhook-ingest stores for one renewal, by hand: one statement per event that commits by itself. Nothing can be
-- folded outside the database between reading and writing. pgbench -M prepared.
\set number random(0, :subscriptions)
\set event random(1, 9223372036854775806)
WITH s AS MATERIALIZED (
  SELECT s.id, s.event_seq + 1 AS seq, s.term_no + 1 AS term_no, s.expires_at AS from_at,
         s.expires_at + interval '30 days' AS to_at, s.access_until AS old_access_until
    FROM subscription s
   WHERE s.route_id = :route AND s.account = '' AND s.item_key = ''
     AND s.provider_subscription_id = 'sub_' || lpad(:number::text, 12, '0') || '_'
     FOR NO KEY UPDATE),
e AS (
  INSERT INTO provider_event (route_id, account, livemode, external_event_id, event_type, body, body_sha256, occurred_at,
                              customer_id, status, processed_at, attempt_count)
  VALUES (:route, '', true, 'evt_' || :event::text, 'invoice.paid', :body, :sha256, tenure_now(),
          'cus_' || lpad(:number::text, 12, '0') || '_', 'applied', tenure_now(), 1)
  ON CONFLICT (route_id, account, livemode, external_event_id) DO NOTHING
  RETURNING id AS event_row),
x AS MATERIALIZED (SELECT * FROM s, e),
f AS (
  INSERT INTO subscription_fact (subscription_id, layer, order_at, rank, event_id, ordinal, kind, money_key, effective_at,
                                 plan_revision, body, provider_event_id)
  SELECT id, 2, tenure_now(), 40, 'evt_' || :event::text, 0, 'paid', 'in_' || :event::text, tenure_now(), 1,
         :fact::bytea, event_row
    FROM x
  ON CONFLICT DO NOTHING),
p AS (
  INSERT INTO payment (route_id, account, payment_key, subscription_id, term_no, amount_minor, currency, paid_at,
                       period_starts_at, period_ends_at)
  SELECT :route, '', 'in_' || :event::text, id, term_no, 900, 'USD', tenure_now(), from_at, to_at FROM x
  ON CONFLICT (route_id, account, payment_key) DO NOTHING),
a AS (
  INSERT INTO payment_alias (route_id, account, alias, payment_key)
  SELECT :route, '', v.prefix || :event::text, 'in_' || :event::text FROM x, (VALUES ('ch_'), ('pi_')) v (prefix)
  ON CONFLICT (route_id, account, alias) DO NOTHING),
w AS (
  UPDATE subscription_fold f SET state = f.state || :added::bytea FROM x WHERE f.subscription_id = x.id),
u AS (
  UPDATE subscription s
     SET expires_at = x.to_at, leeway_until = x.to_at + interval '3 hours', next_billing_at = x.to_at,
         term_no = x.term_no, event_seq = x.seq, version = s.version + 1
    FROM x
   WHERE s.id = x.id),
h AS (
  INSERT INTO subscription_event (subscription_id, seq, event_type, business_key, episode, effective_at, old_access_until,
                                  access_until, cause)
  SELECT id, seq, 'subscription.renewed', 'renewed/' || :event::text, 0, from_at, old_access_until,
         to_at + interval '3 hours', 'provider_event/' || event_row
    FROM x)
INSERT INTO sink_stream (sink_id, subscription_id, sent_seq, head_seq, next_attempt_at)
SELECT k.id, x.id, 0, x.seq, tenure_now() FROM x, sink k ORDER BY x.id, k.id
ON CONFLICT (sink_id, subscription_id) DO UPDATE SET head_seq = greatest(sink_stream.head_seq, excluded.head_seq);
