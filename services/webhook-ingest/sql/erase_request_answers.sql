-- The request's hash goes too: whoever guesses a name could tell by it that the guess is right.
UPDATE request_log
   SET response = NULL, request_sha256 = sha256('')
 WHERE subject_id = $1
