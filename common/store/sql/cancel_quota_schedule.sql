UPDATE quota_schedule
   SET status = 'CANCELLED', settled_at = tenure_now()
 WHERE id = ANY ($1::bigint[]) AND status = 'PENDING'
