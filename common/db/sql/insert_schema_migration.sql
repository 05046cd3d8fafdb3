INSERT INTO schema_migration (version, name, checksum) VALUES ($1, $2, $3)
