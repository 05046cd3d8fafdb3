SELECT at, actor, action, reason, request_id, coalesce(before::text, '') AS before, coalesce(after::text, '') AS after
  FROM audit
 WHERE object_kind = 'provider_event' AND object_id = $1::bigint::text
 ORDER BY id DESC
 LIMIT 20
