//! What one small `SELECT` costs its worker, alone and among others: CPU time of the client's
//! thread, the system's part included.
//!
//!     cargo run --release -p script --example mysql_cost -- 2000

use std::env;
use std::fs;
use std::rc::Rc;

use stores::mysql::{Cell, Database, Login};
use stores::{Address, Limits, Session, Stores};
use testkit::MariaDb;

const SQL: &str = "SELECT host FROM domain WHERE domain = ? LIMIT 1";

/// CPU time of this thread so far, as the scheduler counts it.
fn cpu_ns() -> u64 {
    let counted = fs::read_to_string("/proc/thread-self/schedstat").expect("the scheduler counts");
    let first = counted.split_whitespace().next();
    first.and_then(|ns| ns.parse().ok()).expect("a number")
}

/// Asks so many times at once, and waits for all answers.
async fn ask(database: &Rc<Database>, at_once: u64) {
    let asked = (0..at_once).map(|session| {
        let domain = Cell::Bytes(b"site-a.example".to_vec());
        tokio::task::spawn_local(database.execute(Session(session), SQL.into(), vec![domain]))
    });
    for asked in asked.collect::<Vec<_>>() {
        let answer = asked.await.expect("it did not panic").expect("an answer");
        assert_eq!(answer.table.expect("rows").rows.len(), 1);
    }
}

fn main() {
    let rounds = env::args().nth(1).and_then(|text| text.parse().ok());
    let rounds: u64 = rounds.unwrap_or(2_000);
    let mariadb = MariaDb::start(&[]).expect("MariaDB is installed");
    mariadb.sql("CREATE TABLE domain (domain VARCHAR(190) PRIMARY KEY, host VARCHAR(190))");
    mariadb.sql("INSERT INTO domain VALUES ('site-a.example', '127.0.0.1:80')");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(tokio::runtime::LocalOptions::default())
        .expect("a runtime starts");
    runtime.block_on(async {
        let address = mariadb.address();
        let database = Stores::new(Limits::default()).mysql(&Login {
            address: Address::tcp(&address.ip().to_string(), address.port()).expect("an address"),
            user: MariaDb::USER.to_owned(),
            password: MariaDb::PASSWORD.to_owned(),
            database: MariaDb::DATABASE.to_owned(),
            tls: None,
        });
        for at_once in [1, 4, 16, 64] {
            for _ in 0..20 {
                ask(&database, at_once).await;
            }
            let (rounds, before) = (rounds / at_once, cpu_ns());
            for _ in 0..rounds {
                ask(&database, at_once).await;
            }
            let ns = (cpu_ns() - before) / (rounds * at_once).max(1);
            println!("{at_once:3} at once: {ns} ns of CPU each");
        }
    });
}
