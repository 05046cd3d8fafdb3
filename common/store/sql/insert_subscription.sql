-- A concurrent first event of the same subscription waits here and then finds nothing to insert.
INSERT INTO subscription (subject_id, plan_id, environment, route_id, account, provider_subscription_id, item_key, status,
                          fold_revision, prepaid)
VALUES ($1, $2, $3, $4, $5, nullif($6, ''), $7, 'PENDING', $8, $9)
ON CONFLICT (route_id, account, provider_subscription_id, item_key) DO NOTHING
RETURNING id
