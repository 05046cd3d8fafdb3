UPDATE request_log
   SET response = $3, subject_id = $4
 WHERE method = $1 AND request_id = $2
