-- The plan that a product means today, without its features.
SELECT p.id, p.name, p.revision, p.definition - 'features' AS definition, d.term_unit, d.term_count
  FROM provider_product d
  JOIN plan p ON p.name = d.plan_name
 WHERE d.route_name = $1 AND d.product_id = $2
 ORDER BY p.revision DESC
 LIMIT 1
