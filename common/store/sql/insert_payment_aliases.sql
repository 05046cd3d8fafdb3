INSERT INTO payment_alias (route_id, account, alias, payment_key)
SELECT u.route_id, u.account, u.alias, u.payment_key
  FROM unnest($1::smallint[], $2::text[], $3::text[], $4::text[]) u (route_id, account, alias, payment_key)
 ORDER BY u.route_id, u.account COLLATE "C", u.alias COLLATE "C"
ON CONFLICT (route_id, account, alias) DO NOTHING
