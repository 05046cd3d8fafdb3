-- Other bodies that came under the ids of the events in $1. A statement of its own, after the one that emptied these
-- events: who stores such a body holds its event, so the first statement has waited for him, and only a snapshot taken
-- later shows what he stored.
UPDATE event_conflict
   SET body = ''
 WHERE body <> '' AND event_id = ANY ($1::bigint[])
