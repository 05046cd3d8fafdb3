SELECT id
  FROM provider_event
 WHERE route_id = $1 AND account = $2 AND livemode = $3 AND external_event_id = $4
