-- schema.sql - version 1 of the database, the only DDL. docs/CACHE_FORMAT.md explains the meaning for people.
--
-- Everything is a row that a person can read with the sqlite3 shell; start with:  SELECT * FROM readable_tries;
-- The caller runs this inside one transaction and then sets application_id and user_version.

-- What was tuned: the text form of the bucket's problem, e.g. "fwd bf16 batch=1 num_heads_q=32 ...".
CREATE TABLE problems (
  id   INTEGER PRIMARY KEY,
  text TEXT NOT NULL UNIQUE CHECK (text <> '')
) STRICT;

-- GPUs that share winners: name, arch, SMs, memory clock, L2, MIG profile as one text. sm is read out of it (90 for
-- "sm_90a"), so that a GPU of the same sm finds its neighbours; 0 when the text names none.
CREATE TABLE device_classes (
  id   INTEGER PRIMARY KEY,
  text TEXT NOT NULL UNIQUE CHECK (text <> ''),
  sm   INTEGER NOT NULL CHECK (sm >= 0)
) STRICT;

-- The ladder of searches, in the order of attnforge::Rigor.
CREATE TABLE rigors (
  name TEXT PRIMARY KEY,
  rank INTEGER NOT NULL UNIQUE
) STRICT, WITHOUT ROWID;
INSERT INTO rigors VALUES ('quick', 0), ('full', 1), ('exhaustive', 2);

-- Every config that was tried, good or bad. A changed template gives the same config another digest: another row.
CREATE TABLE tries (
  id                INTEGER PRIMARY KEY,
  problem_id        INTEGER NOT NULL REFERENCES problems (id),
  device_class_id   INTEGER NOT NULL REFERENCES device_classes (id),
  config            TEXT    NOT NULL CHECK (config <> ''),
  digest            TEXT    NOT NULL,              -- of the kernel's source and options
  family            TEXT    NOT NULL,
  rigor             TEXT    NOT NULL REFERENCES rigors (name),
  estimate_us       REAL    NOT NULL,              -- the model's prediction
  estimated         INTEGER NOT NULL CHECK (estimated IN (0, 1)),  -- 1: ranked by the model, never run
  status            TEXT    NOT NULL
                    CHECK (status IN ('ok', 'compile_error', 'launch_error', 'wrong_result', 'timed_out')),
  time_us           REAL    NOT NULL,              -- median, cold L2; only if ok
  noise             REAL    NOT NULL,              -- interquartile range / median
  samples           INTEGER NOT NULL CHECK (samples >= 0),
  max_error         REAL,                          -- against the oracle; NULL: not a number
  clock_mhz         REAL    NOT NULL,              -- of the SMs while timed; 0: unknown
  detail            TEXT    NOT NULL,              -- compiler log or mismatch report
  driver            TEXT    NOT NULL,              -- provenance from here on: never part of a key
  nvrtc             TEXT    NOT NULL,
  uuid              TEXT    NOT NULL,
  attnforge_version TEXT    NOT NULL,
  measured_at       TEXT    NOT NULL,              -- UTC, ISO 8601
  UNIQUE (problem_id, device_class_id, config, digest),
  -- A kernel that does nothing is always the fastest: a good time is more than zero.
  CHECK (status <> 'ok' OR estimated = 1 OR time_us > 0)
) STRICT;
-- The look-up of a winner walks this from its fast end.
CREATE INDEX tries_by_time ON tries (problem_id, device_class_id, time_us) WHERE status = 'ok' AND estimated = 0;
-- clear asks which cubins no try needs any more; list asks which tries have one.
CREATE INDEX tries_by_digest ON tries (digest);

-- Searches that ran to their end, and what they chose (not always the fastest row: the tuner breaks ties).
CREATE TABLE searches (
  problem_id      INTEGER NOT NULL REFERENCES problems (id),
  device_class_id INTEGER NOT NULL REFERENCES device_classes (id),
  rigor           TEXT    NOT NULL REFERENCES rigors (name),
  winner          TEXT    NOT NULL,                -- a config; '' when nothing worked
  finished_at     TEXT    NOT NULL,
  PRIMARY KEY (problem_id, device_class_id, rigor)
) STRICT, WITHOUT ROWID;

-- Machine code, with the source it came from. Always safe to delete: it is compiled again.
CREATE TABLE cubins (
  id                INTEGER PRIMARY KEY,
  source_digest     TEXT    NOT NULL CHECK (source_digest <> ''),
  arch              TEXT    NOT NULL,              -- "90a"
  nvrtc             TEXT    NOT NULL,              -- version and build
  kernel_symbol     TEXT    NOT NULL,
  registers         INTEGER NOT NULL,
  smem_static_bytes INTEGER NOT NULL,
  stack_bytes       INTEGER NOT NULL,
  spill_store_bytes INTEGER NOT NULL,
  spill_load_bytes  INTEGER NOT NULL,
  wgmma_serialized  INTEGER NOT NULL CHECK (wgmma_serialized IN (0, 1)),
  compile_ms        REAL    NOT NULL,
  log               TEXT    NOT NULL,
  created_at        TEXT    NOT NULL,
  code_bytes        INTEGER NOT NULL,              -- before compression
  code_checksum     TEXT    NOT NULL,              -- XXH3-128 of the uncompressed bytes, hexadecimal
  row_checksum      TEXT    NOT NULL,              -- of key, symbol, resources, size and code_checksum: which code it is
  code              BLOB    NOT NULL,              -- zstd
  source            BLOB    NOT NULL,              -- zstd with its own checksum; for people: unpack with zstd -d
  UNIQUE (source_digest, arch, nvrtc)
) STRICT;

-- Who is tuning what right now. A row, not a held transaction: it survives minutes of tuning and a killed owner.
CREATE TABLE leases (
  problem       TEXT    NOT NULL,
  device_class  TEXT    NOT NULL,
  owner         TEXT    NOT NULL,                  -- one connection; a process may have several
  host          TEXT    NOT NULL,                  -- for people
  boot_id       TEXT    NOT NULL,                  -- these two say whether pid can be asked for from here
  pid_namespace TEXT    NOT NULL,
  pid           INTEGER NOT NULL,
  pid_start     INTEGER NOT NULL,                  -- clock ticks after boot: tells a reused pid
  expires_at    REAL    NOT NULL,                  -- seconds since 1970, by the owner's clock
  PRIMARY KEY (problem, device_class)
) STRICT, WITHOUT ROWID;

-- For people, and the one place that joins a try with the texts of its keys. It reads tables only (NOT INDEXED): a damaged
-- index may name a wrong row, and must not also tell which row it is. A key without a text is NULL, not a missing row.
CREATE VIEW readable_tries AS
SELECT t.id, p.text AS problem, d.text AS device_class, t.config, t.digest, t.family, t.rigor, t.estimate_us, t.estimated,
       t.status, t.time_us, t.noise, t.samples, t.max_error, t.clock_mhz, t.detail, t.driver, t.nvrtc, t.uuid,
       t.attnforge_version, t.measured_at, t.problem_id, t.device_class_id, d.sm
FROM tries t NOT INDEXED
LEFT JOIN problems p NOT INDEXED ON p.id = t.problem_id
LEFT JOIN device_classes d NOT INDEXED ON d.id = t.device_class_id;
