-- Locked against an erasure: one that is under way is waited for, and then there is no subject of this name any more.
SELECT id, external_id FROM subject WHERE external_id = ANY ($1::text[]) ORDER BY external_id FOR KEY SHARE
