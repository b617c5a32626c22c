-- Rules, tenants, overrides, API keys and settings: one row each, the body as JSON in the shape of the configuration file.
CREATE TABLE sluicegate_entries (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    position BIGINT NOT NULL,
    version BIGINT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (kind, name)
);

-- One row, which every change takes and raises: writers wait for each other here, and readers see that there is news.
CREATE TABLE sluicegate_revision (
    id BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    revision BIGINT NOT NULL
);
INSERT INTO sluicegate_revision (id, revision) VALUES (1, 0);

-- Who changed what, and when, in milliseconds since 1970.
CREATE TABLE sluicegate_audit (
    revision BIGINT NOT NULL,
    number BIGINT NOT NULL,
    at BIGINT NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    body_before TEXT,
    body_after TEXT,
    PRIMARY KEY (revision, number)
);
