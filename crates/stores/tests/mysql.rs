//! The client of MySQL against a real MariaDB, on a runtime like a worker's.

use std::rc::Rc;
use std::time::Duration;

use crate::worker::{on_a_worker, with};
use stores::mysql::{Cell, Database, Login, Moment, ROWS_MAX, Span, Table};
use stores::{Address, Error, Kind, Limits, Session, Stores};
use testkit::{MariaDb, PATIENCE, a_mariadb, eventually};

const ME: Session = Session(1);
const OTHER: Session = Session(2);

fn limits() -> Limits {
    Limits {
        connect_timeout: Duration::from_secs(30),
        command_timeout: Duration::from_secs(60),
        ..Limits::default()
    }
}

fn login(mariadb: &MariaDb) -> Login {
    let address = mariadb.address();
    Login {
        address: Address::tcp(&address.ip().to_string(), address.port()).expect("an address"),
        user: MariaDb::USER.to_owned(),
        password: MariaDb::PASSWORD.to_owned(),
        database: MariaDb::DATABASE.to_owned(),
        tls: None,
    }
}

fn open(mariadb: &MariaDb) -> Rc<Database> {
    Stores::new(limits()).mysql(&login(mariadb))
}

async fn rows(database: &Rc<Database>, session: Session, sql: &str) -> Result<Table, Error> {
    let answer = database.execute(session, sql.into(), Vec::new()).await?;
    Ok(answer.table.expect("a statement with a result"))
}

async fn one(database: &Rc<Database>, session: Session, sql: &str) -> Cell {
    let table = rows(database, session, sql).await.expect(sql);
    table.rows.into_iter().flatten().next().expect("a value")
}

async fn run(database: &Rc<Database>, session: Session, sql: &str) {
    let answer = database.execute(session, sql.into(), Vec::new()).await;
    assert_eq!(answer.expect(sql).table, None, "{sql}");
}

fn connections(mariadb: &MariaDb) -> String {
    let sql = "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'tester'";
    mariadb.sql(sql).trim().to_owned()
}

fn wait_for_connections(mariadb: &MariaDb, number: &str) {
    eventually(PATIENCE, "connections to be closed", || {
        (connections(mariadb) == number).then_some(())
    });
}

/// The same while the worker goes on, which has to say goodbye to its connections.
async fn wait_for_connections_here(mariadb: &MariaDb, number: &str) {
    let closed = async {
        while connections(mariadb) != number {
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, closed).await;
    assert!(
        waited.is_ok(),
        "{} connections are left",
        connections(mariadb)
    );
}

#[test]
fn values_go_and_come_as_their_types() {
    with(MariaDb::start(&[]), async |mariadb| {
        let database = open(&mariadb);
        run(
            &database,
            ME,
            "CREATE TABLE t (i BIGINT, u BIGINT UNSIGNED, s SMALLINT, f FLOAT, d DOUBLE, \
             v VARBINARY(9), c DECIMAL(5,2), a DATETIME(6), l TIME, y DATE, n INT)",
        )
        .await;
        let sent = vec![
            Cell::Int(i64::MIN),
            Cell::Bytes(u64::MAX.to_string().into_bytes()),
            Cell::Int(-7),
            Cell::Float(0.5),
            Cell::Float(-1e300),
            Cell::Bytes(b"\0\xffa".to_vec()),
            Cell::Bytes(b"-1.50".to_vec()),
            Cell::Bytes(b"2016-07-15 11:12:13.000014".to_vec()),
            Cell::Bytes(b"-100:00:01".to_vec()),
            Cell::Bytes(b"2016-07-15".to_vec()),
            Cell::Nil,
        ];
        let insert = format!("INSERT INTO t VALUES ({})", ["?"; 11].join(","));
        let answer = database
            .execute(ME, insert.into(), sent.clone())
            .await
            .expect("stored");
        assert_eq!((answer.affected, answer.table), (1, None));
        let table = rows(&database, ME, "SELECT * FROM t").await.expect("rows");
        assert_eq!(
            *table.fields,
            ["i", "u", "s", "f", "d", "v", "c", "a", "l", "y", "n"]
        );
        let mut expected = sent;
        let moment = Moment {
            year: 2016,
            month: 7,
            day: 15,
            ..Moment::default()
        };
        expected[7] = Cell::Time(Moment {
            hour: 11,
            minute: 12,
            second: 13,
            micros: 14,
            ..moment
        });
        expected[8] = Cell::Span(Span {
            negative: true,
            seconds: 360_001,
            micros: 0,
        });
        expected[9] = Cell::Time(moment);
        assert_eq!(table.rows, [expected]);
    });
}

#[test]
fn what_was_changed_and_which_number_was_given_is_told() {
    with(MariaDb::start(&[]), async |mariadb| {
        let mut by_socket = login(&mariadb);
        by_socket.address = Address::unix(mariadb.socket());
        let database = Stores::new(limits()).mysql(&by_socket);
        let table = "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT)";
        run(&database, ME, table).await;
        let insert = "INSERT INTO t (v) VALUES (1), (2), (3)";
        let answer = database
            .execute(ME, insert.into(), Vec::new())
            .await
            .expect("stored");
        assert_eq!((answer.affected, answer.last_insert_id), (3, 1));
        let update = database.execute(ME, "UPDATE t SET v = v + ?".into(), vec![Cell::Int(1)]);
        assert_eq!(update.await.expect("changed").affected, 3);
        let none = rows(&database, ME, "SELECT v FROM t WHERE id > 100")
            .await
            .expect("rows");
        assert_eq!((none.fields.len(), none.rows.len()), (1, 0));
    });
}

#[test]
fn a_wrong_login_a_wrong_statement_and_wrong_values_are_told_apart() {
    with(MariaDb::start(&[]), async |mariadb| {
        let mut wrong = login(&mariadb);
        wrong.password = "guess".to_owned();
        let database = Stores::new(limits()).mysql(&wrong);
        let error = database.connect().await.expect_err("a wrong password");
        assert_eq!(
            (error.kind(), error.code()),
            (Kind::Connect, Some(1045)),
            "{error}"
        );
        let begin = format!(
            "connect to MySQL {}: ERROR 1045 (28000): ",
            mariadb.address()
        );
        assert!(error.to_string().starts_with(&begin), "{error}");
        assert!(!error.to_string().contains("guess"), "{error}");

        let database = open(&mariadb);
        let error = rows(&database, ME, "SELEKT 1").await.expect_err("no SQL");
        assert_eq!(
            (error.kind(), error.code()),
            (Kind::Statement, Some(1064)),
            "{error}"
        );
        let mismatch = database.execute(ME, "SELECT ?".into(), Vec::new()).await;
        let error = mismatch.expect_err("a value too few");
        assert_eq!(error.kind(), Kind::Argument, "{error}");
        assert!(
            error.to_string().ends_with("takes 1 values and got 0"),
            "{error}"
        );
        assert_eq!(one(&database, ME, "SELECT 1").await, Cell::Int(1));
        assert_eq!(
            connections(&mariadb),
            "1",
            "errors of a statement keep the connection"
        );
        database.close();
        let error = rows(&database, ME, "SELECT 1").await.expect_err("closed");
        assert_eq!(error.kind(), Kind::Closed);
    });
}

#[test]
fn a_transaction_keeps_its_connection_until_it_or_its_request_ends() {
    with(MariaDb::start(&[]), async |mariadb| {
        let stores = Stores::new(limits());
        let database = stores.mysql(&login(&mariadb));
        let count = "SELECT COUNT(*) FROM t";
        run(&database, ME, "CREATE TABLE t (v INT) ENGINE=InnoDB").await;
        database.transaction(ME).await.expect("begun");
        run(&database, ME, "INSERT INTO t VALUES (1)").await;
        assert_eq!(one(&database, ME, count).await, Cell::Int(1));
        assert_eq!(one(&database, OTHER, count).await, Cell::Int(0));
        database.commit(ME).await.expect("lasting");
        assert_eq!(one(&database, OTHER, count).await, Cell::Int(1));

        run(&database, ME, "BEGIN").await;
        run(&database, ME, "DELETE FROM t").await;
        assert_eq!(one(&database, OTHER, count).await, Cell::Int(1));
        database.rollback(ME).await.expect("undone");
        assert_eq!(one(&database, ME, count).await, Cell::Int(1));

        database.transaction(ME).await.expect("begun");
        run(&database, ME, "DELETE FROM t").await;
        stores.end(ME);
        wait_for_connections_here(&mariadb, "1").await;
        database.commit(ME).await.expect("nothing to do");
        assert_eq!(one(&database, ME, count).await, Cell::Int(1));
    });
}

#[test]
fn without_autocommit_a_connection_is_its_requests_until_that_ends() {
    with(MariaDb::start(&[]), async |mariadb| {
        let stores = Stores::new(limits());
        let database = stores.mysql(&login(&mariadb));
        run(&database, ME, "SET autocommit = 0").await;
        run(&database, ME, "SET @mine = 7").await;
        database.commit(ME).await.expect("lasting");
        assert_eq!(one(&database, ME, "SELECT @mine").await, Cell::Int(7));
        assert_eq!(one(&database, OTHER, "SELECT @mine").await, Cell::Nil);
        stores.end(ME);
        assert_eq!(one(&database, ME, "SELECT @mine").await, Cell::Nil);
        assert_eq!(
            one(&database, ME, "SELECT @@autocommit").await,
            Cell::Int(1)
        );
    });
}

#[test]
fn a_transaction_lost_with_its_server_is_told_until_it_is_rolled_back() {
    with(MariaDb::start(&[]), async |mut mariadb| {
        let database = open(&mariadb);
        database.transaction(ME).await.expect("begun");
        assert_eq!(one(&database, ME, "SELECT 1").await, Cell::Int(1));
        mariadb.restart();
        for _ in 0..2 {
            let error = rows(&database, ME, "SELECT 1").await.expect_err("lost");
            assert_eq!(error.kind(), Kind::Lost, "{error}");
        }
        database.rollback(ME).await.expect("nothing is left of it");
        assert_eq!(one(&database, ME, "SELECT 1").await, Cell::Int(1));
    });
}

#[test]
fn a_restarted_server_raises_once_and_the_next_call_reconnects() {
    with(MariaDb::start(&[]), async |mut mariadb| {
        let database = open(&mariadb);
        let asked = (0..4).map(|_| database.execute(ME, "SELECT SLEEP(0.2)".into(), Vec::new()));
        let tasks: Vec<_> = asked.map(tokio::task::spawn_local).collect();
        for task in tasks {
            task.await.expect("no panic").expect("an answer");
        }
        mariadb.stop();
        let error = rows(&database, ME, "SELECT 1").await.expect_err("lost");
        assert_eq!(error.kind(), Kind::Lost, "{error}");
        let error = rows(&database, ME, "SELECT 1").await.expect_err("refused");
        assert_eq!(error.kind(), Kind::Connect, "{error}");
        let text = format!("connect to MySQL {}: refused", mariadb.address());
        assert_eq!(error.to_string(), text);
        mariadb.restart();
        assert_eq!(one(&database, ME, "SELECT 1").await, Cell::Int(1));
    });
}

#[test]
fn a_statement_that_takes_too_long_leaves_no_answer_to_the_next() {
    with(MariaDb::start(&[]), async |mariadb| {
        let limits = Limits {
            command_timeout: Duration::from_secs(2),
            ..limits()
        };
        let database = Stores::new(limits).mysql(&login(&mariadb));
        database.connect().await.expect("connected");
        let error = rows(&database, ME, "SELECT SLEEP(300)")
            .await
            .expect_err("too long");
        assert_eq!(error.kind(), Kind::Timeout, "{error}");
        let place = format!(
            "execute at MySQL {}: no answer within 2 s",
            mariadb.address()
        );
        assert!(error.to_string().starts_with(&place), "{error}");
        assert_eq!(one(&database, ME, "SELECT 7").await, Cell::Int(7));
    });
}

#[test]
fn a_result_beyond_the_caps_is_refused_and_its_connection_closed() {
    with(MariaDb::start(&[]), async |mariadb| {
        let database = open(&mariadb);
        let exactly = format!("SELECT seq FROM seq_1_to_{ROWS_MAX}");
        let table = rows(&database, ME, &exactly).await.expect("rows");
        assert_eq!(table.rows.len(), ROWS_MAX);
        let sqls = [
            "SELECT seq FROM seq_1_to_100000000",
            "SELECT REPEAT('a', 1000000) FROM seq_1_to_100000000",
            "SELECT REPEAT('a', 16000000)",
        ];
        for sql in sqls {
            let error = rows(&database, ME, sql).await.expect_err("too much");
            assert_eq!(error.kind(), Kind::TooLarge, "{error}");
        }
        assert_eq!(one(&database, ME, "SELECT 1").await, Cell::Int(1));
        wait_for_connections_here(&mariadb, "1").await;
    });
}

#[test]
fn many_at_once_share_the_connections_and_all_close_with_the_worker() {
    let Some(mariadb) = a_mariadb() else { return };
    on_a_worker(async {
        let limits = Limits {
            connections_max: 4,
            ..limits()
        };
        let database = Stores::new(limits).mysql(&login(&mariadb));
        let ask = |number| database.execute(ME, "SELECT ?".into(), vec![Cell::Int(number)]);
        let tasks: Vec<_> = (0..100).map(ask).map(tokio::task::spawn_local).collect();
        for (task, number) in tasks.into_iter().zip(0..) {
            let answer = task.await.expect("no panic").expect("an answer");
            assert_eq!(answer.table.expect("rows").rows, [[Cell::Int(number)]]);
        }
        assert_eq!(connections(&mariadb), "4");
    });
    wait_for_connections(&mariadb, "0");
}

#[test]
fn small_selects_go_over_few_connections_together_and_each_gets_its_own_answer() {
    with(MariaDb::start(&[]), async |mariadb| {
        let database = Stores::new(limits()).mysql(&login(&mariadb));
        let setter = Stores::new(limits()).mysql(&login(&mariadb));
        run(&setter, ME, "CREATE TABLE t (i INT PRIMARY KEY, v TEXT)").await;
        let fill = "INSERT INTO t SELECT seq, REPEAT(seq, 40) FROM seq_1_to_500";
        run(&setter, ME, fill).await;
        let ask = |number: i64| {
            let sql = "SELECT i, v FROM t WHERE i = ?".into();
            database.execute(ME, sql, vec![Cell::Int(number)])
        };
        for number in 1..=50 {
            ask(number).await.expect("an answer");
        }
        let tasks: Vec<_> = (1..=500).map(ask).map(tokio::task::spawn_local).collect();
        for (task, number) in tasks.into_iter().zip(1..) {
            let answer = task.await.expect("no panic").expect("an answer");
            let value = Cell::Bytes(number.to_string().repeat(40).into_bytes());
            let rows = answer.table.expect("rows").rows;
            assert_eq!(rows, [[Cell::Int(number), value]]);
        }
        run(
            &setter,
            ME,
            "ALTER TABLE t DROP COLUMN v, ADD w INT DEFAULT 7",
        )
        .await;
        let error = ask(1).await.expect_err("no such column");
        assert_eq!((error.kind(), error.code()), (Kind::Statement, Some(1054)));
    });
}

#[test]
fn selects_that_wait_for_a_lock_hold_up_none_behind_them() {
    with(MariaDb::start(&[]), async |mariadb| {
        let database = Stores::new(limits()).mysql(&login(&mariadb));
        let locker = Stores::new(limits()).mysql(&login(&mariadb));
        run(&locker, ME, "CREATE TABLE t (i INT)").await;
        run(&locker, ME, "CREATE TABLE u (i INT)").await;
        let ask = |table: &str| {
            let sql = format!("SELECT i FROM {table}");
            database.execute(ME, sql.into(), Vec::new())
        };
        for _ in 0..20 {
            ask("t").await.expect("an answer");
            ask("u").await.expect("an answer");
        }
        run(&locker, ME, "SET autocommit = 0").await;
        run(&locker, ME, "LOCK TABLES t WRITE").await;
        let (mut locked, mut free) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            locked.push(tokio::task::spawn_local(ask("t")));
            free.extend((0..3).map(|_| tokio::task::spawn_local(ask("u"))));
        }
        for free in free {
            free.await.expect("no panic").expect("an answer");
        }
        assert!(!locked.iter().any(|locked| locked.is_finished()));
        run(&locker, ME, "UNLOCK TABLES").await;
        for locked in locked {
            locked.await.expect("no panic").expect("an answer");
        }
    });
}

#[test]
fn a_statement_whose_columns_change_gives_them_as_they_are() {
    with(MariaDb::start(&[]), async |mariadb| {
        let database = open(&mariadb);
        run(&database, ME, "CREATE TABLE t (a INT)").await;
        run(&database, ME, "INSERT INTO t VALUES (1)").await;
        let all = || rows(&database, ME, "SELECT * FROM t");
        for _ in 0..3 {
            assert_eq!(*all().await.expect("rows").fields, ["a"]);
        }
        run(&database, ME, "ALTER TABLE t ADD b VARCHAR(9) DEFAULT 'x'").await;
        let table = all().await.expect("rows");
        assert_eq!(*table.fields, ["a", "b"]);
        let row = vec![Cell::Int(1), Cell::Bytes(b"x".to_vec())];
        assert_eq!(table.rows, [row]);
    });
}

#[test]
fn a_name_is_looked_up_and_an_unprepared_statement_still_runs() {
    with(MariaDb::start(&[]), async |mariadb| {
        let mut by_name = login(&mariadb);
        by_name.address = Address::tcp("localhost", mariadb.address().port()).expect("a name");
        let database = Stores::new(limits()).mysql(&by_name);
        assert_eq!(
            one(&database, ME, "SELECT DATABASE()").await,
            Cell::Bytes(b"test".to_vec())
        );
        let create = "CREATE PROCEDURE p() BEGIN SELECT 1 AS a; SELECT 2 AS b; END";
        run(&database, ME, create).await;
        assert_eq!(one(&database, ME, "CALL p()").await, Cell::Int(1));
        assert_eq!(one(&database, ME, "SELECT 3").await, Cell::Int(3));
    });
}

#[test]
fn whoever_finds_all_connections_in_transactions_waits_and_is_told() {
    with(MariaDb::start(&[]), async |mariadb| {
        let limits = Limits {
            command_timeout: Duration::from_secs(3),
            connections_max: 2,
            ..limits()
        };
        let stores = Stores::new(limits);
        let database = stores.mysql(&login(&mariadb));
        for session in [ME, OTHER] {
            database.transaction(session).await.expect("begun");
        }
        let third = Session(3);
        let error = rows(&database, third, "SELECT 1")
            .await
            .expect_err("no place");
        assert_eq!(error.kind(), Kind::Waited, "{error}");
        let text = format!(
            "waited 3 s for one of 2 connections to MySQL {}: raise scripts.store_connections",
            mariadb.address()
        );
        assert_eq!(error.to_string(), text);
        stores.end(OTHER);
        assert_eq!(one(&database, third, "SELECT 1").await, Cell::Int(1));
    });
}

#[test]
fn as_many_statements_wait_in_the_server_at_once_as_there_may_be_connections() {
    with(
        MariaDb::start(&["--max-connections=300"]),
        async |mariadb| {
            let limits = Limits {
                connections_max: 201,
                ..limits()
            };
            let database = Stores::new(limits).mysql(&login(&mariadb));
            run(&database, ME, "CREATE TABLE t (v INT) ENGINE=InnoDB").await;
            run(&database, ME, "INSERT INTO t VALUES (7)").await;
            database.transaction(ME).await.expect("begun");
            run(&database, ME, "UPDATE t SET v = 8").await;
            let read = "SELECT v FROM t LOCK IN SHARE MODE";
            let ask = |_| database.execute(OTHER, read.into(), Vec::new());
            let tasks: Vec<_> = (0..200).map(ask).map(tokio::task::spawn_local).collect();
            wait_for_connections_here(&mariadb, "201").await;
            database.commit(ME).await.expect("lasting");
            for task in tasks {
                let answer = task.await.expect("no panic").expect("an answer");
                assert_eq!(answer.table.expect("rows").rows, [[Cell::Int(8)]]);
            }
        },
    );
}

/// What one object does, what another asks then, and what it must be told.
const TRACES: [(&str, &str, Cell); 8] = [
    ("SET @a = 1", "SELECT @a", Cell::Nil),
    (
        "DO GET_LOCK('l', 0)",
        "SELECT IS_FREE_LOCK('l')",
        Cell::Int(1),
    ),
    (
        "SET NAMES latin1",
        "SELECT @@character_set_client = 'utf8mb4'",
        Cell::Int(1),
    ),
    (
        "SET SESSION sql_mode = 'ANSI_QUOTES'",
        "SELECT @@sql_mode = @@global.sql_mode",
        Cell::Int(1),
    ),
    (
        "INSERT INTO counted VALUES (NULL)",
        "SELECT LAST_INSERT_ID()",
        Cell::Int(0),
    ),
    (
        "USE information_schema",
        "SELECT DATABASE() = 'test'",
        Cell::Int(1),
    ),
    // Under the lock the other table could not be read.
    (
        "LOCK TABLES counted READ",
        "SELECT COUNT(*) FROM other",
        Cell::Int(0),
    ),
    ("SET autocommit = 0", "SELECT @@autocommit", Cell::Int(1)),
];

#[test]
fn what_one_object_leaves_in_its_session_no_other_object_finds() {
    with(MariaDb::start(&[]), async |mariadb| {
        let stores = Stores::new(limits());
        let first = stores.mysql(&login(&mariadb));
        run(
            &first,
            ME,
            "CREATE TABLE counted (i INT AUTO_INCREMENT PRIMARY KEY)",
        )
        .await;
        run(&first, ME, "CREATE TABLE other (i INT)").await;
        for (done, asked, told) in TRACES {
            let one_request = stores.mysql(&login(&mariadb));
            run(&one_request, ME, done).await;
            one_request.close();
            stores.end(ME);
            let another = stores.mysql(&login(&mariadb));
            assert_eq!(one(&another, OTHER, asked).await, told, "{done}");
        }
        let temporary = stores.mysql(&login(&mariadb));
        run(&temporary, ME, "CREATE TEMPORARY TABLE kept (i INT)").await;
        drop(temporary);
        let error = rows(&first, OTHER, "SELECT i FROM kept").await;
        assert_eq!(error.expect_err("no such table").code(), Some(1146));
        first.transaction(ME).await.expect("begun");
        run(&first, ME, "INSERT INTO other VALUES (1)").await;
        first.close();
        let another = stores.mysql(&login(&mariadb));
        assert_eq!(one(&another, OTHER, TRACES[6].1).await, Cell::Int(0));
        wait_for_connections_here(&mariadb, "1").await;
    });
}

#[test]
fn objects_made_for_each_request_share_a_connection_and_its_statements() {
    with(MariaDb::start(&[]), async |mariadb| {
        let prepared = || {
            let row = mariadb.sql("SHOW GLOBAL STATUS LIKE 'Com_stmt_prepare'");
            let count = row.split_whitespace().next_back();
            count
                .and_then(|count| count.parse::<u64>().ok())
                .expect("a number")
        };
        let stores = Stores::new(limits());
        run(
            &stores.mysql(&login(&mariadb)),
            ME,
            "CREATE TABLE t (i INT)",
        )
        .await;
        let before = prepared();
        for _ in 0..10 {
            let database = stores.mysql(&login(&mariadb));
            database.connect().await.expect("connected");
            let table = rows(&database, ME, "SELECT i FROM t WHERE i = 7").await;
            assert_eq!(table.expect("an answer").rows.len(), 0);
            database.close();
        }
        assert_eq!(prepared() - before, 1);
        assert_eq!(connections(&mariadb), "1");
        let mut other = login(&mariadb);
        other.database = String::new();
        let other = stores.mysql(&other);
        let chosen = one(&other, ME, "SELECT DATABASE()").await;
        assert_eq!((chosen, connections(&mariadb).as_str()), (Cell::Nil, "2"));
    });
}
