-- One probe of the partial index. Microseconds; 0 when nothing is due.
SELECT coalesce((SELECT extract(epoch FROM greatest(tenure_now() - s.access_until, interval '0')) * 1000000
                   FROM subscription s
                  WHERE s.status IN ('TRIALING', 'ACTIVE', 'PAST_DUE')
                  ORDER BY s.access_until, s.id
                  LIMIT 1), 0)::bigint AS age_us
