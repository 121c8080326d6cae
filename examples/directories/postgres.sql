-- A table of sites for PostgreSQL, and what tells the gateway of changes:
--   query = "SELECT tenant, username AS user, upstream, php, plan, redirect, suspended FROM domains WHERE host = $host"
--   all = "SELECT host, tenant, username AS user, upstream, php, plan, redirect, suspended FROM domains WHERE host > $after ORDER BY host LIMIT 1000"
--   changes = "LISTEN domains"
CREATE TABLE domains (
  host text COLLATE "C" PRIMARY KEY,
  tenant text NOT NULL,
  username text,
  upstream text,
  php text,
  plan text,
  redirect text,
  suspended boolean NOT NULL DEFAULT false
);
CREATE FUNCTION domains_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP <> 'INSERT' THEN PERFORM pg_notify('domains', OLD.host); END IF;
  IF TG_OP <> 'DELETE' THEN PERFORM pg_notify('domains', NEW.host); END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER domains_changed AFTER INSERT OR UPDATE OR DELETE ON domains
  FOR EACH ROW EXECUTE FUNCTION domains_changed();
