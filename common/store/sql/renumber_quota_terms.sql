-- The number of a term moves when an older one becomes known; the term itself is its key.
UPDATE quota_schedule q
   SET term_no = u.term_no
  FROM unnest($2::text[], $3::bigint[]) u (term_key, term_no)
 WHERE q.subscription_id = $1 AND q.term_key = u.term_key AND q.term_no <> u.term_no
