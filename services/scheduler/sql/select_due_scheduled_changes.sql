-- Live subscriptions whose pause or plan change has come. Access follows the instants already; this is the bookkeeping.
SELECT id, environment
  FROM subscription
 WHERE status IN ('TRIALING', 'ACTIVE', 'PAST_DUE')
   AND pause_at IS NOT NULL AND pause_at <= tenure_now() AND (lifetime OR pause_at <= access_until)
   AND id > $1
UNION
SELECT id, environment
  FROM subscription
 WHERE status IN ('TRIALING', 'ACTIVE', 'PAST_DUE')
   AND next_plan_at IS NOT NULL AND next_plan_at <= tenure_now()
   AND id > $1
 ORDER BY id
 LIMIT $2
