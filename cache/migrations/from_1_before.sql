-- from_1_before.sql - sets the tables of version 1 aside; schema.sql runs next, then from_1_after.sql, all in one
-- transaction. A migration goes straight from a past version to the current one, so no step in between is to be kept.
ALTER TABLE tries RENAME TO version_1_tries;
DROP INDEX tries_by_problem;
-- Version 1 kept cubins without a checksum. They are compiled again rather than trusted.
DROP TABLE cubins;
