-- $1 subjects with one paid, renewing subscription each. All alike, so that every answer has the same size.
WITH r AS (
  INSERT INTO route (name, kind, environment) VALUES ('bench', 'stripe', 'live') RETURNING id
), p AS (
  INSERT INTO plan (name, revision) VALUES ('professional', 1) RETURNING id
), f AS (
  INSERT INTO plan_feature (plan_id, feature)
  SELECT p.id, feature FROM p, unnest(ARRAY['api', 'export', 'seats', 'support']) AS feature
), s AS (
  -- 24 bytes, the size that PERFORMANCE's memory figures assume.
  INSERT INTO subject (external_id)
  SELECT 'bench-user-' || lpad(i::text, 13, '0') FROM generate_series(1, $1::bigint) AS i
  RETURNING id, external_id
)
INSERT INTO subscription (subject_id, plan_id, environment, route_id, provider_subscription_id, status, anchor_at,
                          starts_at, expires_at, leeway_until, will_renew, next_billing_at, term_no, episode, event_seq,
                          fold_revision)
SELECT s.id, p.id, 'live', r.id, 'sub_' || s.external_id, 'ACTIVE', e.starts_at,
       e.starts_at, e.starts_at + interval '60 days', e.starts_at + interval '60 days 3 hours', true,
       e.starts_at + interval '60 days', 1, 1, 1, 1
FROM s, p, r,
     LATERAL (SELECT date_trunc('second', tenure_now()) - interval '1 hour' - (s.id % 2000000) * interval '1 second'
                AS starts_at) AS e
