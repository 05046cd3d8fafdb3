-- Holds the name against erasure until the transaction ends; empty when it was just erased.
SELECT erased_at
  FROM subject
 WHERE id = $1 AND external_id = $2
   FOR KEY SHARE
