-- Every replica registers its jobs at start; pausing is not touched.
INSERT INTO job (name, period) VALUES ($1, $2::interval)
ON CONFLICT (name) DO UPDATE SET period = excluded.period, changed_at = tenure_now()
WHERE job.period <> excluded.period
