SELECT to_regclass('schema_migration') IS NOT NULL AS present
