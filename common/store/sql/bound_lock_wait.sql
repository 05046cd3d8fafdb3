-- For this transaction; a shorter bound of the session stays.
SELECT set_config('lock_timeout',
                  CASE WHEN current_setting('lock_timeout')::interval BETWEEN interval '1 ms' AND $1::interval
                       THEN current_setting('lock_timeout')
                       ELSE (extract(epoch FROM $1::interval) * 1000)::bigint || 'ms' END, true)
