INSERT INTO prepaid_chain (subject_id, plan_name) VALUES ($1, $2) ON CONFLICT (subject_id, plan_name) DO NOTHING
