-- The number of a term moves when an older one becomes known; what was paid and refunded is the fold's word. By every
-- name of a payment: it is stored under the one that was told first.
UPDATE payment p
   SET term_no = u.term_no, amount_minor = u.amount_minor, refunded_minor = u.refunded_minor
  FROM unnest($1::bigint[], $2::text[], $3::integer[], $4::bigint[], $5::bigint[])
       u (subscription_id, payment_key, term_no, amount_minor, refunded_minor)
 WHERE p.subscription_id = u.subscription_id AND p.payment_key = u.payment_key
   AND (p.term_no, p.amount_minor, p.refunded_minor) IS DISTINCT FROM (u.term_no, u.amount_minor, u.refunded_minor)
