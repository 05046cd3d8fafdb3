INSERT INTO plan (name, revision, definition) VALUES ($1, $2, $3) RETURNING id
