-- A change that alters no answer: what a cache of subscriptions has to follow.
UPDATE subscription SET version = version + 1 WHERE id = $1::bigint
