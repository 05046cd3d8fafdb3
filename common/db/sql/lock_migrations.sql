-- "tenure" in ASCII: an arbitrary key that no other product is likely to take.
SELECT pg_advisory_xact_lock(x'74656e757265'::bigint)
