SELECT request_sha256, response
  FROM request_log
 WHERE method = $1 AND request_id = $2
