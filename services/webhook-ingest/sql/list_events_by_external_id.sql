-- Ids of events that their provider calls $11, in the account $4. $12: -1 for the newest first, 1 for the oldest.
WITH c AS MATERIALIZED (
  SELECT id, status, route_id, event_type, reason, account, received_at
    FROM provider_event
   WHERE route_id = ANY ($1::smallint[]) AND account = $4 AND livemode IN (false, true) AND external_event_id = $11)
SELECT e.id
  FROM c e
 WHERE e.route_id = ANY ($1::smallint[])
   AND ($2::text IS NULL OR e.event_type = $2)
   AND ($3::text IS NULL OR e.reason = $3)
   AND ($4::text IS NULL OR e.account = $4)
   AND ($5::timestamptz IS NULL OR e.received_at >= $5)
   AND ($6::timestamptz IS NULL OR e.received_at < $6)
   AND e.id >= $7::bigint AND e.id < $8::bigint
   AND (cardinality($10::text[]) = 0 OR e.status = ANY ($10::text[]))
 ORDER BY e.id * $12::bigint
 LIMIT $9
