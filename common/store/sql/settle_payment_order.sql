UPDATE payment_order SET status = 'PAID', payment_key = $3 WHERE route_id = $1 AND order_id = $2 AND status <> 'PAID'
