-- Taken before anything else of a write: a concurrent repeat waits here for the first one's commit and then inserts
-- nothing.
INSERT INTO request_log (method, request_id, request_sha256, actor, reason)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (method, request_id) DO NOTHING
