SELECT s.id, s.status, s.lifetime, s.anchor_at, s.starts_at, s.expires_at, s.grace_period_ends_at, s.leeway_until,
       s.cancel_at, s.pause_at, s.next_plan_at, s.will_renew, s.term_no, s.expired_at, s.episode, s.event_seq,
       p.name AS plan, p.revision AS plan_revision, tenure_now() AS now,
       EXISTS (SELECT 1 FROM subscription_event h
                WHERE h.subscription_id = s.id AND h.episode = s.episode
                  AND h.event_type = 'subscription.expired') AS end_announced
  FROM subscription s
  JOIN plan p ON p.id = s.plan_id
 WHERE s.route_id = $1 AND s.account = $2 AND s.provider_subscription_id = $3 AND s.item_key = $4
   FOR NO KEY UPDATE OF s
