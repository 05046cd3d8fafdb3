-- The prepaid subscriptions of a subject that have not been ended; called under the lock of the chain.
SELECT id
  FROM subscription
 WHERE subject_id = $1 AND environment = $2 AND prepaid AND status IN ('TRIALING', 'ACTIVE', 'PAST_DUE', 'PAUSED')
 ORDER BY id
   FOR NO KEY UPDATE
