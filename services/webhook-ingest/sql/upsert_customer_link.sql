-- Empty when the customer belongs to an erased subject: the link stays, so that nobody is made anew.
INSERT INTO customer_link (route_id, account, customer_id, subject_id)
VALUES ($1, $2, $3, $4)
ON CONFLICT (route_id, account, customer_id) DO UPDATE
   SET subject_id = excluded.subject_id
 WHERE NOT EXISTS (SELECT 1 FROM subject u WHERE u.id = customer_link.subject_id AND u.erased_at IS NOT NULL)
RETURNING subject_id
