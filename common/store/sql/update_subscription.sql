-- Plans by name and revision; an empty name leaves the plan, or means no next one. Subject 0 leaves the subject.
UPDATE subscription
   SET status = $2, lifetime = $3, anchor_at = $4, starts_at = $5, expires_at = $6, grace_period_ends_at = $7,
       leeway_until = $8, cancel_at = $9, pause_at = $10, will_renew = $11, next_billing_at = $12, term_no = $13,
       needs_reconcile = $14, subject_id = coalesce(nullif($15::bigint, 0), subject_id),
       plan_id = coalesce((SELECT p.id FROM plan p WHERE p.name = $16 AND p.revision = $17), plan_id),
       next_plan_id = (SELECT p.id FROM plan p WHERE p.name = $18 AND p.revision = $19), next_plan_at = $20,
       expired_at = $21, episode = $22, event_seq = $23, fold_revision = $24, version = version + 1
 WHERE id = $1
