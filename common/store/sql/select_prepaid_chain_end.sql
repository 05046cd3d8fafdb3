-- The latest end of what was bought by single orders; ended terms too, because an order paid before the end of one that
-- has lapsed since goes on from there.
SELECT max(s.expires_at) AS chain_end
  FROM subscription s
  JOIN plan p ON p.id = s.plan_id
 WHERE s.subject_id = $1 AND s.environment = $2 AND s.prepaid AND p.name = $3
   AND s.status IN ('TRIALING', 'ACTIVE', 'PAST_DUE', 'PAUSED', 'EXPIRED')
