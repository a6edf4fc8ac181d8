-- Grades: a plan has several mechanisms, each with a number of answers. What was planned before is one grade, standard.
CREATE TABLE countveil.grade (
  pool    TEXT NOT NULL REFERENCES countveil.pool,
  name    TEXT NOT NULL,
  answers BIGINT NOT NULL,
  spent   BIGINT NOT NULL CHECK (spent >= 0 AND spent <= answers),
  PRIMARY KEY (pool, name)
);
INSERT INTO countveil.grade SELECT name, 'standard', answers, spent FROM countveil.pool;
ALTER TABLE countveil.pool DROP COLUMN spent, DROP COLUMN answers;

ALTER TABLE countveil.share ADD COLUMN grade TEXT NOT NULL DEFAULT 'standard';
ALTER TABLE countveil.share ALTER COLUMN grade DROP DEFAULT;
ALTER TABLE countveil.share DROP CONSTRAINT share_pkey;
ALTER TABLE countveil.share ADD PRIMARY KEY (pool, analyst, grade);
ALTER TABLE countveil.share DROP CONSTRAINT share_pool_fkey;
ALTER TABLE countveil.share ADD FOREIGN KEY (pool, grade) REFERENCES countveil.grade;

ALTER TABLE countveil.charge ADD COLUMN grade TEXT NOT NULL DEFAULT 'standard';
ALTER TABLE countveil.charge ALTER COLUMN grade DROP DEFAULT;
ALTER TABLE countveil.charge ADD FOREIGN KEY (pool, grade) REFERENCES countveil.grade;
DROP INDEX countveil.charge_once;
CREATE UNIQUE INDEX charge_once ON countveil.charge (pool, dataset, version, question, grade) WHERE void = 0;
