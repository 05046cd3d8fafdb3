-- One row per payment whatever the number of events that tell of it.
INSERT INTO payment (route_id, account, payment_key, subscription_id, term_no, amount_minor, currency, paid_at,
                     period_starts_at, period_ends_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (route_id, account, payment_key) DO NOTHING
