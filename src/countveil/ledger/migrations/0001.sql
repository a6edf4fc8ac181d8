-- The chain. Everything else can be worked out from it, and is checked against it.
CREATE TABLE entry (
  seq      INTEGER PRIMARY KEY,
  time     TEXT NOT NULL,
  kind     TEXT NOT NULL,
  body     TEXT NOT NULL,
  previous TEXT NOT NULL UNIQUE,
  hash     TEXT NOT NULL UNIQUE
) STRICT;
CREATE TRIGGER entry_is_never_changed BEFORE UPDATE ON entry BEGIN SELECT RAISE(ABORT, 'entries are never changed'); END;
CREATE TRIGGER entry_is_never_removed BEFORE DELETE ON entry BEGIN SELECT RAISE(ABORT, 'entries are never removed'); END;
CREATE INDEX entry_that_sets_a_budget ON entry (seq) WHERE kind IN ('plan', 'extend', 'restore');

CREATE TABLE pool (
  name    TEXT PRIMARY KEY,
  answers INTEGER NOT NULL,
  spent   INTEGER NOT NULL CHECK (spent >= 0 AND spent <= answers)
) STRICT;

CREATE TABLE plan (
  pool     TEXT PRIMARY KEY REFERENCES pool,
  document TEXT NOT NULL
) STRICT;

CREATE TABLE share (
  pool    TEXT NOT NULL REFERENCES pool,
  analyst TEXT NOT NULL,
  answers INTEGER NOT NULL,
  spent   INTEGER NOT NULL CHECK (spent >= 0),
  PRIMARY KEY (pool, analyst)
) STRICT;

CREATE TABLE version (
  dataset     TEXT NOT NULL,
  number      INTEGER NOT NULL,
  fingerprint TEXT NOT NULL,
  PRIMARY KEY (dataset, number),
  UNIQUE (dataset, fingerprint)
) STRICT;

CREATE TABLE charge (
  id       TEXT PRIMARY KEY,
  pool     TEXT NOT NULL REFERENCES pool,
  dataset  TEXT NOT NULL,
  version  INTEGER NOT NULL,
  question TEXT NOT NULL,
  text     TEXT NOT NULL,
  analyst  TEXT NOT NULL,
  time     TEXT NOT NULL,
  void     INTEGER NOT NULL DEFAULT 0 CHECK (void IN (0, 1))
) STRICT;
CREATE UNIQUE INDEX charge_once ON charge (pool, dataset, version, question) WHERE void = 0;
CREATE INDEX charge_by_analyst ON charge (pool, analyst);

-- What a request got that may come again: hashes of the sender's key for it and of what it asks.
CREATE TABLE request (
  analyst TEXT NOT NULL,
  key     TEXT NOT NULL,
  body    TEXT NOT NULL,
  charge  TEXT NOT NULL REFERENCES charge,
  PRIMARY KEY (analyst, key)
) STRICT;

-- One answer per charge: the primary key is what keeps a second noise from ever being recorded.
CREATE TABLE answer (
  charge  TEXT PRIMARY KEY REFERENCES charge,
  time    TEXT NOT NULL,
  payload BLOB NOT NULL
) STRICT;
CREATE TRIGGER answer_is_never_changed BEFORE UPDATE ON answer BEGIN SELECT RAISE(ABORT, 'answers are never changed'); END;
CREATE TRIGGER answer_is_never_removed BEFORE DELETE ON answer BEGIN SELECT RAISE(ABORT, 'answers are never removed'); END;
