-- A table of sites for SQLite, and what tells the gateway of changes:
--   query = "SELECT tenant, user, upstream, php, plan, redirect, suspended FROM domains WHERE host = $host"
--   all = "SELECT host, tenant, user, upstream, php, plan, redirect, suspended FROM domains WHERE host > $after ORDER BY host LIMIT 1000"
--   changes = "SELECT id, host FROM domain_changes WHERE id > $since ORDER BY id LIMIT 1000"
CREATE TABLE domains (
  host TEXT PRIMARY KEY,
  tenant TEXT NOT NULL,
  user TEXT,
  upstream TEXT,
  php TEXT,
  plan TEXT,
  redirect TEXT,
  suspended INTEGER NOT NULL DEFAULT 0
);
-- Rows that are older than a day may be deleted.
CREATE TABLE domain_changes (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  host TEXT NOT NULL,
  at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
);
CREATE TRIGGER domains_inserted AFTER INSERT ON domains BEGIN
  INSERT INTO domain_changes (host) VALUES (NEW.host);
END;
CREATE TRIGGER domains_updated AFTER UPDATE ON domains BEGIN
  INSERT INTO domain_changes (host) VALUES (OLD.host), (NEW.host);
END;
CREATE TRIGGER domains_deleted AFTER DELETE ON domains BEGIN
  INSERT INTO domain_changes (host) VALUES (OLD.host);
END;
