-- Looked at every second: one probe of the partial index and no transaction while nothing waits. ORDER BY keeps the
-- plan on that index: with many waiting events EXISTS is planned as a scan of the whole table.
SELECT coalesce((SELECT next_attempt_at <= tenure_now()
                   FROM provider_event
                  WHERE status IN ('received', 'parked', 'failed') AND route_id = ANY ($1::smallint[])
                  ORDER BY next_attempt_at, id
                  LIMIT 1), false) AS due
