SELECT id, name
  FROM route
 WHERE environment = $1
