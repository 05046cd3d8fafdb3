INSERT INTO plan (name, revision) VALUES ($1, $2) RETURNING id
