-- The columns of a row that follow from its facts, plans by name, with a sum of its quota schedule: for comparing.
SELECT u.external_id AS subject, c.key AS column_name, c.value::text AS value
  FROM subscription s
  JOIN subject u ON u.id = s.subject_id
  JOIN plan p ON p.id = s.plan_id
  LEFT JOIN plan q ON q.id = s.next_plan_id
 CROSS JOIN LATERAL jsonb_each(
         (to_jsonb(s) - ARRAY['id', 'subject_id', 'plan_id', 'next_plan_id', 'environment', 'route_id', 'account',
                              'provider_subscription_id', 'item_key', 'prepaid', 'version', 'event_seq', 'created_at',
                              'last_order_key'])
         || jsonb_build_object(
              'subject', u.external_id,
              'plan', p.name || ' revision ' || p.revision,
              'next_plan', q.name || ' revision ' || q.revision,
              'pending_releases', (SELECT coalesce(jsonb_object_agg(x.meter, x.text), '{}')
                                     FROM (SELECT d.meter, count(*) || ' of ' || sum(d.amount) AS text
                                             FROM quota_schedule d
                                            WHERE d.subscription_id = s.id AND d.status = 'PENDING'
                                            GROUP BY d.meter) x))) c
 WHERE s.id = $1
 ORDER BY c.key
