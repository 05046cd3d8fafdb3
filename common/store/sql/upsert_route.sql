-- Kind and environment of a route never change: its subscriptions carry them (R15).
INSERT INTO route (name, kind, environment) VALUES ($1, $2, $3)
ON CONFLICT (name) DO UPDATE SET name = excluded.name
RETURNING id, kind, environment
