-- $2: a process touches the subscriptions of its environment only (R15).
SELECT id FROM subscription WHERE id = $1 AND environment = $2 FOR NO KEY UPDATE
