SELECT id FROM subject WHERE external_id = $1
