INSERT INTO plan_feature (plan_id, feature) SELECT $1, unnest($2::text[])
