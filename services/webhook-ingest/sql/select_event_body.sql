SELECT body
  FROM provider_event
 WHERE id = $1
