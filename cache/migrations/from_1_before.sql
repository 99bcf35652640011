-- from_1_before.sql - sets the tables of version 1 aside; schema.sql runs next, then from_1_after.sql, all in one
-- transaction. from_3.sql and from_4.sql follow.
ALTER TABLE tries RENAME TO version_1_tries;
DROP INDEX tries_by_problem;
-- Version 1 kept cubins without a checksum. They are compiled again rather than trusted.
DROP TABLE cubins;
