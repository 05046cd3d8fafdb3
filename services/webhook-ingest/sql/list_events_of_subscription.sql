-- Ids of events that gave a fact of the subscription $11. $12: -1 for the newest first, 1 for the oldest.
SELECT e.id
  FROM provider_event e
 WHERE e.id = ANY (ARRAY(SELECT f.provider_event_id FROM subscription_fact f
                          WHERE f.subscription_id = $11::bigint AND f.provider_event_id IS NOT NULL))
   AND e.route_id = ANY ($1::smallint[])
   AND ($2::text IS NULL OR e.event_type = $2)
   AND ($3::text IS NULL OR e.reason = $3)
   AND ($4::text IS NULL OR e.account = $4)
   AND ($5::timestamptz IS NULL OR e.received_at >= $5)
   AND ($6::timestamptz IS NULL OR e.received_at < $6)
   AND e.id >= $7::bigint AND e.id < $8::bigint
   AND (cardinality($10::text[]) = 0 OR e.status = ANY ($10::text[]))
 ORDER BY e.id * $12::bigint
 LIMIT $9
