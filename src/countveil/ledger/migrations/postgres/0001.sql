-- The same tables as in SQLite's 0001.sql, in a schema of their own.
CREATE SCHEMA countveil;
REVOKE ALL ON SCHEMA countveil FROM PUBLIC;

-- Where the ledger lives. A dump that was brought back lives elsewhere, and is settled before anyone uses it.
CREATE TABLE countveil.place (
  one    BOOLEAN PRIMARY KEY DEFAULT true CHECK (one),
  format INTEGER NOT NULL,
  here   TEXT NOT NULL
);

-- The chain. Everything else can be worked out from it, and is checked against it.
CREATE TABLE countveil.entry (
  seq      BIGINT PRIMARY KEY,
  time     TEXT NOT NULL,
  kind     TEXT NOT NULL,
  body     TEXT NOT NULL,
  previous TEXT NOT NULL UNIQUE,
  hash     TEXT NOT NULL UNIQUE
);
CREATE INDEX entry_that_sets_a_budget ON countveil.entry (seq) WHERE kind IN ('plan', 'extend', 'restore');

CREATE TABLE countveil.pool (
  name    TEXT PRIMARY KEY,
  answers BIGINT NOT NULL,
  spent   BIGINT NOT NULL CHECK (spent >= 0 AND spent <= answers)
);

CREATE TABLE countveil.plan (
  pool     TEXT PRIMARY KEY REFERENCES countveil.pool,
  document TEXT NOT NULL
);

CREATE TABLE countveil.share (
  pool    TEXT NOT NULL REFERENCES countveil.pool,
  analyst TEXT NOT NULL,
  answers BIGINT NOT NULL,
  spent   BIGINT NOT NULL CHECK (spent >= 0),
  PRIMARY KEY (pool, analyst)
);

CREATE TABLE countveil.version (
  dataset     TEXT NOT NULL,
  number      BIGINT NOT NULL,
  fingerprint TEXT NOT NULL,
  PRIMARY KEY (dataset, number),
  UNIQUE (dataset, fingerprint)
);

CREATE TABLE countveil.charge (
  id       TEXT PRIMARY KEY,
  pool     TEXT NOT NULL REFERENCES countveil.pool,
  dataset  TEXT NOT NULL,
  version  BIGINT NOT NULL,
  question TEXT NOT NULL,
  text     TEXT NOT NULL,
  analyst  TEXT NOT NULL,
  time     TEXT NOT NULL,
  void     INTEGER NOT NULL DEFAULT 0 CHECK (void IN (0, 1)),
  made     BIGINT GENERATED ALWAYS AS IDENTITY
);
CREATE UNIQUE INDEX charge_once ON countveil.charge (pool, dataset, version, question) WHERE void = 0;
CREATE INDEX charge_by_analyst ON countveil.charge (pool, analyst);

-- What a request got that may come again: hashes of the sender's key for it and of what it asks.
CREATE TABLE countveil.request (
  analyst TEXT NOT NULL,
  key     TEXT NOT NULL,
  body    TEXT NOT NULL,
  charge  TEXT NOT NULL REFERENCES countveil.charge,
  PRIMARY KEY (analyst, key)
);

-- One answer per charge: the primary key is what keeps a second noise from ever being recorded.
CREATE TABLE countveil.answer (
  charge  TEXT PRIMARY KEY REFERENCES countveil.charge,
  time    TEXT NOT NULL,
  payload BYTEA NOT NULL
);

CREATE FUNCTION countveil.refuse() RETURNS trigger LANGUAGE plpgsql AS
  $$BEGIN RAISE EXCEPTION 'entries and answers are never changed or removed' USING ERRCODE = '23000'; END$$;
CREATE TRIGGER entry_is_never_changed BEFORE UPDATE OR DELETE OR TRUNCATE ON countveil.entry
  FOR EACH STATEMENT EXECUTE FUNCTION countveil.refuse();
CREATE TRIGGER answer_is_never_changed BEFORE UPDATE OR DELETE OR TRUNCATE ON countveil.answer
  FOR EACH STATEMENT EXECUTE FUNCTION countveil.refuse();
