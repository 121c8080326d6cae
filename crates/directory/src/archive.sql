-- Minutes and incidents of all machines. Times are seconds after 1970.
CREATE TABLE IF NOT EXISTS nagaya_archive (format integer NOT NULL);
CREATE TABLE IF NOT EXISTS nagaya_machines (machine text PRIMARY KEY, until bigint, heard timestamptz NOT NULL);
CREATE TABLE IF NOT EXISTS nagaya_samples (machine text NOT NULL, name text NOT NULL, at bigint NOT NULL,
    count double precision NOT NULL, sum double precision NOT NULL,
    low double precision NOT NULL, high double precision NOT NULL, PRIMARY KEY (name, at, machine));
CREATE INDEX IF NOT EXISTS nagaya_samples_by_age ON nagaya_samples (machine, at);
CREATE TABLE IF NOT EXISTS nagaya_sites (machine text NOT NULL, site text NOT NULL, at bigint NOT NULL,
    durations bytea NOT NULL, requests bigint NOT NULL, bots bigint NOT NULL, views bigint NOT NULL,
    visits bigint NOT NULL, bounces bigint NOT NULL, visit_s bigint NOT NULL, bytes bigint NOT NULL,
    status_1xx bigint NOT NULL, status_2xx bigint NOT NULL, status_3xx bigint NOT NULL,
    status_4xx bigint NOT NULL, status_5xx bigint NOT NULL, queue_us bigint NOT NULL,
    upstream_us bigint NOT NULL, handshakes bigint NOT NULL, PRIMARY KEY (site, at, machine));
CREATE INDEX IF NOT EXISTS nagaya_sites_by_age ON nagaya_sites (machine, at);
CREATE TABLE IF NOT EXISTS nagaya_incidents (machine text NOT NULL, at bigint NOT NULL, kind smallint NOT NULL,
    what text NOT NULL, times bigint NOT NULL, content text NOT NULL, owners text[] NOT NULL,
    PRIMARY KEY (at, machine, kind, what));
CREATE INDEX IF NOT EXISTS nagaya_incidents_by_age ON nagaya_incidents (machine, at);
