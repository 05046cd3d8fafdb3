-- Ids of events that were never tried, newest first. They are in the index of those that wait, which is short; there is
-- none by id, so that an event that is applied at once pays for none.
WITH w AS MATERIALIZED (
  SELECT id, status, route_id, event_type, reason, account, received_at
    FROM provider_event
   WHERE status = 'received' AND status IN ('received', 'parked', 'failed'))
SELECT e.id
  FROM w e
 WHERE e.route_id = ANY ($1::smallint[])
   AND ($2::text IS NULL OR e.event_type = $2)
   AND ($3::text IS NULL OR e.reason = $3)
   AND ($4::text IS NULL OR e.account = $4)
   AND ($5::timestamptz IS NULL OR e.received_at >= $5)
   AND ($6::timestamptz IS NULL OR e.received_at < $6)
   AND e.id >= $7::bigint AND e.id < $8::bigint
   AND (cardinality($10::text[]) = 0 OR e.status = ANY ($10::text[]))
 ORDER BY e.id DESC
 LIMIT $9
