UPDATE subject
   SET external_id = $2, erased_at = tenure_now()
 WHERE id = $1
RETURNING erased_at
