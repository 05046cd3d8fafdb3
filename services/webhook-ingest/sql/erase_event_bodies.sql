-- Raw bodies of the events that made facts of a subject's subscriptions, and of all others of his customers. Facts keep
-- what was said, without names. An event that still waits keeps its body until it is settled, and loses it then.
-- Returns all these events, with what became of their bodies.
WITH mine AS (
  SELECT f.provider_event_id AS id
    FROM subscription s
    JOIN subscription_fact f ON f.subscription_id = s.id
   WHERE s.subject_id = $1),
customer AS (
  SELECT l.route_id, l.account, l.customer_id FROM customer_link l WHERE l.subject_id = $1
  UNION
  SELECT e.route_id, e.account, e.customer_id
    FROM provider_event e
   WHERE e.id IN (SELECT id FROM mine) AND e.customer_id IS NOT NULL),
his AS (
  SELECT id FROM mine WHERE id IS NOT NULL
  UNION
  SELECT e.id
    FROM customer c
    JOIN provider_event e ON e.route_id = c.route_id AND e.account = c.account AND e.customer_id = c.customer_id),
emptied AS (
  UPDATE provider_event e
     SET body = NULL
   WHERE e.body IS NOT NULL AND e.processed_at IS NOT NULL AND e.id IN (SELECT id FROM his)
  RETURNING e.id)
SELECT h.id, h.id IN (SELECT id FROM emptied) AS emptied
  FROM his h
