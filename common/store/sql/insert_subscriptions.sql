-- In key order. A concurrent first event of the same subscription waits here and then finds nothing to insert.
INSERT INTO subscription (subject_id, plan_id, environment, route_id, account, provider_subscription_id, item_key, status,
                          fold_revision, prepaid)
SELECT u.subject_id, u.plan_id, u.environment, u.route_id, u.account, nullif(u.provider_subscription_id, ''), u.item_key,
       'PENDING', $8, $9
  FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::smallint[], $5::text[], $6::text[], $7::text[])
       u (subject_id, plan_id, environment, route_id, account, provider_subscription_id, item_key)
 ORDER BY u.route_id, u.account COLLATE "C", u.provider_subscription_id COLLATE "C", u.item_key COLLATE "C"
ON CONFLICT (route_id, account, provider_subscription_id, item_key) DO NOTHING
RETURNING id, route_id, account, provider_subscription_id, item_key
