-- Payments by their keys or any other names of theirs.
SELECT u.route_id, u.account, u.name, p.subscription_id, p.payment_key
  FROM unnest($1::smallint[], $2::text[], $3::text[]) u (route_id, account, name)
  JOIN payment p
    ON p.route_id = u.route_id AND p.account = u.account
   AND p.payment_key = coalesce((SELECT a.payment_key FROM payment_alias a
                                  WHERE a.route_id = u.route_id AND a.account = u.account AND a.alias = u.name), u.name)
