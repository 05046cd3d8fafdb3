SELECT e.id, e.route_id, e.account, e.livemode, e.external_event_id, e.status, e.reason, e.body_sha256
  FROM unnest($1::smallint[], $2::text[], $3::boolean[], $4::text[]) u (route_id, account, livemode, external_event_id)
  JOIN provider_event e USING (route_id, account, livemode, external_event_id)
