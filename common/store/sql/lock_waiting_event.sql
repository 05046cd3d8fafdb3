-- The next event of the routes in $1 that waits and is due, unless another process has it. A process leaves the routes
-- that it does not have to those that do. $2: the parking limit.
WITH c AS MATERIALIZED (
  SELECT id
    FROM provider_event
   WHERE status IN ('received', 'parked', 'failed') AND next_attempt_at <= tenure_now()
     AND route_id = ANY ($1::smallint[])
   ORDER BY next_attempt_at, id
   LIMIT 1
     FOR NO KEY UPDATE SKIP LOCKED)
SELECT e.id, e.status, e.route_id, e.external_event_id, e.body, e.attempt_count,
       e.received_at <= tenure_now() - $2::interval AS too_old
  FROM provider_event e
 WHERE e.id = ANY (ARRAY(SELECT id FROM c))
