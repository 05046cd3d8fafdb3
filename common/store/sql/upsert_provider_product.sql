INSERT INTO provider_product AS d (route_name, product_id, plan_name, term_unit, term_count)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (route_name, product_id) DO UPDATE
   SET plan_name = excluded.plan_name, term_unit = excluded.term_unit, term_count = excluded.term_count
 WHERE (d.plan_name, d.term_unit, d.term_count)
       IS DISTINCT FROM (excluded.plan_name, excluded.term_unit, excluded.term_count)
