INSERT INTO provider_product (route_name, product_id, plan_name) VALUES ($1, $2, $3)
ON CONFLICT (route_name, product_id) DO UPDATE SET plan_name = excluded.plan_name
WHERE provider_product.plan_name <> excluded.plan_name
