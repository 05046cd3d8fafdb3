INSERT INTO subject (external_id) SELECT * FROM unnest($1::text[]) u (external_id) ORDER BY u.external_id COLLATE "C"
ON CONFLICT (external_id) DO NOTHING
