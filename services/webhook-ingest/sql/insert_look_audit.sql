INSERT INTO audit (actor, action, object_kind, object_id, reason)
VALUES ($1, 'read_body', 'provider_event', $2::bigint::text, $3)
