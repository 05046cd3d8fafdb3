SELECT body
  FROM event_conflict
 WHERE id = $1 AND event_id = $2
