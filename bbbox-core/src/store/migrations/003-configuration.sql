-- The configuration: at most one row. Revision 0 is no row: the defaults hold.
CREATE TABLE configuration (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    revision INTEGER NOT NULL CHECK (revision > 0),
    document TEXT NOT NULL CHECK (json_valid(document)),
    changed_at TEXT NOT NULL,
    changed_by TEXT NOT NULL
) STRICT;
