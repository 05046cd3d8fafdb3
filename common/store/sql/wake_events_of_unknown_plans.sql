-- The catalogue may know their price now (C140).
UPDATE provider_event
   SET next_attempt_at = tenure_now()
 WHERE status = 'parked' AND reason = 'unknown_plan' AND next_attempt_at > tenure_now()
