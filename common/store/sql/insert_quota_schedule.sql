INSERT INTO quota_schedule (subscription_id, meter, term_key, term_no, period_no, amount, scheduled_at)
SELECT $1, u.meter, u.term_key, u.term_no, u.period_no, u.amount, u.scheduled_at
  FROM unnest($2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::timestamptz[])
       u (meter, term_key, term_no, period_no, amount, scheduled_at)
