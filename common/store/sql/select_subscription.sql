-- $2: the environment whose subscriptions are seen (R15).
SELECT s.id, s.subject_id, s.environment, u.external_id AS subject, u.erased_at, p.name AS plan, p.revision AS plan_revision,
       q.name AS next_plan, q.revision AS next_plan_revision, r.name AS route, s.provider_subscription_id, s.access_until,
       s.status, s.lifetime, s.anchor_at, s.starts_at, s.expires_at, s.grace_period_ends_at, s.leeway_until, s.cancel_at,
       s.pause_at, s.next_plan_at, s.will_renew, s.next_billing_at, s.term_no, s.needs_reconcile, s.prepaid, s.version,
       s.expired_at, s.episode, s.event_seq
  FROM subscription s
  JOIN subject u ON u.id = s.subject_id
  JOIN plan p ON p.id = s.plan_id
  JOIN route r ON r.id = s.route_id
  LEFT JOIN plan q ON q.id = s.next_plan_id
 WHERE s.id = $1 AND s.environment = $2
