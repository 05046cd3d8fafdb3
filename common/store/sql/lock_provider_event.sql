SELECT id, status, reason, body_sha256
  FROM provider_event
 WHERE route_id = $1 AND account = $2 AND livemode = $3 AND external_event_id = $4
   FOR NO KEY UPDATE
