-- Their customer may be known now (C011). Which events those are is in their bodies, so all of the route look again.
UPDATE provider_event
   SET next_attempt_at = tenure_now()
 WHERE status = 'parked' AND reason IN ('no_subject', 'subject_conflict') AND route_id = $1
   AND next_attempt_at > tenure_now()
