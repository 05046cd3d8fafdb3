SELECT u.id, u.external_id, u.erased_at IS NOT NULL AS erased
  FROM customer_link l
  JOIN subject u ON u.id = l.subject_id
 WHERE l.route_id = $1 AND l.account = $2 AND l.customer_id = $3
