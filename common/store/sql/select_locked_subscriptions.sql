-- Read after the locks, in a statement of its own: what a waiting lock statement joins to the row is as old as the wait.
-- The definition of a plan comes with one of its rows.
SELECT s.id, s.subject_id, u.erased_at IS NOT NULL AS subject_erased, s.route_id, r.name AS route, s.environment, s.account,
       s.prepaid, s.status, s.lifetime, s.anchor_at, s.starts_at, s.expires_at, s.grace_period_ends_at, s.leeway_until,
       s.cancel_at, s.pause_at, s.next_plan_at, s.will_renew, s.next_billing_at, s.needs_reconcile, s.term_no, s.expired_at,
       s.episode, s.event_seq, s.fold_revision, p.name AS plan, p.revision AS plan_revision, q.name AS next_plan,
       q.revision AS next_plan_revision, g.id AS plan_in_force_id, g.name AS plan_in_force,
       g.revision AS plan_in_force_revision,
       CASE WHEN row_number() OVER (PARTITION BY g.id) = 1 THEN g.definition - 'features' END AS plan_in_force_definition,
       f.revision AS fold_state_revision, f.state AS fold_state, tenure_now() AS now,
       EXISTS (SELECT 1 FROM subscription_event h
                WHERE h.subscription_id = s.id AND h.episode = s.episode
                  AND h.event_type = 'subscription.expired') AS end_announced
  FROM subscription s
  JOIN subject u ON u.id = s.subject_id
  JOIN route r ON r.id = s.route_id
  JOIN plan p ON p.id = s.plan_id
  JOIN plan g ON g.id = CASE WHEN s.next_plan_at <= tenure_now() THEN s.next_plan_id ELSE s.plan_id END
  LEFT JOIN plan q ON q.id = s.next_plan_id
  LEFT JOIN subscription_fold f ON f.subscription_id = s.id
 WHERE s.id = ANY ($1::bigint[])
