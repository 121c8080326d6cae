//! Every kind of source answers the same.

use std::fs::Permissions;
use std::io::{BufReader, Read};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use directory::check;
use ipc::directory::{ChangesSettings, DirectorySettings, RowAnswer, RowFrom, SourceSettings};
use testkit::{MariaDb, Memcached, Postgres, TempDir, a_mariadb, a_postgres};

use crate::asking::{Asked, TABLE, mariadb, polled, postgres, run, settings};

/// Longer than any machine stands still.
const LONG_MS: u64 = 60_000;

/// A database of SQLite with the table of the tests.
fn sqlite(directory: &TempDir) -> (SourceSettings, rusqlite::Connection) {
    let path = directory.path().join("rows.db");
    let table = rusqlite::Connection::open(&path).expect("open SQLite");
    table.execute_batch(TABLE).expect("make a table");
    (SourceSettings::Sqlite(path), table)
}

/// Sound, hostile, wrong, doubled and missing rows are what they are.
fn answers_alike(settings: DirectorySettings) {
    run(async {
        let asked = Asked::new(settings.clone());
        let row = asked.row("a.example").await;
        assert_eq!(
            (row.column("tenant"), row.from),
            (Some("anna"), RowFrom::Source)
        );
        assert_eq!(row.column("note"), None, "{row:?}");
        let hostile = asked.row("b.example").await;
        let note = hostile.column("note").expect("a note");
        assert!(
            note.contains("DROP TABLE") && note.contains("${row.tenant}"),
            "{note}"
        );
        for (host, why) in [("c.example", "tenant"), ("d.example", "two rows")] {
            match asked.ask(host).await {
                RowAnswer::Wrong(said) => assert!(said.contains(why), "{host}: {said}"),
                other => panic!("{host}: {other:?}"),
            }
        }
        for nobody in ["e.example", "' OR '1'='1", "$host", "a.example' --"] {
            assert_eq!(asked.ask(nobody).await, RowAnswer::Missing, "{nobody}");
        }
        asked.asker.keep_from(&["anna".to_owned()]);
        let written = asked.ask("a.example").await;
        assert!(matches!(written, RowAnswer::Wrong(_)), "{written:?}");
        let state = asked.asker.state();
        assert!(
            state.is_up && state.asked >= 9 && state.wrong >= 3,
            "{state:?}"
        );
    });
    lacks_are_told(settings.clone());
    let checked = check(settings, &["bert".to_owned()], true, &|_, _| Ok(()));
    assert_eq!(checked.rows, 5);
    let said = checked.wrong.join("\n");
    for host in ["b.example", "c.example", "d.example"] {
        assert!(said.contains(host), "{said}");
    }
    assert!(!said.contains("a.example"), "{said}");
}

/// A column that the site uses is told of where no row has it, and no row makes a site without it: rows that are kept serve on.
/// Each object of JSON has columns of its own.
fn lacks_are_told(mut settings: DirectorySettings) {
    let is_told = !matches!(settings.source, SourceSettings::JsonLines(_));
    settings.wait_ms = LONG_MS;
    settings.columns = ["tenant", "plan"].map(str::to_owned).into();
    for all in [false, true] {
        let said = check(settings.clone(), &[], all, &|_, _| Ok(())).wrong;
        let said = said.join("\n");
        let is_said = said.contains("has no column `plan`, which the site of its rows uses");
        assert_eq!(is_said, is_told, "{said}");
    }
    let directory = TempDir::new();
    settings.snapshot = Some(directory.path().join("rows"));
    // What is kept there is not young.
    settings.keep_ms = 0;
    let mut sound = settings.clone();
    sound.columns.clear();
    run(async {
        let asked = Asked::new(sound);
        let is_kept = |_: &RowAnswer| asked.asker.state().rows >= 2;
        asked.until("b.example", is_kept).await;
    });
    run(async {
        let asked = Asked::new(settings);
        let answer = asked.ask("e.example").await;
        match is_told {
            true => assert!(
                matches!(&answer, RowAnswer::Down(why) if why.contains("`plan`")),
                "{answer:?}"
            ),
            false => assert_eq!(answer, RowAnswer::Missing),
        }
        let known = asked.row("b.example").await;
        assert!(!is_told || known.from == RowFrom::Snapshot, "{known:?}");
        assert_eq!(asked.asker.state().is_up, !is_told);
    });
}

#[test]
fn sqlite_answers() {
    let directory = TempDir::new();
    answers_alike(settings(sqlite(&directory).0));
}

/// A site would have no plan where its host is asked for.
#[test]
fn a_query_that_selects_less_than_all_is_told_of() {
    let directory = TempDir::new();
    let mut settings = settings(sqlite(&directory).0);
    settings.query = "SELECT tenant, NOTE FROM domains WHERE host = $host".into();
    let said = check(settings, &[], true, &|_, _| Ok(())).wrong.join("\n");
    let wanted = "`query` does not select `upstream`, which `all` does";
    assert!(said.contains(wanted), "{said}");
}

#[test]
fn rows_are_listed_though_the_query_fails_and_the_first_of_them_has_no_host() {
    let directory = TempDir::new();
    let (source, table) = sqlite(&directory);
    let first = "INSERT INTO domains VALUES ('!', 'anna', NULL, NULL)";
    table.execute(first, []).expect("insert");
    let mut settings = settings(source);
    settings.query = "SELECT tenant FROM domains WHERE host = $host".into();
    let said = check(settings.clone(), &[], true, &|_, _| Ok(())).wrong;
    let said = said.join("\n");
    assert!(
        said.contains("does not select `upstream`, `note`"),
        "{said}"
    );
    settings.query = "SELECT tenant FROM elsewhere WHERE host = $host".into();
    let checked = check(settings, &[], true, &|_, _| Ok(()));
    let said = checked.wrong.join("\n");
    assert!(
        said.contains("elsewhere") && said.contains("row 1: its host"),
        "{said}"
    );
    assert_eq!(checked.rows, 6);
}

#[test]
fn mariadb_answers() {
    let Some(server) = a_mariadb() else { return };
    server.sql(TABLE);
    answers_alike(settings(mariadb(&server)));
}

#[test]
fn postgres_answers() {
    let Some(server) = a_postgres() else { return };
    server.sql(TABLE);
    answers_alike(settings(postgres(&server)));
}

#[test]
fn files_answer_and_are_read_again() {
    let directory = TempDir::new();
    let lines = "host,tenant,upstream,note\na.example,anna,10.0.0.1:80,\n\
        b.example,bert,10.0.0.2:80,\"DROP TABLE ' \"\" ${row.tenant}\"\nc.example,../x,10.0.0.3:80,\n\
        d.example,dora,,\nd.example,dirk,,\n";
    let path = directory.write("rows.csv", lines);
    let file = settings(SourceSettings::Csv(path.clone()));
    answers_alike(file.clone());
    let objects = "{\"host\":\"a.example\",\"tenant\":\"anna\",\"upstream\":\"10.0.0.1:80\"}\n\
        {\"host\":\"b.example\",\"note\":\"DROP TABLE ${row.tenant}\",\"tenant\":\"bert\"}\n\
        {\"host\":\"c.example\",\"tenant\":\"../x\"}\n{\"host\":\"d.example\"}\n{\"host\":\"d.example\"}\n";
    let other = directory.write("rows.jsonl", objects);
    answers_alike(settings(SourceSettings::JsonLines(other)));
    run(async {
        let mut asked = Asked::new(file.clone());
        assert_eq!(asked.row("a.example").await.column("tenant"), Some("anna"));
        let next = directory.write("next.csv", "host,tenant\na.example,else\nno\n");
        std::fs::rename(next, &path).expect("replace the file");
        assert_eq!(asked.changed().await, None);
        assert_eq!(asked.row("a.example").await.column("tenant"), Some("else"));
    });
    let checked = check(file, &[], true, &|_, _| Ok(()));
    assert_eq!(
        (checked.rows, checked.wrong),
        (1, vec!["line 3: it has 1 fields, not 2".to_owned()])
    );
}

/// A certificate for this machine's address that its key signed itself, and both in files of a database's user.
pub(crate) fn certificate(directory: &TempDir) -> (String, [String; 2]) {
    let key = rcgen::KeyPair::generate().expect("make a key");
    let params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]);
    let certificate = params.expect("an address").self_signed(&key);
    let pem = certificate.expect("sign a certificate").pem();
    let files = [
        ("server.pem", pem.clone()),
        ("server.key", key.serialize_pem()),
    ];
    let paths = files.map(|(name, text)| {
        let path = directory.write(name, text);
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("its owner's alone");
        // Where the test is root, databases run as nobody or as root.
        if let Err(error) = chown(&path, Some(65_534), None) {
            assert_ne!(error.kind(), std::io::ErrorKind::NotFound);
        }
        path.display().to_string()
    });
    (pem, paths)
}

/// A database is spoken to by TLS, where its certificate is one of the authorities' that are believed.
fn is_secret(mut source: SourceSettings, pem: &str) {
    let (SourceSettings::Mysql(server) | SourceSettings::Postgres(server)) = &mut source else {
        panic!("no server");
    };
    server.tls = Some(pem.into());
    let mut elsewhere = server.clone();
    let other = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]);
    elsewhere.tls = Some(other.expect("a certificate").cert.pem().into());
    let unknown = match source {
        SourceSettings::Mysql(_) => SourceSettings::Mysql(elsewhere),
        _ => SourceSettings::Postgres(elsewhere),
    };
    answers_alike(settings(source));
    let checked = check(settings(unknown), &[], false, &|_, _| Ok(()));
    let said = checked.wrong.join("\n");
    assert!(said.contains("certificate"), "{said}");
}

#[test]
fn databases_are_spoken_to_by_tls_and_only_with_a_certificate_that_is_believed() {
    let directory = TempDir::new();
    let (pem, [chain, key]) = certificate(&directory);
    let files = [format!("--ssl-cert={chain}"), format!("--ssl-key={key}")];
    let settings = [&*files[0], &files[1], "--require-secure-transport=ON"];
    if let Some(server) = MariaDb::start(&settings) {
        server.sql(TABLE);
        is_secret(mariadb(&server), &pem);
    }
    let files = [
        format!("ssl_cert_file={chain}"),
        format!("ssl_key_file={key}"),
    ];
    if let Some(server) = Postgres::start(&["ssl=on", &files[0], &files[1]]) {
        server.sql(TABLE);
        is_secret(postgres(&server), &pem);
    }
}

#[test]
fn a_database_without_tls_is_told_nothing_where_tls_is_wanted() {
    let Some(server) = MariaDb::start(&["--skip-ssl"]) else {
        return;
    };
    server.sql(TABLE);
    let SourceSettings::Mysql(mut plain) = mariadb(&server) else {
        panic!("no server");
    };
    let directory = TempDir::new();
    plain.tls = Some(certificate(&directory).0.into());
    let said = check(
        settings(SourceSettings::Mysql(plain)),
        &[],
        false,
        &|_, _| Ok(()),
    )
    .wrong;
    let said = said.join("\n");
    assert!(said.contains("has no TLS"), "{said}");
}

/// Types that are no texts cost their row, and whole numbers and flags are texts.
fn types_are_told(mut settings: DirectorySettings) {
    settings.query = "SELECT n, at FROM things WHERE host = $host".into();
    run(async {
        let asked = Asked::new(settings);
        assert_eq!(asked.row("n.example").await.column("n"), Some("-7"));
        match asked.ask("at.example").await {
            RowAnswer::Wrong(why) => assert!(why.contains("`at`") && why.contains("cast"), "{why}"),
            other => panic!("{other:?}"),
        }
    });
}

const THINGS: &str = "CREATE TABLE things (host VARCHAR(255), n BIGINT, at TIMESTAMP NULL);
INSERT INTO things VALUES ('n.example', -7, NULL), ('at.example', 1, '2026-01-02 03:04:05');";

#[test]
fn a_value_of_another_type_costs_its_row_alone() {
    if let Some(server) = MariaDb::start(&[]) {
        server.sql(THINGS);
        types_are_told(settings(mariadb(&server)));
    }
    if let Some(server) = Postgres::start(&[]) {
        server.sql(THINGS);
        types_are_told(settings(postgres(&server)));
    }
}

#[test]
fn a_column_of_a_megabyte_costs_its_row_alone() {
    let directory = TempDir::new();
    let (source, table) = sqlite(&directory);
    let long = "x".repeat(1 << 20);
    table
        .execute(
            "UPDATE domains SET note = ?1 WHERE host = 'a.example'",
            [&long],
        )
        .expect("update");
    run(async {
        let asked = Asked::new(settings(source));
        let answer = asked.ask("a.example").await;
        assert!(
            matches!(&answer, RowAnswer::Wrong(why) if why.contains("note")),
            "{answer:?}"
        );
        asked.row("b.example").await;
    });
}

#[test]
fn changes_are_heard_by_a_query_and_by_listening() {
    let changes = "CREATE TABLE changes (id INT PRIMARY KEY, host VARCHAR(255));";
    if let Some(server) = MariaDb::start(&[]) {
        server.sql(&format!("{TABLE}{changes}"));
        let mut settings = settings(mariadb(&server));
        settings.changes = Some(ChangesSettings::Query(
            "SELECT id, host FROM misspelt WHERE id > $since".into(),
        ));
        let said = check(settings.clone(), &[], false, &|_, _| Ok(()))
            .wrong
            .join("\n");
        assert!(
            said.contains("`changes`") && said.contains("misspelt"),
            "{said}"
        );
        settings.changes = polled();
        assert_eq!(
            check(settings.clone(), &[], false, &|_, _| Ok(())).wrong,
            Vec::<String>::new()
        );
        run(async {
            let mut asked = Asked::new(settings);
            for (id, host) in [(3, "a.example"), (7, "b.example")] {
                server.sql(&format!("INSERT INTO changes VALUES ({id}, '{host}')"));
                assert_eq!(asked.changed().await.as_deref(), Some(host));
            }
        });
    }
    if let Some(server) = Postgres::start(&[]) {
        server.sql(&format!("{TABLE}{changes}"));
        let mut polling = settings(postgres(&server));
        polling.changes = polled();
        let mut listening = polling.clone();
        listening.changes = Some(ChangesSettings::Listen("domains".into()));
        run(async {
            let mut asked = Asked::new(polling);
            server.sql("INSERT INTO changes VALUES (3, 'A.example.')");
            assert_eq!(asked.changed().await.as_deref(), Some("a.example"));
            let mut asked = Asked::new(listening);
            assert_eq!(asked.changed().await, None, "it listens");
            server.sql("NOTIFY domains, 'b.example'");
            assert_eq!(asked.changed().await.as_deref(), Some("b.example"));
        });
    }
}

#[test]
fn memcached_is_asked_first_and_believed_where_it_is_signed() {
    let Some(memcached) = Memcached::start(&[]) else {
        return;
    };
    let directory = TempDir::new();
    let (source, table) = sqlite(&directory);
    let mut signed = settings(source);
    signed.memcached = Some(memcached.address().to_string());
    run(async {
        let asked = Asked::new(signed.clone());
        assert_eq!(asked.row("a.example").await.from, RowFrom::Source);
        table
            .execute(
                "UPDATE domains SET tenant = 'else' WHERE host = 'a.example'",
                [],
            )
            .expect("update");
        let kept = asked.row("a.example").await;
        assert_eq!(
            (kept.from, kept.column("tenant")),
            (RowFrom::Memcached, Some("anna"))
        );
        // Whoever writes there changes nothing.
        let place = "nagaya:customers:a.example";
        for forged in ["{\"tenant\":\"evil\"}", "10.6.6.6:80"] {
            memcached.set(place, forged);
            memcached.set("a.example", forged);
            assert_eq!(asked.row("a.example").await.column("tenant"), Some("else"));
            assert_eq!(asked.row("b.example").await.column("tenant"), Some("bert"));
        }
        let mut unsigned = signed.clone();
        unsigned.trusts_unsigned = true;
        let asked = Asked::new(unsigned);
        memcached.set("f.example", "10.0.0.9:80");
        let others = asked.row("f.example").await;
        assert_eq!(
            (others.from, others.column("upstream")),
            (RowFrom::Memcached, Some("10.0.0.9:80"))
        );
    });
}

/// A memcached that takes all and says nothing: who it is told to.
fn silent_memcached() -> (std::net::SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("an address");
    let heard = Arc::<Mutex<Vec<u8>>>::default();
    let hears = Arc::clone(&heard);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let hears = Arc::clone(&hears);
            std::thread::spawn(move || {
                for byte in BufReader::new(stream).bytes().map_while(Result::ok) {
                    hears.lock().expect("nobody broke off").push(byte);
                }
            });
        }
    });
    (address, heard)
}

#[test]
fn a_memcached_that_is_silent_is_told_of_and_nothing_waits_to_be_kept_there() {
    let directory = TempDir::new();
    let mut settings = settings(sqlite(&directory).0);
    let (address, heard) = silent_memcached();
    settings.memcached = Some(address.to_string());
    settings.wait_ms = LONG_MS;
    let checked = check(settings.clone(), &[], false, &|_, _| Ok(()));
    let said = checked.wrong.join("\n");
    assert!(said.contains("memcached does not answer"), "{said}");
    heard.lock().expect("nobody broke off").clear();
    let begun = Instant::now();
    run(async {
        let asked = Asked::new(settings);
        assert_eq!(asked.row("a.example").await.from, RowFrom::Source);
        let (error, _) = asked.asker.state().error;
        assert!(error.contains("memcached does not answer"), "{error}");
    });
    // After five seconds it is asked again.
    let has_rested = begun.elapsed() > Duration::from_secs(4);
    let heard = heard.lock().expect("nobody broke off");
    let heard = String::from_utf8_lossy(&heard);
    assert!(has_rested || !heard.contains("set "), "{heard}");
}

/// What an example says of a key, in a comment.
fn said(example: &str, key: &str) -> String {
    let mut lines = example
        .lines()
        .filter_map(|line| line.strip_prefix("--   "));
    let said = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
    said.expect(key).trim_matches('"').to_owned()
}

/// Changes of an example's table are in force, and it is asked as it says.
fn example_works(mut settings: DirectorySettings, example: &str, user: &str, sql: impl Fn(&str)) {
    settings.query = said(example, "query");
    settings.all = Some(said(example, "all"));
    let changes = said(example, "changes");
    settings.changes = Some(match changes.strip_prefix("LISTEN ") {
        Some(channel) => ChangesSettings::Listen(channel.to_owned()),
        None => ChangesSettings::Query(changes),
    });
    sql(example);
    run(async {
        let mut asked = Asked::new(settings.clone());
        if matches!(settings.changes, Some(ChangesSettings::Listen(_))) {
            assert_eq!(asked.changed().await, None, "it listens");
        }
        sql(
            "INSERT INTO domains (host, tenant, upstream) VALUES ('a.example', 'anna', '10.0.0.1:80')",
        );
        assert_eq!(asked.changed().await.as_deref(), Some("a.example"));
        let row = asked.row("a.example").await;
        assert_eq!(
            (row.column("tenant"), row.column("user")),
            (Some("anna"), None)
        );
        assert!(row.column("suspended").is_some(), "{row:?}");
        sql(&format!(
            "UPDATE domains SET host = 'b.example', {user} = 'nobody'"
        ));
        let both = [asked.changed().await, asked.changed().await];
        assert_eq!(
            both,
            [Some("a.example".to_owned()), Some("b.example".to_owned())]
        );
        sql("DELETE FROM domains");
        assert_eq!(asked.changed().await.as_deref(), Some("b.example"));
        assert_eq!(asked.ask("b.example").await, RowAnswer::Missing);
    });
    assert_eq!(
        check(settings, &[], true, &|_, _| Ok(())).wrong,
        Vec::<String>::new()
    );
}

#[test]
fn the_examples_tell_of_every_change() {
    let directory = TempDir::new();
    let path = directory.path().join("rows.db");
    let table = rusqlite::Connection::open(&path).expect("open SQLite");
    let example = include_str!("../../../examples/directories/sqlite.sql");
    let sqlite = settings(SourceSettings::Sqlite(path));
    example_works(sqlite, example, "user", |text| {
        table.execute_batch(text).expect(text);
    });
    if let Some(server) = MariaDb::start(&[]) {
        let example = include_str!("../../../examples/directories/mysql.sql");
        example_works(settings(mariadb(&server)), example, "user", |text| {
            drop(server.sql(text))
        });
    }
    if let Some(server) = Postgres::start(&[]) {
        let example = include_str!("../../../examples/directories/postgres.sql");
        example_works(settings(postgres(&server)), example, "username", |text| {
            drop(server.sql(text))
        });
    }
}
