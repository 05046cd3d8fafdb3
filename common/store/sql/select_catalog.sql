-- The whole catalogue in one snapshot: the latest revision of each plan, the products of these plans, the default plan.
-- A revision from before definitions were stored gets one from its features.
WITH latest AS (
  SELECT DISTINCT ON (name) id, name, revision, definition
    FROM plan
   ORDER BY name, revision DESC)
SELECT 'plan' AS kind, p.name AS plan, p.revision,
       CASE WHEN p.definition <> '{}' THEN p.definition
            ELSE jsonb_build_object('features', (
              SELECT coalesce(jsonb_agg(jsonb_strip_nulls(jsonb_build_object(
                       'name', f.feature, 'limit', f.limit_value, 'quantity', f.quantity_value))), '[]')
                FROM plan_feature f
               WHERE f.plan_id = p.id))
       END AS definition,
       NULL AS route, NULL AS product_id, NULL AS term_unit, NULL AS term_count
  FROM latest p
UNION ALL
SELECT 'product', d.plan_name, NULL, NULL, d.route_name, d.product_id, d.term_unit, d.term_count
  FROM provider_product d
  JOIN latest p ON p.name = d.plan_name
UNION ALL
SELECT 'default', d.plan_name, NULL, NULL, NULL, NULL, NULL, NULL
  FROM default_plan d
