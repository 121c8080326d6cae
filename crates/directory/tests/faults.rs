//! What becomes of questions when a source fails.

use std::time::{Duration, Instant};

use ipc::directory::{DirectorySettings, RowAnswer, RowFrom};
use testkit::stores::Store;
use testkit::{MariaDb, Postgres, TempDir, a_postgres};

use crate::asking::{Asked, TABLE, is_row, mariadb, postgres, run, settings};

/// How long a question waits here.
const WAIT: Duration = Duration::from_millis(500);

/// Known rows outlive a source that is killed, hangs, is replaced or has another schema; unknown ones wait
/// for so long and no longer; and all is well when it is back.
fn outlives<K>(
    mut settings: DirectorySettings,
    mut server: Store<K>,
    sql: impl Fn(&Store<K>, &str),
) {
    let directory = TempDir::new();
    settings.snapshot = Some(directory.path().join("customers"));
    settings.wait_ms = WAIT.as_millis() as u64;
    sql(&server, TABLE);
    run(async {
        let asked = Asked::new(settings.clone());
        // The snapshot is filled with rows nobody asked for.
        asked
            .until("b.example", |_| asked.asker.state().rows >= 2)
            .await;
        let from_snapshot =
            |row: &RowAnswer| matches!(row, RowAnswer::Row(row) if row.from == RowFrom::Snapshot);
        let holds = async |what: &str| {
            let begun = Instant::now();
            let known = asked.ask("a.example").await;
            assert!(from_snapshot(&known), "{what}: {known:?}");
            assert!(begun.elapsed() < 2 * WAIT, "{what}: {:?}", begun.elapsed());
            let begun = Instant::now();
            let unknown = asked.ask("z.example").await;
            assert!(matches!(unknown, RowAnswer::Down(_)), "{what}: {unknown:?}");
            assert!(begun.elapsed() < 2 * WAIT, "{what}: {:?}", begun.elapsed());
        };
        server.pause();
        holds("it hangs").await;
        server.resume();
        asked
            .until("a.example", |row| is_row(row) && !from_snapshot(row))
            .await;
        server.stop();
        holds("it is gone").await;
        // Another process begins with what this one has kept.
        let next = Asked::new(settings.clone());
        assert!(from_snapshot(&next.ask("a.example").await));
        assert!(!asked.asker.state().is_up && !asked.asker.state().error.0.is_empty());
        server.restart();
        asked
            .until("a.example", |row| is_row(row) && !from_snapshot(row))
            .await;
        sql(&server, "ALTER TABLE domains RENAME TO elsewhere");
        asked.until("a.example", from_snapshot).await;
        holds("it has another schema").await;
        sql(&server, "ALTER TABLE elsewhere RENAME TO domains");
        sql(
            &server,
            "UPDATE domains SET tenant = 'else' WHERE host = 'a.example'",
        );
        let back = asked
            .until("a.example", |row| is_row(row) && !from_snapshot(row))
            .await;
        assert!(matches!(back, RowAnswer::Row(row) if row.column("tenant") == Some("else")));
        sql(&server, "DELETE FROM domains WHERE host = 'a.example'");
        asked
            .until("a.example", |row| *row == RowAnswer::Missing)
            .await;
    });
}

#[test]
fn rows_outlive_mariadb() {
    if let Some(server) = MariaDb::start(&[]) {
        let settings = settings(mariadb(&server));
        outlives(settings, server, |server, text| drop(server.sql(text)));
    }
}

#[test]
fn rows_outlive_postgres() {
    if let Some(server) = Postgres::start(&[]) {
        let settings = settings(postgres(&server));
        outlives(settings, server, |server, text| drop(server.sql(text)));
    }
}

#[test]
fn a_question_that_the_snapshot_answered_goes_on_and_tells_of_another_row() {
    let Some(server) = a_postgres() else { return };
    server.sql(TABLE);
    let directory = TempDir::new();
    let mut settings = settings(postgres(&server));
    settings.snapshot = Some(directory.path().join("customers"));
    settings.all = None;
    settings.query = "SELECT tenant, pg_sleep((SELECT s FROM slow))::text AS nothing FROM domains WHERE host = $host".into();
    server.sql("CREATE TABLE slow (s float8); INSERT INTO slow VALUES (0)");
    run(async {
        let mut asked = Asked::new(settings);
        asked.row("a.example").await;
        asked
            .until("a.example", |_| asked.asker.state().rows == 1)
            .await;
        server.sql("UPDATE slow SET s = 1.5; UPDATE domains SET tenant = 'else'");
        let begun = Instant::now();
        let early = asked.row("a.example").await;
        assert_eq!(
            (early.from, early.column("tenant")),
            (RowFrom::Snapshot, Some("anna"))
        );
        assert!(
            begun.elapsed() < Duration::from_millis(1_400),
            "{:?}",
            begun.elapsed()
        );
        assert_eq!(asked.changed().await.as_deref(), Some("a.example"));
        server.sql("UPDATE slow SET s = 0");
        assert_eq!(asked.row("a.example").await.column("tenant"), Some("else"));
    });
}
