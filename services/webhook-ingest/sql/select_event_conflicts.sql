SELECT id, received_at, body_sha256, octet_length(body) AS body_size
  FROM event_conflict
 WHERE event_id = $1
 ORDER BY id DESC
 LIMIT 100
