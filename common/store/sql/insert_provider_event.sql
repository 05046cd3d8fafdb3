-- A concurrent delivery of the same event waits here for the first one's commit and then inserts nothing (C001).
INSERT INTO provider_event (route_id, account, livemode, external_event_id, event_type, body, body_sha256, occurred_at,
                            customer_id, status, next_attempt_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, nullif($9, ''), 'received', tenure_now())
ON CONFLICT (route_id, account, livemode, external_event_id) DO NOTHING
RETURNING id
