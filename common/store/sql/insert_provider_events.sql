-- In the order of the key: two batches with the same events wait for each other in one direction only. A concurrent
-- delivery of an event waits here for the first one's commit and then inserts nothing (C001).
-- The row says from the start what is expected to become of it. $12: microseconds until something looks at an event that
-- is only stored. What a provider says of an erased person is not kept (D14), but an event that may still have to wait keeps
-- its body until it is settled: whose customer is erased is told.
INSERT INTO provider_event (route_id, account, livemode, external_event_id, event_type, body, body_sha256, occurred_at,
                            customer_id, status, reason, attempt_count, next_attempt_at, processed_at)
SELECT u.route_id, u.account, u.livemode, u.external_event_id, u.event_type,
       CASE WHEN u.status IN ('ignored', 'quarantined') AND u.customer_id <> ''
             AND EXISTS (SELECT FROM customer_link l
                           JOIN subject c ON c.id = l.subject_id
                          WHERE l.route_id = u.route_id AND l.account = u.account AND l.customer_id = u.customer_id
                            AND c.erased_at IS NOT NULL)
            THEN NULL ELSE u.body END,
       u.body_sha256, u.occurred_at, nullif(u.customer_id, ''), u.status, u.reason,
       CASE WHEN u.wait IS NULL THEN 1 ELSE 0 END, tenure_now() + u.wait * interval '1 microsecond',
       CASE WHEN u.wait IS NULL THEN tenure_now() END
  FROM unnest($1::smallint[], $2::text[], $3::boolean[], $4::text[], $5::text[], $6::bytea[], $7::bytea[],
              $8::timestamptz[], $9::text[], $10::text[], $11::text[], $12::bigint[])
       u (route_id, account, livemode, external_event_id, event_type, body, body_sha256, occurred_at, customer_id, status,
          reason, wait)
 ORDER BY u.route_id, u.account COLLATE "C", u.livemode, u.external_event_id COLLATE "C"
ON CONFLICT (route_id, account, livemode, external_event_id) DO NOTHING
RETURNING id, route_id, account, livemode, external_event_id,
          EXISTS (SELECT FROM customer_link l
                    JOIN subject c ON c.id = l.subject_id
                   WHERE l.route_id = provider_event.route_id AND l.account = provider_event.account
                     AND l.customer_id = provider_event.customer_id AND c.erased_at IS NOT NULL) AS customer_erased
