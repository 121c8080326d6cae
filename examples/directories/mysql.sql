-- A table of sites for MySQL and MariaDB, and what tells the gateway of changes:
--   query = "SELECT tenant, user, upstream, php, plan, redirect, suspended FROM domains WHERE host = $host"
--   all = "SELECT host, tenant, user, upstream, php, plan, redirect, suspended FROM domains WHERE host > $after ORDER BY host LIMIT 1000"
--   changes = "SELECT id, host FROM domain_changes WHERE id > $since ORDER BY id LIMIT 1000"
CREATE TABLE domains (
  host VARCHAR(253) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY,
  tenant VARCHAR(128) NOT NULL,
  user VARCHAR(32),
  upstream VARCHAR(300),
  php VARCHAR(16),
  plan VARCHAR(128),
  redirect VARCHAR(253),
  suspended BOOLEAN NOT NULL DEFAULT 0
);
-- Rows that are older than a day may be deleted.
CREATE TABLE domain_changes (
  id BIGINT AUTO_INCREMENT PRIMARY KEY,
  host VARCHAR(253) NOT NULL,
  at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP
);
CREATE TRIGGER domains_inserted AFTER INSERT ON domains
  FOR EACH ROW INSERT INTO domain_changes (host) VALUES (NEW.host);
CREATE TRIGGER domains_updated AFTER UPDATE ON domains
  FOR EACH ROW INSERT INTO domain_changes (host) VALUES (OLD.host), (NEW.host);
CREATE TRIGGER domains_deleted AFTER DELETE ON domains
  FOR EACH ROW INSERT INTO domain_changes (host) VALUES (OLD.host);
