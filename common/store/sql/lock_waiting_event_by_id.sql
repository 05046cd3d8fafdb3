-- One event that waits, due or not. $2: the parking limit.
SELECT id, status, route_id, external_event_id, body, attempt_count, received_at <= tenure_now() - $2::interval AS too_old
  FROM provider_event
 WHERE id = $1 AND status IN ('received', 'parked', 'failed')
   FOR NO KEY UPDATE
