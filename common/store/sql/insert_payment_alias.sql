INSERT INTO payment_alias (route_id, account, alias, payment_key)
VALUES ($1, $2, $3, $4)
ON CONFLICT (route_id, account, alias) DO NOTHING
