-- Keyset paging: $2 is the id of the last row of the page before, NULL for the first.
SELECT s.id, s.environment, u.external_id AS subject, p.name AS plan, r.name AS route, s.provider_subscription_id, s.access_until,
       s.status, s.lifetime, s.anchor_at, s.starts_at, s.expires_at, s.grace_period_ends_at, s.leeway_until, s.cancel_at,
       s.pause_at, s.next_plan_at, s.will_renew, s.term_no, s.expired_at, s.episode, s.event_seq
  FROM subject u
  JOIN subscription s ON s.subject_id = u.id
  JOIN plan p ON p.id = s.plan_id
  JOIN route r ON r.id = s.route_id
 WHERE u.external_id = $1 AND ($2::bigint IS NULL OR s.id < $2)
 ORDER BY s.id DESC
 LIMIT $3
