SELECT id, name, environment
  FROM route
 WHERE name = $1 AND environment = $2
