SELECT id, route_id, status, reason
  FROM provider_event
 WHERE id = ANY ($1::bigint[])
 ORDER BY id
