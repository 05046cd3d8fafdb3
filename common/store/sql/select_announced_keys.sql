SELECT business_key FROM subscription_event WHERE subscription_id = $1 AND business_key = ANY ($2::text[])
