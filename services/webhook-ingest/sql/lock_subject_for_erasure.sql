-- Against everything that refers to the subject: a grant under way ends first, a later one finds the name gone.
SELECT id, erased_at
  FROM subject
 WHERE external_id = $1
   FOR UPDATE
