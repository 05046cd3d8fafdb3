SELECT paused FROM job WHERE name = $1
