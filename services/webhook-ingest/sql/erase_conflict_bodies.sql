-- Other bodies that came under the ids of those events.
UPDATE event_conflict c
   SET body = ''
 WHERE c.body <> ''
   AND c.event_id IN (SELECT f.provider_event_id
                        FROM subscription s
                        JOIN subscription_fact f ON f.subscription_id = s.id
                       WHERE s.subject_id = $1)
