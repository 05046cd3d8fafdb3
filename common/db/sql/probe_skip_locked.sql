-- Runs the locking clause that every claim needs; a server without it answers with a syntax error (S0-43).
SELECT name FROM job LIMIT 0 FOR NO KEY UPDATE SKIP LOCKED
