SELECT id, meter, term_key, term_no, period_no, amount, scheduled_at, status, settled_at
  FROM quota_schedule
 WHERE subscription_id = $1
 ORDER BY id
   FOR NO KEY UPDATE
