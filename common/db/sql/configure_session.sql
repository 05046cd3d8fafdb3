-- Sets the session's settings and says whether they are in force. TimeZone and DateStyle decide how instants are printed
-- and read (common/db/result.cc).
SELECT set_config('statement_timeout', $1, false)::interval = $1::interval
   AND set_config('lock_timeout', $2, false)::interval = $2::interval
   AND set_config('idle_in_transaction_session_timeout', $3, false)::interval = $3::interval
   AND set_config('TimeZone', 'UTC', false) = 'UTC'
   AND set_config('DateStyle', 'ISO, YMD', false) = 'ISO, YMD'
   AND set_config('IntervalStyle', 'postgres', false) = 'postgres'
   AND set_config('bytea_output', 'hex', false) = 'hex'
   AND set_config('default_transaction_isolation', 'read committed', false) = 'read committed'
   AND set_config('standard_conforming_strings', 'on', false) = 'on'
   AND NOT pg_is_in_recovery() AS in_force
