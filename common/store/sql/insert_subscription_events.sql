-- $12 to $15: names and values of the events' data, by subscription and number.
INSERT INTO subscription_event (subscription_id, seq, event_type, business_key, episode, effective_at, old_access_until,
                                access_until, data, actor, reason, cause)
SELECT u.subscription_id, u.seq, u.event_type, u.business_key, u.episode, u.effective_at, u.old_access_until,
       u.access_until,
       coalesce((SELECT jsonb_object_agg(d.name, d.value)
                   FROM unnest($12::bigint[], $13::bigint[], $14::text[], $15::text[]) d (subscription_id, seq, name, value)
                  WHERE d.subscription_id = u.subscription_id AND d.seq = u.seq), '{}'),
       u.actor, u.reason, u.cause
  FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::integer[], $6::timestamptz[], $7::timestamptz[],
              $8::timestamptz[], $9::text[], $10::text[], $11::text[])
       u (subscription_id, seq, event_type, business_key, episode, effective_at, old_access_until, access_until, actor,
          reason, cause)
