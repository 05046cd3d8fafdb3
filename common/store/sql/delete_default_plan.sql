DELETE FROM default_plan
