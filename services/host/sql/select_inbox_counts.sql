-- How many events need somebody, by route and state, for a gauge that is read every few seconds: at most $1 of those
-- that wait, the longest due first, and $1 of each state that only an operator ends, the newest first. One more than a
-- gauge can tell is not read. Ages in microseconds, NULL where nothing waits: since the event arrived, and since it is
-- due.
WITH waiting AS MATERIALIZED (
  SELECT route_id, status, received_at, next_attempt_at
    FROM provider_event
   WHERE status IN ('received', 'parked', 'failed')
   ORDER BY next_attempt_at, id
   LIMIT $1::bigint
), quarantined AS MATERIALIZED (
  SELECT route_id
    FROM provider_event
   WHERE status = 'quarantined'
   ORDER BY id DESC
   LIMIT $1::bigint
), dead AS MATERIALIZED (
  SELECT route_id
    FROM provider_event
   WHERE status = 'dead'
   ORDER BY id DESC
   LIMIT $1::bigint
), event AS (
  SELECT route_id, status, received_at, next_attempt_at FROM waiting
  UNION ALL SELECT route_id, 'quarantined', NULL, NULL FROM quarantined
  UNION ALL SELECT route_id, 'dead', NULL, NULL FROM dead
)
SELECT r.name AS route,
       count(*) FILTER (WHERE e.status = 'received') AS received,
       count(*) FILTER (WHERE e.status = 'parked') AS parked,
       count(*) FILTER (WHERE e.status = 'failed') AS failed,
       count(*) FILTER (WHERE e.status = 'quarantined') AS quarantined,
       count(*) FILTER (WHERE e.status = 'dead') AS dead,
       (extract(epoch FROM greatest(tenure_now() - min(e.received_at), interval '0')) * 1000000)::bigint AS pending_age_us,
       (extract(epoch FROM greatest(tenure_now() - min(e.next_attempt_at), interval '0')) * 1000000)::bigint AS due_age_us
  FROM route r
  LEFT JOIN event e ON e.route_id = r.id
 GROUP BY r.name
