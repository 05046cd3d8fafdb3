-- Puts what became of the work in place of an answer that said it was still to come; of two at once the first one wins.
UPDATE request_log
   SET response = CASE WHEN response = $3 THEN $4 ELSE response END
 WHERE method = $1 AND request_id = $2
RETURNING response
