SELECT max(order_at) AS order_at FROM subscription_fact WHERE subscription_id = $1 AND layer = 3
