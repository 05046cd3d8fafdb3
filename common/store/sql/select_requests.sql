SELECT request_id, request_sha256, response
  FROM request_log
 WHERE method = $1 AND request_id = ANY ($2::text[])
