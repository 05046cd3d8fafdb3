-- The test form of tenure_now(): the statement timestamp moved by the setting
-- tenure.clock_offset, so that a test can put "now" at any instant without
-- touching a machine's clock. It exists in test databases only; a release build
-- refuses to start where the setting is set.
CREATE OR REPLACE FUNCTION tenure_now() RETURNS timestamptz
  STABLE PARALLEL SAFE LANGUAGE sql
  AS $$ SELECT statement_timestamp() + coalesce(nullif(current_setting('tenure.clock_offset', true), '')::interval, '0') $$;
