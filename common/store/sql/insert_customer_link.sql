-- A link never replaces another one: a provider's event does not move a customer to somebody else.
INSERT INTO customer_link (route_id, account, customer_id, subject_id)
VALUES ($1, $2, $3, $4)
ON CONFLICT (route_id, account, customer_id) DO NOTHING
