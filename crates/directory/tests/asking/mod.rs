//! What the tests ask with.

use std::rc::Rc;
use std::time::{Duration, Instant};

use directory::{Asker, Word};
use ipc::directory::{
    ChangesSettings, DirectorySettings, FromDirectory, Row, RowAnswer, ServerSettings,
    SourceSettings,
};
use testkit::{MariaDb, PATIENCE, Postgres};
use tokio::sync::mpsc;

/// The columns that tables of tests have, and rows of any kind.
pub(crate) const TABLE: &str = "CREATE TABLE domains (host VARCHAR(255), tenant VARCHAR(200), upstream VARCHAR(200), note TEXT);
INSERT INTO domains VALUES
('a.example', 'anna', '10.0.0.1:80', NULL),
('b.example', 'bert', '10.0.0.2:80', 'quotes '' \" ; DROP TABLE domains -- $host ${row.tenant}'),
('c.example', '../x', '10.0.0.3:80', NULL),
('d.example', 'dora', '10.0.0.4:80', NULL),
('d.example', 'dirk', '10.0.0.5:80', NULL);";

/// Settings of a directory on a source.
pub(crate) fn settings(source: SourceSettings) -> DirectorySettings {
    DirectorySettings {
        name: "customers".into(),
        source,
        query: "SELECT tenant, upstream, note FROM domains WHERE host = $host".into(),
        all: Some("SELECT host, tenant, upstream, note FROM domains WHERE host > $after ORDER BY host LIMIT 3".into()),
        columns: Vec::new(),
        changes: None,
        memcached: None,
        trusts_unsigned: false,
        keep_ms: 60_000,
        stale_ms: 86_400_000,
        snapshot: None,
        wait_ms: 5_000,
        uid_min: 1_000,
        own_uids: Vec::new(),
        row_key: ipc::rows::RowKey::default(),
    }
}

pub(crate) fn mariadb(server: &MariaDb) -> SourceSettings {
    SourceSettings::Mysql(ServerSettings {
        host: "127.0.0.1".into(),
        port: Some(server.address().port()),
        user: MariaDb::USER.into(),
        password: Some(MariaDb::PASSWORD.into()),
        database: MariaDb::DATABASE.into(),
        tls: None,
    })
}

pub(crate) fn postgres(server: &Postgres) -> SourceSettings {
    SourceSettings::Postgres(ServerSettings {
        host: "127.0.0.1".into(),
        port: Some(server.address().port()),
        user: Postgres::USER.into(),
        password: Some(Postgres::PASSWORD.into()),
        database: Postgres::DATABASE.into(),
        tls: None,
    })
}

/// Changes by a query.
pub(crate) fn polled() -> Option<ChangesSettings> {
    let query = "SELECT id, host FROM changes WHERE id > $since ORDER BY id LIMIT 100";
    Some(ChangesSettings::Query(query.into()))
}

/// A directory, its words, and the runtime both live in.
pub(crate) struct Asked {
    pub(crate) asker: Rc<Asker>,
    words: mpsc::Receiver<Word>,
}

impl Asked {
    /// Begins what the process would begin.
    pub(crate) fn new(settings: DirectorySettings) -> Asked {
        let (said, words) = mpsc::channel(100);
        let asker = Asker::new(settings, 0, said).expect("a directory that can be asked");
        asker.begin();
        Asked { asker, words }
    }

    pub(crate) async fn ask(&self, host: &str) -> RowAnswer {
        self.asker.ask(host).await.0
    }

    /// The row that a host has.
    pub(crate) async fn row(&self, host: &str) -> Row {
        match self.ask(host).await {
            RowAnswer::Row(row) => row,
            other => panic!("{host}: {other:?}"),
        }
    }

    /// Asks until what is found is what is wanted.
    pub(crate) async fn until(&self, host: &str, wanted: impl Fn(&RowAnswer) -> bool) -> RowAnswer {
        let begun = Instant::now();
        loop {
            let found = self.ask(host).await;
            if wanted(&found) {
                return found;
            }
            assert!(begun.elapsed() < PATIENCE, "{host} has still {found:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The next host that is said to have changed.
    pub(crate) async fn changed(&mut self) -> Option<String> {
        let word = tokio::time::timeout(PATIENCE, self.words.recv()).await;
        match word.expect("a word in time").expect("a word") {
            FromDirectory::Changed { host, .. } => host,
            other => panic!("{other:?}"),
        }
    }
}

/// Runs a test in a runtime as the process has.
pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, test);
}

pub(crate) fn is_row(answer: &RowAnswer) -> bool {
    matches!(answer, RowAnswer::Row(_))
}
