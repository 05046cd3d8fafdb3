-- Looked at every second: one probe of the partial index and no transaction while nothing waits.
SELECT EXISTS (SELECT 1 FROM provider_event
                WHERE status IN ('received', 'parked', 'failed') AND next_attempt_at <= tenure_now()) AS due
