-- Waits for a try that is under way. $2: the environment of its route.
SELECT e.id, e.status, e.body IS NULL AS body_gone
  FROM provider_event e
 WHERE e.id = $1 AND e.route_id IN (SELECT id FROM route WHERE environment = $2)
   FOR NO KEY UPDATE
