-- Fills the database of the ingest bench: $2 copies of the one subscription that route $1 has, with all that was stored
-- about it. Names are alike but for their number, which has 12 digits between two underscores, so that bytes which hold
-- names stay valid when the number is replaced. Of the inbox only bodies are left out: those are pruned in time.
WITH t AS MATERIALIZED (
  SELECT s AS row, u.external_id, r.id AS route_id,
         (SELECT max(id) FROM subject) AS subject_base,
         (SELECT max(id) FROM subscription) AS subscription_base,
         (SELECT max(id) FROM provider_event) AS event_base
    FROM route r
    JOIN subscription s ON s.route_id = r.id
    JOIN subject u ON u.id = s.subject_id
   WHERE r.name = $1),
n AS MATERIALIZED (
  SELECT t.*, i, '_' || lpad(i::text, 12, '0') || '_' AS number, '_000000000000_' AS was,
         encode(convert_to('_' || lpad(i::text, 12, '0') || '_', 'UTF8'), 'hex') AS number_hex,
         encode('_000000000000_', 'hex') AS was_hex
    FROM t, generate_series(1, $2::bigint) AS i),
su AS (
  INSERT INTO subject (id, external_id) OVERRIDING SYSTEM VALUE
  SELECT subject_base + i, replace(external_id, was, number) FROM n),
ev AS (
  INSERT INTO provider_event (id, route_id, account, livemode, external_event_id, event_type, body_sha256, occurred_at,
                              processed_at, status, attempt_count, customer_id) OVERRIDING SYSTEM VALUE
  SELECT event_base + i, e.route_id, e.account, e.livemode, replace(e.external_event_id, was, number), e.event_type,
         e.body_sha256, e.occurred_at, e.processed_at, e.status, e.attempt_count, replace(e.customer_id, was, number)
    FROM n JOIN provider_event e ON e.route_id = n.route_id),
sb AS (
  INSERT INTO subscription (id, subject_id, plan_id, environment, route_id, account, provider_subscription_id, item_key,
                            status, lifetime, anchor_at, starts_at, expires_at, grace_period_ends_at, leeway_until,
                            will_renew, next_billing_at, term_no, episode, event_seq, fold_revision, version)
         OVERRIDING SYSTEM VALUE
  SELECT subscription_base + i, subject_base + i, (row).plan_id, (row).environment, route_id, (row).account,
         replace((row).provider_subscription_id, was, number), (row).item_key, (row).status, (row).lifetime,
         (row).anchor_at, (row).starts_at, (row).expires_at, (row).grace_period_ends_at, (row).leeway_until,
         (row).will_renew, (row).next_billing_at, (row).term_no, (row).episode, (row).event_seq, (row).fold_revision,
         (row).version
    FROM n),
fa AS (
  INSERT INTO subscription_fact (subscription_id, layer, order_at, rank, event_id, ordinal, kind, money_key, effective_at,
                                 plan_revision, body, provider_event_id)
  SELECT subscription_base + i, f.layer, f.order_at, f.rank, replace(f.event_id, was, number), f.ordinal, f.kind,
         replace(f.money_key, was, number), f.effective_at, f.plan_revision,
         decode(replace(encode(f.body, 'hex'), was_hex, number_hex), 'hex'), event_base + i
    FROM n JOIN subscription_fact f ON f.subscription_id = (row).id),
fo AS (
  INSERT INTO subscription_fold (subscription_id, revision, state)
  SELECT subscription_base + i, f.revision, decode(replace(encode(f.state, 'hex'), was_hex, number_hex), 'hex')
    FROM n JOIN subscription_fold f ON f.subscription_id = (row).id),
pa AS (
  INSERT INTO payment (route_id, account, payment_key, subscription_id, term_no, amount_minor, currency, paid_at,
                       period_starts_at, period_ends_at)
  SELECT n.route_id, p.account, replace(p.payment_key, was, number), subscription_base + i, p.term_no, p.amount_minor,
         p.currency, p.paid_at, p.period_starts_at, p.period_ends_at
    FROM n JOIN payment p ON p.route_id = n.route_id),
al AS (
  INSERT INTO payment_alias (route_id, account, alias, payment_key)
  SELECT n.route_id, a.account, replace(a.alias, was, number), replace(a.payment_key, was, number)
    FROM n JOIN payment_alias a ON a.route_id = n.route_id),
hi AS (
  INSERT INTO subscription_event (subscription_id, seq, event_type, business_key, episode, effective_at, old_access_until,
                                  access_until, data, cause)
  SELECT subscription_base + i, h.seq, h.event_type, h.business_key, h.episode, h.effective_at, h.old_access_until,
         h.access_until, h.data, h.cause
    FROM n JOIN subscription_event h ON h.subscription_id = (row).id),
si AS (
  INSERT INTO sink_stream (sink_id, subscription_id, sent_seq, head_seq)
  SELECT k.sink_id, subscription_base + i, k.sent_seq, k.head_seq
    FROM n JOIN sink_stream k ON k.subscription_id = (row).id)
SELECT setval(pg_get_serial_sequence('subject', 'id'), subject_base + $2::bigint),
       setval(pg_get_serial_sequence('subscription', 'id'), subscription_base + $2::bigint),
       setval(pg_get_serial_sequence('provider_event', 'id'), event_base + $2::bigint)
  FROM t
