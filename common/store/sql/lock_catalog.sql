-- One catalogue change at a time; readers are not stopped.
LOCK TABLE plan IN SHARE ROW EXCLUSIVE MODE
