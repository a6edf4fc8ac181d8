-- The secret that keys the fingerprints of data. No entry holds it; the chain holds a check value.
CREATE TABLE secret (
  one   INTEGER PRIMARY KEY CHECK (one = 1),
  value TEXT NOT NULL
) STRICT;
CREATE TRIGGER secret_is_never_changed BEFORE UPDATE ON secret BEGIN SELECT RAISE(ABORT, 'the secret is never changed'); END;
CREATE TRIGGER secret_is_never_removed BEFORE DELETE ON secret BEGIN SELECT RAISE(ABORT, 'the secret is never removed'); END;
