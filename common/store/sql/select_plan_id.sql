SELECT id FROM plan WHERE name = $1 AND revision = $2
