UPDATE job SET paused = $2, paused_by = CASE WHEN $2 THEN $3 ELSE '' END, changed_at = tenure_now()
 WHERE name = $1
