-- Of both environments, in the order in which they are locked (R8).
SELECT id, environment
  FROM subscription
 WHERE subject_id = $1
 ORDER BY id
