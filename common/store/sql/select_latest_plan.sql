SELECT id, revision FROM plan WHERE name = $1 ORDER BY revision DESC LIMIT 1
