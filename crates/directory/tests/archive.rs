//! The archive in a real PostgreSQL.

use directory::Archive;
use ipc::archive::{
    ArchiveRows, ArchiveSaid, ArchiveSettings, ArchivedIncident, ArchivedSample, ArchivedSite,
    SITE_NUMBERS,
};
use ipc::directory::SourceSettings;
use testkit::{PATIENCE, Postgres, a_postgres, eventually};

use crate::asking::{postgres, run};

pub(crate) fn archive(server: &Postgres, machine: &str) -> Archive {
    let SourceSettings::Postgres(server) = postgres(server) else {
        unreachable!("it is one");
    };
    let machine = machine.to_owned();
    Archive::new(ArchiveSettings { server, machine }).expect("an archive")
}

/// Now, in whole minutes: what is old goes.
pub(crate) fn now_s() -> i64 {
    let since = std::time::UNIX_EPOCH.elapsed().expect("a clock");
    i64::try_from(since.as_secs()).expect("a time") / 60 * 60
}

/// So many minutes until this one.
pub(crate) fn rows(now_s: i64, minutes: i64, count: i64) -> ArchiveRows {
    let at = |minute: i64| now_s - 60 * minute;
    ArchiveRows {
        samples: (0..minutes)
            .map(|minute| ArchivedSample {
                name: "load1".into(),
                at_s: at(minute),
                sums: [1.0, count as f64, 0.5, 2.0],
            })
            .collect(),
        sites: (0..minutes)
            .map(|minute| ArchivedSite {
                site: "a.example".into(),
                at_s: at(minute),
                numbers: [count; SITE_NUMBERS],
                durations: vec![1, 2, 3],
            })
            .collect(),
        incidents: vec![ArchivedIncident {
            at_s: at(0),
            kind: 1,
            what: "tenant a/few".into(),
            times: count,
            content: "{}".into(),
            owners: vec!["tenant a".into(), "site a.example".into()],
        }],
    }
}

#[test]
fn what_three_machines_send_at_once_and_twice_stands_there_once() {
    let Some(server) = a_postgres() else { return };
    let begun = now_s();
    std::thread::scope(|scope| {
        for machine in ["web1", "web2", "web3"] {
            let server = &server;
            // All find no tables.
            scope.spawn(move || {
                run(async {
                    for count in [1, 2] {
                        let archive = archive(server, machine);
                        let said = archive.write(&rows(begun, 100, count)).await;
                        assert_eq!(said, ArchiveSaid::Written, "{machine}");
                    }
                });
            });
        }
    });
    let found = |sql: &str| server.sql(sql);
    assert_eq!(
        found("SELECT count(*), sum(sum) FROM nagaya_samples"),
        "300|600"
    );
    let sql = "SELECT count(DISTINCT machine), sum(requests), sum(handshakes), sum(length(durations)) FROM nagaya_sites";
    assert_eq!(found(sql), "3|600|600|900");
    let sql = "SELECT count(*), sum(times) FROM nagaya_incidents";
    assert_eq!(found(sql), "3|6");
    let sql = "SELECT count(*), min(until) = max(until) FROM nagaya_machines";
    assert_eq!(found(sql), "3|t");
}

#[test]
fn wrong_rows_are_refused_whole_and_old_ones_go() {
    let Some(server) = a_postgres() else { return };
    run(async {
        let archive = archive(&server, "web1");
        let mut wrong = rows(now_s(), 2, 1);
        wrong.incidents[0].content = "\0".into();
        let said = archive.write(&wrong).await;
        assert!(matches!(said, ArchiveSaid::Refused(_)), "{said:?}");
        let mut old = rows(now_s(), 1, 1);
        old.samples[0].at_s -= 40 * 86_400;
        assert_eq!(archive.write(&old).await, ArchiveSaid::Written);
    });
    let left =
        server.sql("SELECT (SELECT count(*) FROM nagaya_samples), count(*) FROM nagaya_sites");
    assert_eq!(left, "0|1");
}

#[test]
fn tables_of_another_version_are_refused_with_words_and_a_user_needs_no_right_to_make_them() {
    let Some(server) = a_postgres() else { return };
    let write = |machine: &str| {
        let mut said = ArchiveSaid::Written;
        run(async { said = archive(&server, machine).write(&rows(now_s(), 1, 1)).await });
        said
    };
    assert_eq!(write("web1"), ArchiveSaid::Written);
    server.sql("UPDATE nagaya_archive SET format = 3");
    let said = write("web1");
    let is_said = |why: &String| why.contains("format 3") && why.contains("knows 2");
    assert!(
        matches!(&said, ArchiveSaid::Down(why) if is_said(why)),
        "{said:?}"
    );
    server.sql(
        "UPDATE nagaya_archive SET format = 2; CREATE USER few PASSWORD 'secret'; \
        REVOKE CREATE ON SCHEMA public FROM public; GRANT SELECT ON nagaya_archive TO few; \
        GRANT SELECT, INSERT, UPDATE, DELETE ON nagaya_machines, nagaya_samples, nagaya_sites, nagaya_incidents TO few",
    );
    let SourceSettings::Postgres(mut settings) = postgres(&server) else {
        unreachable!("it is one");
    };
    settings.user = "few".into();
    let machine = "web2".to_owned();
    let server = settings;
    let archive = Archive::new(ArchiveSettings { server, machine }).expect("an archive");
    run(async {
        assert_eq!(
            archive.write(&rows(now_s(), 1, 1)).await,
            ArchiveSaid::Written
        )
    });
}

#[test]
fn a_database_that_goes_and_comes_back_takes_what_is_sent_then() {
    let Some(mut server) = a_postgres() else {
        return;
    };
    run(async {
        let archive = archive(&server, "web1");
        assert_eq!(
            archive.write(&rows(now_s(), 1, 1)).await,
            ArchiveSaid::Written
        );
        server.stop();
        let said = archive.write(&rows(now_s(), 1, 2)).await;
        let is_told = |why: &str| why.starts_with("PostgreSQL at ");
        assert!(
            matches!(&said, ArchiveSaid::Down(why) if is_told(why)),
            "{said:?}"
        );
        server.restart();
        assert_eq!(
            archive.write(&rows(now_s(), 1, 2)).await,
            ArchiveSaid::Written
        );
    });
}

#[test]
fn where_a_table_is_locked_nothing_piles_up_and_what_is_refused_keeps_the_connection() {
    let Some(server) = a_postgres() else { return };
    let ours =
        || server.sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'nagaya'");
    let write = |archive: &Archive, rows: &ArchiveRows| {
        let mut said = ArchiveSaid::Written;
        run(async { said = archive.write(rows).await });
        said
    };
    let first = archive(&server, "web1");
    assert_eq!(write(&first, &rows(now_s(), 1, 1)), ArchiveSaid::Written);
    drop(first);
    std::thread::scope(|scope| {
        // It keeps the lock until it is cancelled.
        scope.spawn(|| {
            server.sql(
                "DO $$ BEGIN LOCK TABLE nagaya_samples; PERFORM pg_sleep(300); \
                EXCEPTION WHEN query_canceled THEN NULL; END $$",
            )
        });
        let holder = "FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        eventually(PATIENCE, "the table to be locked", || {
            (server.sql(&format!("SELECT count(*) {holder}")) == "1").then_some(())
        });
        let said = write(&archive(&server, "web1"), &rows(now_s(), 1, 2));
        eventually(PATIENCE, "nobody of ours to wait there", || {
            (ours() == "0").then_some(())
        });
        server.sql(&format!("SELECT pg_cancel_backend(pid) {holder}"));
        assert!(matches!(said, ArchiveSaid::Down(_)), "{said:?}");
    });
    run(async {
        let archive = archive(&server, "web1");
        let rows = rows(now_s(), 1, 2);
        assert_eq!(archive.write(&rows).await, ArchiveSaid::Written);
        let pid = "SELECT pid FROM pg_stat_activity WHERE application_name = 'nagaya'";
        let before = server.sql(pid);
        let mut wrong = rows.clone();
        wrong.incidents[0].content = "\0".into();
        let said = archive.write(&wrong).await;
        assert!(matches!(said, ArchiveSaid::Refused(_)), "{said:?}");
        assert_eq!(archive.write(&rows).await, ArchiveSaid::Written);
        assert_eq!(server.sql(pid), before);
    });
}
