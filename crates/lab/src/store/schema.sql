-- One run in one file. Version 1; see docs/store.md.
-- Times are seconds since 1970 or nanoseconds as named, sizes are bytes.
-- A figure that is not known is NULL, never 0.

CREATE TABLE run (
    id              TEXT    NOT NULL PRIMARY KEY,
    title           TEXT    NOT NULL,
    plan_text       TEXT    NOT NULL,
    conditions      TEXT    NOT NULL, -- JSON object
    cells_planned   INTEGER NOT NULL,
    started_unix_s  INTEGER NOT NULL,
    finished_unix_s INTEGER           -- NULL: running or interrupted
) STRICT;

CREATE TABLE subject (
    position INTEGER NOT NULL PRIMARY KEY, -- from 0, in the plan's order
    name     TEXT    NOT NULL UNIQUE,
    record   TEXT    NOT NULL              -- JSON object
) STRICT;

CREATE TABLE test (
    position INTEGER NOT NULL PRIMARY KEY, -- from 0, in the plan's order
    name     TEXT    NOT NULL UNIQUE,
    record   TEXT    NOT NULL              -- JSON object
) STRICT;

CREATE TABLE cell (
    id                  INTEGER NOT NULL PRIMARY KEY, -- ascending in the order of measuring
    subject             INTEGER NOT NULL REFERENCES subject (position),
    test                INTEGER NOT NULL REFERENCES test (position),
    block_bytes         INTEGER,          -- NULL: the workload's own sizes
    queue_depth_asked   INTEGER NOT NULL,
    queue_depth_reached REAL,
    measured_ns         INTEGER NOT NULL,
    ramp_ns             INTEGER NOT NULL,
    working_set_bytes   INTEGER NOT NULL,
    interval_ns         INTEGER NOT NULL, -- length of one interval of the series
    intervals           INTEGER NOT NULL, -- how many there are, blank ones included
    drive_read_ios      INTEGER,
    drive_read_bytes    INTEGER,
    drive_write_ios     INTEGER,
    drive_write_bytes   INTEGER,
    cpu_ns              INTEGER           -- of the process, user and system
) STRICT;

-- A point that is measured again replaces what was there.
CREATE UNIQUE INDEX cell_point
    ON cell (subject, test, coalesce(block_bytes, 0), queue_depth_asked);

CREATE TABLE direction (
    cell      INTEGER NOT NULL REFERENCES cell (id) ON DELETE CASCADE,
    direction TEXT    NOT NULL CHECK (direction IN ('read', 'write')),
    ios       INTEGER NOT NULL,
    bytes     INTEGER NOT NULL,
    errors    INTEGER NOT NULL,
    mean_ns   REAL,
    min_ns    INTEGER,
    p50_ns    INTEGER,
    p90_ns    INTEGER,
    p99_ns    INTEGER,
    p999_ns   INTEGER,
    p9999_ns  INTEGER,
    max_ns    INTEGER,
    histogram BLOB, -- the whole latency histogram, raw
    PRIMARY KEY (cell, direction)
) STRICT;

-- An interval in which nothing completed has no row.
CREATE TABLE sample (
    cell            INTEGER NOT NULL REFERENCES cell (id) ON DELETE CASCADE,
    interval        INTEGER NOT NULL, -- from 0, from the end of the ramp
    ios             INTEGER NOT NULL,
    bytes           INTEGER NOT NULL,
    latency_ns_mean REAL    NOT NULL,
    PRIMARY KEY (cell, interval)
) STRICT;

CREATE TABLE note (
    cell     INTEGER NOT NULL REFERENCES cell (id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    kind     TEXT    NOT NULL,
    text     TEXT    NOT NULL,
    PRIMARY KEY (cell, position)
) STRICT;
