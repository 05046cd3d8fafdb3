-- The facts of the subscriptions in $1 as of $2, when they were looked at, in the order of the fold; of each the newest
-- $3.
SELECT subscription_id, stored_at, event_id, ordinal, kind, coalesce(money_key, '') AS money_key, body, provider_event_id,
       actor, reason
  FROM (SELECT f.*, row_number() OVER (PARTITION BY f.subscription_id
                                       ORDER BY f.order_at DESC, f.rank DESC, f.event_id DESC, f.ordinal DESC) AS back_no
          FROM subscription_fact f
         WHERE f.subscription_id = ANY ($1::bigint[]) AND f.stored_at <= $2) n
 WHERE back_no <= $3
 ORDER BY subscription_id, back_no DESC
