SELECT current_setting('server_version_num')::integer AS version_num,
       current_setting('server_version') AS version,
       current_setting('server_encoding') AS encoding,
       current_setting('integer_datetimes') AS integer_datetimes,
       timestamptz '2026-03-29 01:30:00.000001+01'::text = '2026-03-29 00:30:00.000001+00' AS utc_safe,
       coalesce(nullif(current_setting('tenure.clock_offset', true), ''), '') AS clock_offset
