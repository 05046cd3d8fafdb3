-- Events as operators see them, newest first. Neither length reads a body.
SELECT e.id, e.route_id, r.name AS route, e.account, e.livemode, e.external_event_id, e.event_type,
       coalesce(e.customer_id, '') AS customer_id, e.status, e.reason, e.last_error, e.attempt_count, e.occurred_at,
       e.received_at, e.processed_at, e.next_attempt_at, e.body_sha256, coalesce(octet_length(e.body), 0) AS body_size,
       (SELECT count(*) FROM event_conflict c WHERE c.event_id = e.id) AS conflict_count
  FROM provider_event e
  JOIN route r ON r.id = e.route_id
 WHERE e.id = ANY ($1::bigint[]) AND r.environment = $2
 ORDER BY e.id DESC
