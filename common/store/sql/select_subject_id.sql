-- Locked against an erasure: one that is under way is waited for, and then there is no subject of this name any more.
SELECT id FROM subject WHERE external_id = $1 FOR KEY SHARE
