UPDATE quota_schedule
   SET status = 'CANCELLED', settled_at = tenure_now()
 WHERE subscription_id = $1 AND status = 'PENDING'
