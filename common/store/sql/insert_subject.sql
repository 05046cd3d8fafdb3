INSERT INTO subject (external_id) VALUES ($1) ON CONFLICT (external_id) DO NOTHING
