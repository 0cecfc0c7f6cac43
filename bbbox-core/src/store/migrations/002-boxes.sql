-- The boxes' records, their names, and what this install is.
CREATE TABLE boxes (
  id TEXT PRIMARY KEY,
  state TEXT NOT NULL,
  -- What the box takes of its backend's room; NULL while it takes nothing.
  backend TEXT,
  host TEXT,
  cores INTEGER,
  memory_mib INTEGER,
  disk_mib INTEGER,
  running INTEGER,
  record TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX boxes_by_backend ON boxes (backend);

-- A name belongs to one box. A box that is being renamed has both until that is settled.
CREATE TABLE box_names (
  name TEXT PRIMARY KEY,
  box TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX box_names_by_box ON box_names (box);

CREATE TABLE settings (
  name TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
