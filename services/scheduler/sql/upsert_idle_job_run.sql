-- A run that found nothing: one row per job and instance, however often it runs.
INSERT INTO job_run (job, instance, scheduled_at, started_at, finished_at, batch_count, found_count, succeeded_count,
                     failed_count, last_error, idle)
VALUES ($1, $2, $3, $4, $5, $6, 0, 0, 0, '', true)
ON CONFLICT (job, instance) WHERE idle
DO UPDATE SET scheduled_at = excluded.scheduled_at, started_at = excluded.started_at, finished_at = excluded.finished_at,
              batch_count = excluded.batch_count
