-- The plans that products mean today, without their features.
SELECT u.route_name, u.product_id, p.id, p.name, p.revision, p.definition - 'features' AS definition, d.term_unit,
       d.term_count
  FROM unnest($1::text[], $2::text[]) u (route_name, product_id)
  JOIN provider_product d ON d.route_name = u.route_name AND d.product_id = u.product_id
 CROSS JOIN LATERAL (SELECT * FROM plan WHERE name = d.plan_name ORDER BY revision DESC LIMIT 1) p
