INSERT INTO job_run (job, instance, scheduled_at, started_at, finished_at, batch_count, found_count, succeeded_count,
                     failed_count, last_error, idle)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, false)
