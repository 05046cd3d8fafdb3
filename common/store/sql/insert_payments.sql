-- One row per payment whatever the number of events that tell of it. In key order: one invoice may be told of two
-- subscriptions by two transactions at once.
INSERT INTO payment (route_id, account, payment_key, subscription_id, term_no, amount_minor, currency, paid_at,
                     period_starts_at, period_ends_at)
SELECT u.*
  FROM unnest($1::smallint[], $2::text[], $3::text[], $4::bigint[], $5::integer[], $6::bigint[], $7::text[],
              $8::timestamptz[], $9::timestamptz[], $10::timestamptz[])
       u (route_id, account, payment_key, subscription_id, term_no, amount_minor, currency, paid_at, period_starts_at,
          period_ends_at)
 ORDER BY u.route_id, u.account COLLATE "C", u.payment_key COLLATE "C"
ON CONFLICT (route_id, account, payment_key) DO NOTHING
