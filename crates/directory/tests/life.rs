//! Rows' users, and rows that are too old.

use ipc::directory::{RowAnswer, RowFrom, SourceSettings};
use testkit::TempDir;

use crate::asking::{Asked, TABLE, polled, run, settings};

#[test]
fn users_are_looked_up_and_those_of_the_machine_are_refused() {
    let directory = TempDir::new();
    let rows =
        "host,user\nroot.example,root\nnone.example,no-such-user-here\nnobody.example,nobody\n";
    let path = directory.write("rows.csv", rows);
    let mut settings = settings(SourceSettings::Csv(path));
    settings.own_uids = vec![65_534];
    run(async {
        let asked = Asked::new(settings);
        for (host, why) in [
            ("root.example", "uid 0"),
            ("none.example", "none of this machine"),
            ("nobody.example", "the gateway's or a written site's"),
        ] {
            match asked.ask(host).await {
                RowAnswer::Wrong(said) => assert!(said.contains(why), "{host}: {said}"),
                other => panic!("{host}: {other:?}"),
            }
        }
    });
}

#[test]
fn rows_that_are_too_old_serve_no_more_and_forgotten_ones_are_gone() {
    let directory = TempDir::new();
    let path = directory.write("rows.csv", "host,tenant\na.example,anna\n");
    let mut settings = settings(SourceSettings::Csv(path));
    settings.snapshot = Some(directory.path().join("customers"));
    (settings.keep_ms, settings.stale_ms) = (1_000, 0);
    run(async {
        let asked = Asked::new(settings.clone());
        asked.row("a.example").await;
        asked
            .until("a.example", |_| asked.asker.state().rows == 1)
            .await;
        settings.source = SourceSettings::Csv(directory.path().join("gone.csv"));
        let next = Asked::new(settings);
        next.until("a.example", |row| matches!(row, RowAnswer::Down(_)))
            .await;
        next.asker.forget(None).await;
        next.until("a.example", |_| next.asker.state().rows == 0)
            .await;
    });
}

#[test]
fn a_customer_who_was_removed_does_not_come_back_from_the_snapshot_though_nobody_asked_meanwhile() {
    let directory = TempDir::new();
    let path = directory.path().join("rows.db");
    let table = rusqlite::Connection::open(&path).expect("open SQLite");
    let changes = "CREATE TABLE changes (id INTEGER PRIMARY KEY, host TEXT);";
    table
        .execute_batch(&format!("{TABLE}{changes}"))
        .expect("make tables");
    let mut settings = settings(SourceSettings::Sqlite(path));
    settings.snapshot = Some(directory.path().join("customers"));
    settings.changes = polled();
    run(async {
        let mut asked = Asked::new(settings);
        asked
            .until("b.example", |_| asked.asker.state().rows >= 2)
            .await;
        let removed = "DELETE FROM domains WHERE host = 'a.example';
            INSERT INTO changes (host) VALUES ('a.example');";
        table.execute_batch(removed).expect("remove");
        assert_eq!(asked.changed().await.as_deref(), Some("a.example"));
        let before = asked.asker.state().rows;
        asked
            .until("b.example", |_| asked.asker.state().rows < before)
            .await;
        table
            .execute_batch("ALTER TABLE domains RENAME TO elsewhere")
            .expect("rename");
        let gone = asked.ask("a.example").await;
        assert!(matches!(gone, RowAnswer::Down(_)), "{gone:?}");
    });
}

#[test]
fn a_process_that_begins_again_asks_for_nobody_who_was_asked_for_a_moment_ago() {
    let directory = TempDir::new();
    let path = directory.path().join("rows.db");
    let table = rusqlite::Connection::open(&path).expect("open SQLite");
    table.execute_batch(TABLE).expect("make a table");
    let mut settings = settings(SourceSettings::Sqlite(path));
    settings.snapshot = Some(directory.path().join("customers"));
    settings.all = None;
    run(async {
        let asked = Asked::new(settings.clone());
        asked.row("a.example").await;
        asked
            .until("a.example", |_| asked.asker.state().rows == 1)
            .await;
        let change = "UPDATE domains SET tenant = 'else'";
        table.execute_batch(change).expect("change");
        let next = Asked::new(settings);
        let young = next.row("a.example").await;
        assert_eq!(
            (young.from, young.column("tenant")),
            (RowFrom::Snapshot, Some("anna"))
        );
        assert_eq!(next.row("b.example").await.from, RowFrom::Source);
        next.asker.forget(Some("a.example".to_owned())).await;
        let again = next.row("a.example").await;
        assert_eq!(
            (again.from, again.column("tenant")),
            (RowFrom::Source, Some("else"))
        );
    });
}

#[test]
fn a_file_that_ends_with_a_host_in_capitals_fills_the_snapshot() {
    let directory = TempDir::new();
    let path = directory.write("rows.csv", "host,tenant\na.example,anna\nB.Example.,bert\n");
    let mut settings = settings(SourceSettings::Csv(path));
    settings.snapshot = Some(directory.path().join("customers"));
    run(async {
        let asked = Asked::new(settings);
        asked
            .until("none.example", |_| asked.asker.state().rows == 2)
            .await;
        assert_eq!(asked.row("b.example").await.column("tenant"), Some("bert"));
        assert_eq!(asked.asker.state().error.0, "");
    });
}

#[test]
fn a_folder_of_sites_becomes_a_table() {
    let directory = TempDir::new();
    for name in ["a.example", "b.example", "No Host", "log"] {
        std::fs::create_dir(directory.path().join(name)).expect("make a folder");
    }
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../examples/directories/from-folder.sh"
    );
    let output = std::process::Command::new(script)
        .arg(directory.path())
        .output();
    let output = output.expect("run the script");
    assert!(output.status.success(), "{output:?}");
    let path = directory.write("rows.csv", output.stdout);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let settings = settings(SourceSettings::Csv(path));
    let owner = os::user::User::this_process().expect("a user");
    run(async {
        let asked = Asked::new(settings);
        for host in ["a.example", "b.example"] {
            let found = asked.ask(host).await;
            match (owner.uid, &found) {
                (0, RowAnswer::Missing) => assert!(told.contains("its owner is root"), "{told}"),
                (uid, RowAnswer::Row(row)) => assert_eq!(row.uid, Some(uid)),
                _ => panic!("{found:?}"),
            }
        }
    });
}
