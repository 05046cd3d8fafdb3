SELECT 1 FROM prepaid_chain WHERE subject_id = $1 AND plan_name = $2 FOR UPDATE
