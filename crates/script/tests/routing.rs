//! Upstreams chosen by memcached and MySQL, as `set` scripts of ngx_mruby do it: with connections
//! made for each request, and with connections kept in `Userdata`.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::bed::{code, on_a_worker, settings};
use script::{Datum, Failure, Interpreter, Phase, Property, Script, Trial};
use testkit::{MariaDb, Memcached, free_port};

/// What both scripts do once they have their memcached; `DATABASE` and `KEEP` are put in.
const LOOK_UP: &str = r##"
  upstream = memcached.get v.http_host
  if upstream != nil then
    Nginx.errlogger Nginx::LOG_INFO, "route: memcached: " + v.http_host + " is at " + upstream
    return Nginx::DECLINED
  end
  database = MySQL::Database.new(DATABASE)
  KEEP
  begin
    found = database.execute("SELECT host FROM domain WHERE domain = ? LIMIT 1", "#{v.http_host}")
  rescue
    RESCUE
  end
  if found != nil then
    upstream = found.next[0]
    found.close
  end
  if upstream != nil then
    memcached.set v.http_host, upstream
    Nginx.errlogger Nginx::LOG_INFO, "route: mysql: " + v.http_host + " is at " + upstream
    return Nginx::DECLINED
  end
  return Nginx::HTTP_SERVICE_UNAVAILABLE
end.call
"##;

/// The stores, and what the scripts say of them.
struct Bed {
    mariadb: MariaDb,
    memcached: Memcached,
}

impl Bed {
    fn start() -> Option<Self> {
        let mariadb = MariaDb::start(&[])?;
        let memcached = Memcached::start(&[])?;
        mariadb.sql(
            "CREATE TABLE domain (domain VARCHAR(200) PRIMARY KEY, host VARCHAR(200));
             INSERT INTO domain VALUES ('site-a.test', '127.0.0.1:8001'), ('empty.test', NULL);",
        );
        Some(Self { mariadb, memcached })
    }

    /// Connects for each request.
    fn fresh(&self) -> Script {
        let text = format!(
            "upstream = ''; v = Nginx::Var.new
             memcached = Memcached.new '{}'
             Nginx.return -> do{}memcached.close\nupstream",
            self.memcached.address(),
            self.look_up("", "raise 'the database fails'")
        );
        code(&text)
    }

    /// Keeps its connections.
    fn kept(&self) -> Script {
        let text = format!(
            "upstream = ''; v = Nginx::Var.new
             memcached = Userdata.new('memcached_1').connection
             Nginx.return -> do
             if memcached == nil then
               memcached = Memcached.new '{}'
               Userdata.new('memcached_1').connection = memcached
             end{}upstream",
            self.memcached.address(),
            self.look_up("Userdata.new('mysql_1').connection = database", "retry")
        );
        code(&text)
    }

    fn look_up(&self, keep: &str, rescue: &str) -> String {
        let address = self.mariadb.address();
        let database = format!(
            "'{}', '{}', '{}', '{}', {}",
            address.ip(),
            MariaDb::USER,
            MariaDb::PASSWORD,
            MariaDb::DATABASE,
            address.port()
        );
        LOOK_UP
            .replace("DATABASE", &database)
            .replace("KEEP", keep)
            .replace("RESCUE", rescue)
    }
}

/// An interpreter that is patient with busy machines, but not beyond `wall`.
fn patient(wall: Duration) -> Rc<Interpreter> {
    let mut settings = settings();
    settings.budgets.cpu = Duration::from_secs(5);
    settings.budgets.wall = wall;
    settings.budgets.connect_timeout = Duration::from_secs(30);
    settings.budgets.store_timeout = Duration::from_secs(60);
    Interpreter::open(settings, Arc::default()).expect("an interpreter opens")
}

/// The upstream a script names for a host, and what it returned.
async fn route(
    interpreter: &Rc<Interpreter>,
    script: &Script,
    host: &str,
) -> Result<(Datum, Option<i64>), Failure> {
    let mut request = Trial::get("/");
    request.properties.insert(Property::HttpHost, host.into());
    request.properties.insert(Property::Host, host.into());
    request.fields_in = vec![(b"Host".to_vec(), host.into())];
    let ran = interpreter.run(Phase::Set, script, Some(&mut request));
    Ok((ran.await?.value, request.scope.returned))
}

/// Lets time go by until an idle connection is asked for a sign of life before it is used.
async fn untrusted() {
    let since = Instant::now();
    while since.elapsed() < Duration::from_millis(200) {
        tokio::task::yield_now().await;
    }
}

const PATIENCE: Duration = Duration::from_secs(120);
const DECLINED: Option<i64> = Some(-5);

#[test]
fn a_miss_is_looked_up_and_a_hit_needs_no_database() {
    let Some(mut bed) = Bed::start() else { return };
    for script in [bed.fresh(), bed.kept()] {
        on_a_worker(async {
            let interpreter = patient(PATIENCE);
            let at = (Datum::from("127.0.0.1:8001"), DECLINED);
            assert_eq!(
                route(&interpreter, &script, "site-a.test")
                    .await
                    .expect("found"),
                at
            );
            assert_eq!(
                bed.memcached.get("site-a.test").as_deref(),
                Some("127.0.0.1:8001")
            );
            bed.mariadb.stop();
            assert_eq!(
                route(&interpreter, &script, "site-a.test")
                    .await
                    .expect("a hit"),
                at
            );
            untrusted().await;
            let down = route(&interpreter, &script, "site-b.test").await;
            let said = down.expect_err("no database").to_string();
            assert!(said.contains("connect to MySQL"), "{said}");
            bed.mariadb.restart();
            bed.memcached.restart();
        });
    }
}

#[test]
fn an_unknown_domain_has_no_upstream() {
    let Some(bed) = Bed::start() else { return };
    for script in [bed.fresh(), bed.kept()] {
        on_a_worker(async {
            let interpreter = patient(PATIENCE);
            let unknown = route(&interpreter, &script, "unknown.test").await;
            let said = unknown.expect_err("there is no row").to_string();
            assert!(said.contains("NoMethodError"), "{said}");
            let empty = route(&interpreter, &script, "empty.test")
                .await
                .expect("a row of NULL");
            assert_eq!(empty, (Datum::Nil, Some(503)));
        });
    }
}

#[test]
fn without_memcached_the_database_answers() {
    let Some(mut bed) = Bed::start() else { return };
    let scripts = [bed.fresh(), bed.kept()];
    bed.memcached.stop();
    for script in scripts {
        on_a_worker(async {
            let interpreter = patient(PATIENCE);
            for _ in 0..2 {
                let at = route(&interpreter, &script, "site-a.test")
                    .await
                    .expect("found");
                assert_eq!(at, (Datum::from("127.0.0.1:8001"), DECLINED));
            }
        });
    }
}

#[test]
fn a_loop_of_retries_ends_with_its_time_and_holds_up_nobody() {
    let Some(bed) = Bed::start() else { return };
    let script = bed.kept();
    bed.mariadb.sql("DROP TABLE domain");
    on_a_worker(async {
        let interpreter = patient(Duration::from_secs(3));
        let endless = route(&interpreter, &script, "site-a.test");
        let others = async {
            let other = code("Nginx::Var.new.http_host");
            for _ in 0..20 {
                let ran = route(&interpreter, &other, "b.test").await;
                assert_eq!(ran.expect("it runs").0, Datum::from("b.test"));
                tokio::task::yield_now().await;
            }
        };
        let (endless, ()) = tokio::join!(endless, others);
        let said = endless.expect_err("it ends").to_string();
        assert!(said.contains("scripts.wall"), "{said}");
    });
}

#[test]
fn a_database_nobody_listens_for_fails_at_once() {
    on_a_worker(async {
        let interpreter = patient(PATIENCE);
        let open = code(&format!(
            "MySQL::Database.new('127.0.0.1', 'u', 'p', 'd', {})",
            free_port()
        ));
        let said = route(&interpreter, &open, "a.test")
            .await
            .expect_err("refused")
            .to_string();
        assert!(said.contains("refused (RuntimeError)"), "{said}");
    });
}
