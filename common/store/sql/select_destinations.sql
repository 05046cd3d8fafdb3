-- Where facts go, looked up before any lock: the subscription of a provider's key, and the subject of his customer.
SELECT u.n, s.id AS subscription_id, c.id AS linked_subject_id, c.external_id AS linked_subject, c.erased_at IS NOT NULL AS erased
  FROM unnest($1::bigint[], $2::smallint[], $3::text[], $4::text[], $5::text[], $6::text[])
       u (n, route_id, account, provider_subscription_id, item_key, customer_id)
  LEFT JOIN subscription s
    ON s.route_id = u.route_id AND s.account = u.account
   AND s.provider_subscription_id = u.provider_subscription_id AND s.item_key = u.item_key
  LEFT JOIN customer_link l
    ON s.id IS NULL AND l.route_id = u.route_id AND l.account = u.account AND l.customer_id = u.customer_id
  LEFT JOIN subject c ON c.id = l.subject_id
