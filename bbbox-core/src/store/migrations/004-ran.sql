-- Whether an operation ever got its turn. One that ended out of the queue changed nothing, and one that stood still
-- there goes back to it.
ALTER TABLE operations ADD COLUMN ran INTEGER NOT NULL DEFAULT 0;
UPDATE operations SET ran = 1 WHERE state <> 'queued';
