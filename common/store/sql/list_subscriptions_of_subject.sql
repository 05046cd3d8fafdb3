-- Keyset paging: $3 is the id of the last row of the page before, NULL for the first. $5: only live rows whose end is not
-- reached (S4-19). $6: only this plan, as in force now; '' for all.
SELECT s.id, s.subject_id, s.environment, u.external_id AS subject, u.erased_at, p.name AS plan, p.revision AS plan_revision,
       q.name AS next_plan, q.revision AS next_plan_revision, r.name AS route, s.provider_subscription_id, s.access_until,
       s.status, s.lifetime, s.anchor_at, s.starts_at, s.expires_at, s.grace_period_ends_at, s.leeway_until, s.cancel_at,
       s.pause_at, s.next_plan_at, s.will_renew, s.next_billing_at, s.term_no, s.needs_reconcile, s.prepaid, s.version,
       s.expired_at, s.episode, s.event_seq
  FROM subject u
  JOIN subscription s ON s.subject_id = u.id
  JOIN plan p ON p.id = s.plan_id
  JOIN route r ON r.id = s.route_id
  LEFT JOIN plan q ON q.id = s.next_plan_id
 WHERE u.external_id = $1 AND s.environment = $2 AND ($3::bigint IS NULL OR s.id < $3)
   AND (NOT $5::boolean
        OR s.status IN ('TRIALING', 'ACTIVE', 'PAST_DUE')
           AND (s.lifetime OR tenure_now() < s.access_until)
           AND (s.pause_at IS NULL OR tenure_now() < s.pause_at))
   AND ($6::text = '' OR (CASE WHEN s.next_plan_at <= tenure_now() THEN q.name ELSE p.name END) = $6)
 ORDER BY s.id DESC
 LIMIT $4
