UPDATE subscription
   SET status = $2, lifetime = $3, anchor_at = $4, starts_at = $5, expires_at = $6, grace_period_ends_at = $7,
       leeway_until = $8, cancel_at = $9, will_renew = $10, term_no = $11, expired_at = $12, episode = $13,
       event_seq = $14, fold_revision = $15, version = version + 1
 WHERE id = $1
