-- from_4.sql - a GPU class spells its arch as everything else does: "sm_90a", no longer "sm90a". Tables stay as they are. The
-- last step from all older versions. with_todays_arch() is the library's.
--
-- A file may have a class in both spellings, from an import of lines that a newer attnforge wrote. The two become one, and of
-- two rows of one key the greater stays, as in an import.
INSERT OR IGNORE INTO tries (problem_id, device_class_id, config, digest, family, rigor, estimate_us, estimated, status,
                             time_us, noise, samples, max_error, clock_mhz, detail, driver, nvrtc, uuid, attnforge_version,
                             measured_at)
SELECT t.problem_id, today.id, t.config, t.digest, t.family, t.rigor, t.estimate_us, t.estimated, t.status, t.time_us, t.noise,
       t.samples, t.max_error, t.clock_mhz, t.detail, t.driver, t.nvrtc, t.uuid, t.attnforge_version, t.measured_at
FROM device_classes past NOT INDEXED
JOIN device_classes today NOT INDEXED ON today.id <> past.id AND today.text = with_todays_arch(past.text)
JOIN tries t NOT INDEXED ON t.device_class_id = past.id
WHERE true
ON CONFLICT (problem_id, device_class_id, config, digest) DO UPDATE SET
  family = excluded.family, rigor = excluded.rigor, estimate_us = excluded.estimate_us, estimated = excluded.estimated,
  status = excluded.status, time_us = excluded.time_us, noise = excluded.noise, samples = excluded.samples,
  max_error = excluded.max_error, clock_mhz = excluded.clock_mhz, detail = excluded.detail, driver = excluded.driver,
  nvrtc = excluded.nvrtc, uuid = excluded.uuid, attnforge_version = excluded.attnforge_version,
  measured_at = excluded.measured_at
WHERE (NOT excluded.estimated, (SELECT rank FROM rigors WHERE name = excluded.rigor), excluded.measured_at, excluded.status,
       excluded.time_us, excluded.noise, excluded.samples, coalesce(excluded.max_error, -1), excluded.clock_mhz,
       excluded.detail, excluded.estimate_us, excluded.family, excluded.driver, excluded.nvrtc, excluded.uuid,
       excluded.attnforge_version)
    > (NOT tries.estimated, (SELECT rank FROM rigors WHERE name = tries.rigor), tries.measured_at, tries.status, tries.time_us,
       tries.noise, tries.samples, coalesce(tries.max_error, -1), tries.clock_mhz, tries.detail, tries.estimate_us,
       tries.family, tries.driver, tries.nvrtc, tries.uuid, tries.attnforge_version);

INSERT OR IGNORE INTO searches (problem_id, device_class_id, rigor, winner, finished_at)
SELECT s.problem_id, today.id, s.rigor, s.winner, s.finished_at
FROM device_classes past NOT INDEXED
JOIN device_classes today NOT INDEXED ON today.id <> past.id AND today.text = with_todays_arch(past.text)
JOIN searches s ON s.device_class_id = past.id
WHERE true
ON CONFLICT (problem_id, device_class_id, rigor) DO UPDATE SET winner = excluded.winner, finished_at = excluded.finished_at
WHERE (excluded.finished_at, excluded.winner) > (searches.finished_at, searches.winner);

-- Only the classes that are in the file in both spellings keep the old one here.
UPDATE OR IGNORE device_classes NOT INDEXED SET text = with_todays_arch(text) WHERE text <> with_todays_arch(text);
DELETE FROM tries NOT INDEXED WHERE device_class_id IN
  (SELECT id FROM device_classes NOT INDEXED WHERE text <> with_todays_arch(text));
DELETE FROM searches WHERE device_class_id IN
  (SELECT id FROM device_classes NOT INDEXED WHERE text <> with_todays_arch(text));
DELETE FROM device_classes NOT INDEXED WHERE text <> with_todays_arch(text);

-- Leases are of processes that can no longer store what they find: they do not know this version.
DELETE FROM leases;
