SELECT s.id, s.environment, u.external_id AS subject, p.name AS plan, r.name AS route, s.provider_subscription_id, s.access_until,
       s.status, s.lifetime, s.anchor_at, s.starts_at, s.expires_at, s.grace_period_ends_at, s.leeway_until, s.cancel_at,
       s.pause_at, s.next_plan_at, s.will_renew, s.term_no, s.expired_at, s.episode, s.event_seq
  FROM subscription s
  JOIN subject u ON u.id = s.subject_id
  JOIN plan p ON p.id = s.plan_id
  JOIN route r ON r.id = s.route_id
 WHERE s.id = $1
