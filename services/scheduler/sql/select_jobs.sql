SELECT j.name, (extract(epoch FROM j.period) * 1000000)::bigint AS period_us, j.paused, j.paused_by,
       r.started_at, r.finished_at, r.instance, r.found_count, r.succeeded_count, r.last_error
  FROM job j
  LEFT JOIN LATERAL (
    SELECT * FROM job_run r WHERE r.job = j.name ORDER BY r.finished_at DESC LIMIT 1) r ON true
 ORDER BY j.name
