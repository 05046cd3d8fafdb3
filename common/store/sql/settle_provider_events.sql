-- $4: microseconds until something looks at the event again, NULL for a settled one. $6: the event was inserted by this
-- transaction, as if it had been applied. $7, $8: events and the subscriptions that they are about.
-- What was settled meanwhile stays settled: a failure is written in a second transaction, and in between a redelivery
-- may have applied the event.
-- An applied event that was replayed without effect is an applied one still.
UPDATE provider_event e
   SET status = CASE WHEN u.status = 'noop' AND e.reason = 'replay_of_applied' THEN 'applied' ELSE u.status END,
       reason = u.reason, attempt_count = e.attempt_count + CASE WHEN u.fresh THEN 0 ELSE 1 END,
       next_attempt_at = tenure_now() + u.wait * interval '1 microsecond',
       processed_at = CASE WHEN u.wait IS NULL THEN tenure_now() END,
       last_error = u.error,
       -- A provider may go on about an erased person for months: what it says is not kept (D14).
       body = CASE WHEN u.wait IS NULL
                    AND (EXISTS (SELECT FROM unnest($7::bigint[], $8::bigint[]) x (event_id, subscription_id)
                                   JOIN subscription s ON s.id = x.subscription_id
                                   JOIN subject c ON c.id = s.subject_id
                                  WHERE x.event_id = e.id AND c.erased_at IS NOT NULL)
                      OR EXISTS (SELECT FROM customer_link l
                                   JOIN subject c ON c.id = l.subject_id
                                  WHERE l.route_id = e.route_id AND l.account = e.account
                                    AND l.customer_id = e.customer_id AND c.erased_at IS NOT NULL))
                   THEN NULL ELSE e.body END
  FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::boolean[])
       u (id, status, reason, wait, error, fresh)
 WHERE e.id = u.id AND (u.fresh OR e.status IN ('received', 'parked', 'failed'))
