-- The latest revision, without its features.
SELECT id, name, revision, definition - 'features' AS definition
  FROM plan
 WHERE name = $1
 ORDER BY revision DESC
 LIMIT 1
