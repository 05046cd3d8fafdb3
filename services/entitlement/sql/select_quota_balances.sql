-- What a subject has left by meter: grants and plans of the subscriptions that give access now, by the same instants that
-- decide access. A sum that no bigint holds is the largest one. One row always comes back, because it carries the instant.
-- $3: a meter, or '' for all.
WITH valid AS (
  SELECT s.id
    FROM subject u
    JOIN subscription s ON s.subject_id = u.id
   WHERE u.external_id = $1 AND s.environment = $2
     AND s.status NOT IN ('PENDING', 'PAUSED', 'CANCELED', 'REVOKED')
     AND s.starts_at <= tenure_now()
     AND (s.lifetime OR s.access_until > tenure_now())
     AND (s.pause_at IS NULL OR s.pause_at > tenure_now())),
granted AS (
  SELECT g.meter, least(sum(g.remaining), 9223372036854775807)::bigint AS remaining,
         least(sum(g.amount), 9223372036854775807)::bigint AS released
    FROM quota_grant g
   WHERE g.subscription_id IN (SELECT id FROM valid) AND ($3 = '' OR g.meter = $3)
   GROUP BY g.meter),
next AS (
  SELECT DISTINCT ON (q.meter) q.meter, q.scheduled_at, q.amount
    FROM quota_schedule q
   WHERE q.status = 'PENDING' AND q.subscription_id IN (SELECT id FROM valid) AND ($3 = '' OR q.meter = $3)
   ORDER BY q.meter, q.scheduled_at, q.id),
balance AS (
  SELECT meter, coalesce(g.remaining, 0) AS remaining, coalesce(g.released, 0) AS released,
         x.scheduled_at AS next_release_at, x.amount AS next_release_amount
    FROM granted g
    FULL JOIN next x USING (meter))
SELECT n.now, b.meter, b.remaining, b.released, b.next_release_at, b.next_release_amount
  FROM (SELECT tenure_now() AS now) n
  LEFT JOIN balance b ON true
 ORDER BY b.meter
