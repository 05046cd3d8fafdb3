-- As list_events_set_aside, oldest first, for replays: events that have a body.
SELECT l.id
  FROM unnest($10::text[]) s (status)
 CROSS JOIN LATERAL (
        SELECT e.id
          FROM provider_event e
         WHERE e.status = s.status AND e.status IN ('parked', 'failed', 'quarantined', 'dead')
           AND e.route_id = ANY ($1::smallint[])
           AND ($2::text IS NULL OR e.event_type = $2)
           AND ($3::text IS NULL OR e.reason = $3)
           AND ($4::text IS NULL OR e.account = $4)
           AND ($5::timestamptz IS NULL OR e.received_at >= $5)
           AND ($6::timestamptz IS NULL OR e.received_at < $6)
           AND e.id >= $7::bigint AND e.id < $8::bigint
           AND e.body IS NOT NULL
         ORDER BY e.status, e.id
         LIMIT $9) l
 ORDER BY l.id
 LIMIT $9
