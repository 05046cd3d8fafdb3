-- One revision, without its features.
SELECT id, name, revision, definition - 'features' AS definition
  FROM plan
 WHERE id = $1
