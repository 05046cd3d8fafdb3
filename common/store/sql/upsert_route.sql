-- Kind and environment of a route never change: its subscriptions carry them (R15). An insert that conflicts uses up a
-- number of the identity all the same, and every start registers every route, so only a new name is inserted (C113).
WITH known AS (
  SELECT id, kind, environment FROM route WHERE name = $1
), added AS (
  INSERT INTO route (name, kind, environment)
  SELECT $1, $2, $3 WHERE NOT EXISTS (SELECT 1 FROM known)
  ON CONFLICT (name) DO UPDATE SET name = excluded.name
  RETURNING id, kind, environment
)
SELECT id, kind, environment FROM known UNION ALL SELECT id, kind, environment FROM added
