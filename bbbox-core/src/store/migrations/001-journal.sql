-- The journal: operations, the boxes they hold, their steps, and the undos that are armed.
-- Times are milliseconds since 1970.

CREATE TABLE operations(
  n            INTEGER PRIMARY KEY AUTOINCREMENT, -- the order of every box's queue
  id           TEXT NOT NULL UNIQUE,
  kind         TEXT NOT NULL,
  version      INTEGER NOT NULL,
  request      TEXT UNIQUE,
  asked        TEXT NOT NULL,                     -- what a repeated request must ask again
  asker        TEXT NOT NULL,                     -- who asked, for people
  args         TEXT NOT NULL,
  over_unknown INTEGER NOT NULL,
  state        TEXT NOT NULL CHECK(state IN
    ('queued','running','undoing','suspended','done','failed','cancelled','unknown')),
  cancel       INTEGER NOT NULL DEFAULT 0,        -- somebody asked to cancel it, and it was not too late
  cause        TEXT,                              -- why it is being undone, an error
  result       TEXT,
  error        TEXT,                              -- why it failed, or why it is suspended
  began        INTEGER NOT NULL,
  ended        INTEGER
) STRICT;
CREATE INDEX operations_live ON operations(n) WHERE state IN ('queued','running','undoing','suspended');
CREATE INDEX operations_ended ON operations(ended) WHERE ended IS NOT NULL;

CREATE TABLE operation_boxes(
  box       TEXT NOT NULL,
  operation INTEGER NOT NULL REFERENCES operations(n) ON DELETE CASCADE,
  holds     INTEGER NOT NULL DEFAULT 1,           -- 0 once it ended, or was taken over
  taken_by  INTEGER,                              -- the operation that took an unknown one's box over
  PRIMARY KEY(box, operation)
) STRICT, WITHOUT ROWID;
CREATE INDEX operation_boxes_holds ON operation_boxes(box, operation) WHERE holds = 1;
CREATE INDEX operation_boxes_operation ON operation_boxes(operation);
CREATE INDEX operation_boxes_taken ON operation_boxes(taken_by) WHERE taken_by IS NOT NULL;

CREATE TABLE steps(
  operation INTEGER NOT NULL REFERENCES operations(n) ON DELETE CASCADE,
  key       TEXT NOT NULL,                        -- branch/branch/name, name#1 the second time
  seq       INTEGER NOT NULL,
  state     TEXT NOT NULL CHECK(state IN ('started','waiting','done','failed')),
  covered   INTEGER NOT NULL,                     -- it has no effect, or an undo was armed with it
  touched   INTEGER NOT NULL DEFAULT 0,           -- a run of it that did not succeed may have had an effect
  tries     INTEGER NOT NULL DEFAULT 0,           -- runs that began, also those that a crash cut off
  failures  INTEGER NOT NULL DEFAULT 0,           -- runs that ended in an error that may pass
  task      TEXT,                                 -- the provider's own task
  value     TEXT,
  error     TEXT,
  began     INTEGER NOT NULL,
  ended     INTEGER,
  PRIMARY KEY(operation, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE undos(
  n         INTEGER PRIMARY KEY AUTOINCREMENT,    -- undone newest first
  operation INTEGER NOT NULL REFERENCES operations(n) ON DELETE CASCADE,
  step      TEXT NOT NULL,
  nth       INTEGER NOT NULL,                     -- of that step's undos
  kind      TEXT NOT NULL,
  payload   TEXT NOT NULL,
  state     TEXT NOT NULL DEFAULT 'armed' CHECK(state IN ('armed','undone','stuck')),
  tries     INTEGER NOT NULL DEFAULT 0,
  failures  INTEGER NOT NULL DEFAULT 0,
  error     TEXT,
  UNIQUE(operation, step, nth)
) STRICT;
