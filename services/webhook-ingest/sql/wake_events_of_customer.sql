-- Events that wait for this customer's subject (C011). A row of an earlier version names no customer: its body is searched.
-- Apart from wake_linked_events because this one comes first in the order of locks (R8) and waits for a try that is under
-- way, which that one must pass by; a parameter cannot choose SKIP LOCKED.
WITH c AS MATERIALIZED (
  SELECT id
    FROM provider_event
   WHERE status = 'parked' AND reason IN ('no_subject', 'subject_conflict')
     AND route_id = $1 AND account = $2
     AND (customer_id = $3 OR (customer_id IS NULL AND position(convert_to($3, 'UTF8') IN body) > 0))
   ORDER BY id
     FOR NO KEY UPDATE)
UPDATE provider_event
   SET next_attempt_at = tenure_now()
 WHERE id = ANY (ARRAY(SELECT id FROM c)) AND status = 'parked' AND reason IN ('no_subject', 'subject_conflict')
