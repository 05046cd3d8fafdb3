-- $1: environment, $2: plan name or '' for all, $3: keyset cursor.
SELECT s.id
  FROM subscription s
  JOIN plan p ON p.id = s.plan_id
 WHERE s.environment = $1 AND ($2 = '' OR p.name = $2) AND s.id > $3
 ORDER BY s.id
 LIMIT $4
