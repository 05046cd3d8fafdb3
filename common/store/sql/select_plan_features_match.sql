SELECT ARRAY(SELECT f.feature FROM plan_feature f WHERE f.plan_id = $1 ORDER BY f.feature)
     = ARRAY(SELECT x FROM unnest($2::text[]) x ORDER BY x COLLATE "C") AS same
