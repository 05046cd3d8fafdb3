-- All subscriptions of a subject, whatever their state, with what their plans and the default plan say about one feature.
-- One row always comes back, because the decision is made at the database's clock.
SELECT n.now, s.id, s.subject_id, s.environment, u.external_id AS subject, u.erased_at, p.name AS plan,
       p.revision AS plan_revision, q.name AS next_plan, q.revision AS next_plan_revision, r.name AS route,
       s.provider_subscription_id, s.access_until,
       s.status, s.lifetime, s.anchor_at, s.starts_at, s.expires_at, s.grace_period_ends_at, s.leeway_until, s.cancel_at,
       s.pause_at, s.next_plan_at, s.will_renew, s.next_billing_at, s.term_no, s.needs_reconcile, s.prepaid, s.version,
       s.expired_at, s.episode, s.event_seq,
       f.plan_id IS NOT NULL AS plan_grants, f.limit_value AS plan_limit, f.quantity_value AS plan_quantity,
       g.plan_id IS NOT NULL AS next_plan_grants, g.limit_value AS next_plan_limit, g.quantity_value AS next_plan_quantity,
       d.name AS default_plan, e.plan_id IS NOT NULL AS default_grants,
       e.limit_value AS default_limit, e.quantity_value AS default_quantity
  FROM (SELECT tenure_now() AS now) n
  LEFT JOIN LATERAL (
    SELECT c.id, c.name
      FROM default_plan w
      JOIN plan c ON c.name = w.plan_name
     ORDER BY c.revision DESC
     LIMIT 1) d ON true
  LEFT JOIN plan_feature e ON e.plan_id = d.id AND e.feature = $3
  LEFT JOIN (subject u
             JOIN subscription s ON s.subject_id = u.id
             JOIN plan p ON p.id = s.plan_id
             JOIN route r ON r.id = s.route_id
             LEFT JOIN plan_feature f ON f.plan_id = s.plan_id AND f.feature = $3
             LEFT JOIN plan q ON q.id = s.next_plan_id
             LEFT JOIN plan_feature g ON g.plan_id = s.next_plan_id AND g.feature = $3)
    ON u.external_id = $1 AND s.environment = $2
 ORDER BY s.id DESC
