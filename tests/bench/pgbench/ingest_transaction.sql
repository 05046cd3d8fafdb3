-- What webhook-ingest stores for one renewal, by hand: one transaction per event, seven statements, the row and its sum
-- of facts read under the lock, as a program needs them that folds. pgbench -M prepared.
\set number random(0, :subscriptions)
\set event random(1, 9223372036854775806)
BEGIN;
INSERT INTO provider_event (route_id, account, livemode, external_event_id, event_type, body, body_sha256, occurred_at,
                            customer_id, status, processed_at, attempt_count)
VALUES (:route, '', true, 'evt_' || :event::text, 'invoice.paid', :body, :sha256, tenure_now(),
        'cus_' || lpad(:number::text, 12, '0') || '_', 'applied', tenure_now(), 1)
ON CONFLICT (route_id, account, livemode, external_event_id) DO NOTHING
RETURNING id AS event_row \gset
SELECT s.id AS subscription, s.event_seq + 1 AS seq, s.term_no + 1 AS term_no, s.expires_at AS from_at,
       s.expires_at + interval '30 days' AS to_at, s.access_until AS old_access_until, f.state
  FROM subscription s
  JOIN subscription_fold f ON f.subscription_id = s.id
 WHERE s.route_id = :route AND s.account = '' AND s.item_key = ''
   AND s.provider_subscription_id = 'sub_' || lpad(:number::text, 12, '0') || '_'
   FOR NO KEY UPDATE OF s \gset
INSERT INTO subscription_fact (subscription_id, layer, order_at, rank, event_id, ordinal, kind, money_key, effective_at,
                               plan_revision, body, provider_event_id)
VALUES (:subscription, 2, tenure_now(), 40, 'evt_' || :event::text, 0, 'paid', 'in_' || :event::text, tenure_now(), 1,
        :fact, :event_row)
ON CONFLICT DO NOTHING;
WITH p AS (
  INSERT INTO payment (route_id, account, payment_key, subscription_id, term_no, amount_minor, currency, paid_at,
                       period_starts_at, period_ends_at)
  VALUES (:route, '', 'in_' || :event::text, :subscription, :term_no, 900, 'USD', tenure_now(), :from_at, :to_at)
  ON CONFLICT (route_id, account, payment_key) DO NOTHING)
INSERT INTO payment_alias (route_id, account, alias, payment_key)
VALUES (:route, '', 'ch_' || :event::text, 'in_' || :event::text),
       (:route, '', 'pi_' || :event::text, 'in_' || :event::text)
ON CONFLICT (route_id, account, alias) DO NOTHING;
WITH f AS (
  UPDATE subscription_fold SET state = :state::bytea || :added::bytea WHERE subscription_id = :subscription)
UPDATE subscription
   SET expires_at = :to_at, leeway_until = :to_at::timestamptz + interval '3 hours', next_billing_at = :to_at,
       term_no = :term_no, event_seq = :seq, version = version + 1
 WHERE id = :subscription;
INSERT INTO subscription_event (subscription_id, seq, event_type, business_key, episode, effective_at, old_access_until,
                                access_until, cause)
VALUES (:subscription, :seq, 'subscription.renewed', 'renewed/' || :event::text, 0, :from_at, :old_access_until,
        :to_at::timestamptz + interval '3 hours', 'provider_event/' || :event_row::text);
INSERT INTO sink_stream (sink_id, subscription_id, sent_seq, head_seq, next_attempt_at)
SELECT k.id, :subscription, 0, :seq, tenure_now() FROM sink k ORDER BY k.id
ON CONFLICT (sink_id, subscription_id) DO UPDATE SET head_seq = greatest(sink_stream.head_seq, excluded.head_seq);
COMMIT;
