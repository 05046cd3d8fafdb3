-- Plans by name and revision; an empty name leaves the plan, or means no next one. Subject 0 leaves the subject.
UPDATE subscription s
   SET status = u.status, lifetime = u.lifetime, anchor_at = u.anchor_at, starts_at = u.starts_at,
       expires_at = u.expires_at, grace_period_ends_at = u.grace_period_ends_at, leeway_until = u.leeway_until,
       cancel_at = u.cancel_at, pause_at = u.pause_at, will_renew = u.will_renew, next_billing_at = u.next_billing_at,
       term_no = u.term_no, needs_reconcile = u.needs_reconcile,
       subject_id = coalesce(nullif(u.subject_id, 0), s.subject_id),
       plan_id = coalesce((SELECT p.id FROM plan p WHERE p.name = u.plan AND p.revision = u.plan_revision), s.plan_id),
       next_plan_id = (SELECT p.id FROM plan p WHERE p.name = u.next_plan AND p.revision = u.next_plan_revision),
       next_plan_at = u.next_plan_at, expired_at = u.expired_at, episode = u.episode, event_seq = u.event_seq,
       fold_revision = u.fold_revision, version = s.version + 1
  FROM unnest($1::bigint[], $2::text[], $3::boolean[], $4::timestamptz[], $5::timestamptz[], $6::timestamptz[],
              $7::timestamptz[], $8::timestamptz[], $9::timestamptz[], $10::timestamptz[], $11::boolean[],
              $12::timestamptz[], $13::integer[], $14::boolean[], $15::bigint[], $16::text[], $17::bigint[], $18::text[],
              $19::bigint[], $20::timestamptz[], $21::timestamptz[], $22::integer[], $23::bigint[], $24::integer[])
       u (id, status, lifetime, anchor_at, starts_at, expires_at, grace_period_ends_at, leeway_until, cancel_at, pause_at,
          will_renew, next_billing_at, term_no, needs_reconcile, subject_id, plan, plan_revision, next_plan,
          next_plan_revision, next_plan_at, expired_at, episode, event_seq, fold_revision)
 WHERE s.id = u.id
