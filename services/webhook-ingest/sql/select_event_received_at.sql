-- The first event from $1 on, to find by halving where an instant lies among the ids.
SELECT received_at
  FROM provider_event
 WHERE id >= $1
 ORDER BY id
 LIMIT 1
