-- from_1_after.sql - copies what version 1 knew. It had no estimates, no GPU uuid and no finished searches, and repeated
-- the texts of problem and GPU class in every row. It had no CHECKs: a row that is refused today is left behind.
-- sm_of_device_class() is the library's.
INSERT OR IGNORE INTO problems (text) SELECT DISTINCT problem FROM version_1_tries ORDER BY problem;
INSERT OR IGNORE INTO device_classes (text, sm)
SELECT DISTINCT device_class, sm_of_device_class(device_class) FROM version_1_tries ORDER BY device_class;

INSERT OR IGNORE INTO tries (problem_id, device_class_id, config, digest, family, rigor, estimate_us, estimated, status,
                             time_us, noise, samples, max_error, clock_mhz, detail, driver, nvrtc, uuid, attnforge_version,
                             measured_at)
SELECT p.id, d.id, v.config, v.digest, v.family, v.rigor, 0.0, 0, v.status,
       CAST(v.time_us AS REAL), CAST(v.noise AS REAL), CAST(v.samples AS INTEGER), CAST(v.max_error AS REAL), 0.0, v.detail,
       v.driver, v.nvrtc, '', '', v.measured_at
FROM version_1_tries v
JOIN problems p ON p.text = v.problem
JOIN device_classes d ON d.text = v.device_class
WHERE v.rigor IN (SELECT name FROM rigors)
ORDER BY v.rowid;

DROP TABLE version_1_tries;
