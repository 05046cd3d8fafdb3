SELECT p.id, p.name, p.revision
  FROM provider_product d
  JOIN plan p ON p.name = d.plan_name
 WHERE d.route_name = $1 AND d.product_id = $2
 ORDER BY p.revision DESC
 LIMIT 1
