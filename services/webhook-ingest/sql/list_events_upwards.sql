-- As list_events, oldest first, for replays: events that have a body.
SELECT e.id
  FROM provider_event e
 WHERE e.route_id = ANY ($1::smallint[])
   AND ($2::text IS NULL OR e.event_type = $2)
   AND ($3::text IS NULL OR e.reason = $3)
   AND ($4::text IS NULL OR e.account = $4)
   AND ($5::timestamptz IS NULL OR e.received_at >= $5)
   AND ($6::timestamptz IS NULL OR e.received_at < $6)
   AND e.id >= $7::bigint AND e.id < $8::bigint
   AND (cardinality($10::text[]) = 0 OR e.status = ANY ($10::text[]))
   AND e.body IS NOT NULL
 ORDER BY e.id
 LIMIT $9
