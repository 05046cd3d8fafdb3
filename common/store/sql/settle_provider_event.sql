-- $4: microseconds until something looks at the event again, NULL for a settled one.
-- What was settled meanwhile stays settled: a failure is written in a second transaction, and in between a redelivery
-- may have applied the event.
-- An applied event that was replayed without effect is an applied one still.
UPDATE provider_event
   SET status = CASE WHEN $2 = 'noop' AND reason = 'replay_of_applied' THEN 'applied' ELSE $2 END, reason = $3, attempt_count = attempt_count + 1,
       next_attempt_at = tenure_now() + $4::bigint * interval '1 microsecond',
       processed_at = CASE WHEN $4::bigint IS NULL THEN tenure_now() END,
       last_error = $5,
       -- A provider may go on about an erased person for months: what it says is not kept (D14). $6: the subscriptions that
       -- the event is about.
       body = CASE WHEN $4::bigint IS NULL
                    AND (EXISTS (SELECT FROM subscription s
                                   JOIN subject u ON u.id = s.subject_id
                                  WHERE s.id = ANY ($6::bigint[]) AND u.erased_at IS NOT NULL)
                      OR EXISTS (SELECT FROM customer_link l
                                   JOIN subject u ON u.id = l.subject_id
                                  WHERE l.route_id = provider_event.route_id AND l.account = provider_event.account
                                    AND l.customer_id = provider_event.customer_id AND u.erased_at IS NOT NULL))
                   THEN NULL ELSE body END
 WHERE id = $1 AND status IN ('received', 'parked', 'failed')
