-- What access decisions read of a definition.
INSERT INTO plan_feature (plan_id, feature, limit_value, quantity_value)
SELECT p.id, f ->> 'name', (f ->> 'limit')::bigint, (f ->> 'quantity')::bigint
  FROM plan p, jsonb_array_elements(p.definition -> 'features') f
 WHERE p.id = $1 AND coalesce((f ->> 'enabled')::boolean, true)
