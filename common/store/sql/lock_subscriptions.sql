-- One that is locked elsewhere is passed by: a hot subscription must not hold up the others of its batch.
SELECT id FROM subscription WHERE id = ANY ($1::bigint[]) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
