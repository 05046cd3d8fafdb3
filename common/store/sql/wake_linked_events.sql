-- Events that wait for this customer's subject (C011). Inbox rows come before everything else in the order of locks (R8)
-- and here they come last, so one that somebody holds is passed by: it is being tried, or will be soon.
WITH c AS MATERIALIZED (
  SELECT id
    FROM provider_event
   WHERE status = 'parked' AND reason IN ('no_subject', 'subject_conflict')
     AND route_id = $1 AND account = $2 AND customer_id = $3
   ORDER BY id
     FOR NO KEY UPDATE SKIP LOCKED)
UPDATE provider_event
   SET next_attempt_at = tenure_now()
 WHERE id = ANY (ARRAY(SELECT id FROM c)) AND status = 'parked' AND reason IN ('no_subject', 'subject_conflict')
