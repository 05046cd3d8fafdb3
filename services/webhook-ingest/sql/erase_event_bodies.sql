-- Raw bodies of the events that made facts of a subject's subscriptions. Facts keep what was said, without names.
UPDATE provider_event e
   SET body = NULL
 WHERE e.body IS NOT NULL
   AND e.id IN (SELECT f.provider_event_id
                  FROM subscription s
                  JOIN subscription_fact f ON f.subscription_id = s.id
                 WHERE s.subject_id = $1)
