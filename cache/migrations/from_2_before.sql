-- from_2_before.sql - sets the tables of version 2 aside; schema.sql runs next, then from_2_after.sql, all in one
-- transaction.
DROP VIEW readable_tries;
DROP INDEX tries_by_time;
DROP INDEX tries_by_digest;
ALTER TABLE problems RENAME TO version_2_problems;
ALTER TABLE device_classes RENAME TO version_2_device_classes;
ALTER TABLE rigors RENAME TO version_2_rigors;
ALTER TABLE tries RENAME TO version_2_tries;
ALTER TABLE searches RENAME TO version_2_searches;
ALTER TABLE cubins RENAME TO version_2_cubins;
ALTER TABLE leases RENAME TO version_2_leases;
