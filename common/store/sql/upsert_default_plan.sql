INSERT INTO default_plan AS d (plan_name) VALUES ($1)
ON CONFLICT (only_row) DO UPDATE SET plan_name = excluded.plan_name
 WHERE d.plan_name <> excluded.plan_name
