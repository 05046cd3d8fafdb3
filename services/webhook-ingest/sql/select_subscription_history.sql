-- Facts and events in the order in which they were stored: a fact before the events that follow from it. Keyset paging:
-- $2 to $8 are the key of the last row of the page before, $2 NULL for the first page.
SELECT recorded_at, source, order_at, rank, fact_event_id, ordinal, seq, actor, reason,
       kind, provider_event_id, money_key, body, event_id, event_type, business_key, cause, effective_at,
       old_access_until, access_until, episode, data
  FROM (SELECT stored_at AS recorded_at, 0 AS source, order_at, rank, event_id AS fact_event_id, ordinal, 0::bigint AS seq,
               actor, reason, kind, provider_event_id, coalesce(money_key, '') AS money_key, body,
               NULL::text AS event_id, NULL::text AS event_type, NULL::text AS business_key, NULL::text AS cause,
               NULL::timestamptz AS effective_at, NULL::timestamptz AS old_access_until,
               NULL::timestamptz AS access_until, NULL::integer AS episode, NULL::text AS data
          FROM subscription_fact
         WHERE subscription_id = $1
        UNION ALL
        SELECT created_at, 1, 'epoch'::timestamptz, 0, '', 0, seq,
               actor, reason, NULL, NULL, NULL, NULL,
               event_id::text, event_type, coalesce(business_key, ''), cause,
               effective_at, old_access_until,
               access_until, episode, data::text
          FROM subscription_event
         WHERE subscription_id = $1) h
 WHERE $2::timestamptz IS NULL
    OR (recorded_at, source, order_at, rank, fact_event_id COLLATE "C", ordinal, seq)
       > ($2::timestamptz, $3::integer, $4::timestamptz, $5::integer, $6::text COLLATE "C", $7::integer, $8::bigint)
 ORDER BY recorded_at, source, order_at, rank, fact_event_id COLLATE "C", ordinal, seq
 LIMIT $9
