-- One that somebody holds is being tried, and is passed over.
SELECT id
  FROM provider_event
 WHERE id = ANY ($1::bigint[]) AND body IS NOT NULL
 ORDER BY id
   FOR NO KEY UPDATE SKIP LOCKED
