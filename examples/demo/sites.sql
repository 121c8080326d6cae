-- What examples/demo/sites.db holds: a row a site.
CREATE TABLE sites (
    host TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    name TEXT,
    redirect TEXT,
    suspended INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
INSERT INTO sites VALUES
    ('anna.localhost', 'anna', 'Anna', NULL, 0),
    ('bert.localhost', 'bert', NULL, 'anna.localhost', 0),
    ('carla.localhost', 'carla', 'Carla', NULL, 1);
