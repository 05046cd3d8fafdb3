SELECT u.external_id AS subject, o.plan_name, o.term_unit, o.term_count, o.amount_minor, o.currency, o.status
  FROM payment_order o
  JOIN subject u ON u.id = o.subject_id
 WHERE o.route_id = $1 AND o.order_id = $2
