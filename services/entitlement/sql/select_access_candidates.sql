-- All subscriptions of a subject, whatever their state, with what their plans say about one feature. One row always
-- comes back, because the decision is made at the database's clock.
SELECT n.now, s.id, s.status, s.lifetime, s.anchor_at, s.starts_at, s.expires_at, s.grace_period_ends_at, s.leeway_until,
       s.cancel_at, s.pause_at, s.next_plan_at, s.will_renew, s.term_no, s.expired_at, s.episode, s.event_seq,
       p.name AS plan, q.name AS next_plan,
       EXISTS (SELECT 1 FROM plan_feature f WHERE f.plan_id = s.plan_id AND f.feature = $3) AS plan_grants,
       EXISTS (SELECT 1 FROM plan_feature f WHERE f.plan_id = s.next_plan_id AND f.feature = $3) AS next_plan_grants
  FROM (SELECT tenure_now() AS now) n
  LEFT JOIN (subject u
             JOIN subscription s ON s.subject_id = u.id
             JOIN plan p ON p.id = s.plan_id
             LEFT JOIN plan q ON q.id = s.next_plan_id)
    ON u.external_id = $1 AND s.environment = $2
