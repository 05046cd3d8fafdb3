-- Holds the subject of a subscription against erasure, before the subscription itself is locked (R8).
SELECT u.erased_at
  FROM subscription s
  JOIN subject u ON u.id = s.subject_id
 WHERE s.id = $1 AND s.environment = $2
   FOR KEY SHARE OF u
