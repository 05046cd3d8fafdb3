SELECT id
  FROM subscription
 WHERE route_id = $1 AND account = $2 AND provider_subscription_id = $3 AND item_key = $4
   FOR NO KEY UPDATE
