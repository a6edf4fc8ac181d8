-- The secret that keys the fingerprints of data. No entry holds it; the chain holds a check value.
CREATE TABLE countveil.secret (
  one   BOOLEAN PRIMARY KEY DEFAULT true CHECK (one),
  value TEXT NOT NULL
);
CREATE TRIGGER secret_is_never_changed BEFORE UPDATE OR DELETE OR TRUNCATE ON countveil.secret
  FOR EACH STATEMENT EXECUTE FUNCTION countveil.refuse();
