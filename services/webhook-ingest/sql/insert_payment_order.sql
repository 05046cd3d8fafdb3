INSERT INTO payment_order (route_id, order_id, subject_id, plan_name, term_unit, term_count, amount_minor, currency)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (route_id, order_id) DO NOTHING
RETURNING created_at
