CREATE TABLE IF NOT EXISTS schema_migration (
  version    integer PRIMARY KEY,
  name       text NOT NULL,
  checksum   text NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT statement_timestamp(),
  applied_by text NOT NULL DEFAULT current_user
)
