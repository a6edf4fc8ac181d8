-- Grades: a plan has several mechanisms, each with a number of answers. What was planned before is one grade, standard.
CREATE TABLE grade (
  pool    TEXT NOT NULL REFERENCES pool,
  name    TEXT NOT NULL,
  answers INTEGER NOT NULL,
  spent   INTEGER NOT NULL CHECK (spent >= 0 AND spent <= answers),
  PRIMARY KEY (pool, name)
) STRICT;
INSERT INTO grade SELECT name, 'standard', answers, spent FROM pool;
ALTER TABLE pool DROP COLUMN spent;
ALTER TABLE pool DROP COLUMN answers;

ALTER TABLE share RENAME TO share_of_pool;
CREATE TABLE share (
  pool    TEXT NOT NULL,
  analyst TEXT NOT NULL,
  grade   TEXT NOT NULL,
  answers INTEGER NOT NULL,
  spent   INTEGER NOT NULL CHECK (spent >= 0),
  PRIMARY KEY (pool, analyst, grade),
  FOREIGN KEY (pool, grade) REFERENCES grade
) STRICT;
INSERT INTO share SELECT pool, analyst, 'standard', answers, spent FROM share_of_pool;
DROP TABLE share_of_pool;

ALTER TABLE charge ADD COLUMN grade TEXT NOT NULL DEFAULT 'standard';
DROP INDEX charge_once;
CREATE UNIQUE INDEX charge_once ON charge (pool, dataset, version, question, grade) WHERE void = 0;
