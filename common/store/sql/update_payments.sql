-- The number of a term moves when an older one becomes known; what was refunded is the fold's sum.
UPDATE payment p
   SET term_no = u.term_no, refunded_minor = u.refunded_minor
  FROM unnest($4::text[], $5::bigint[], $6::bigint[]) u (payment_key, term_no, refunded_minor)
 WHERE p.route_id = $1 AND p.account = $2 AND p.payment_key = u.payment_key AND p.subscription_id = $3
   AND (p.term_no, p.refunded_minor) IS DISTINCT FROM (u.term_no, u.refunded_minor)
