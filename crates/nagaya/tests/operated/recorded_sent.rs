//! Minutes of three machines in one PostgreSQL: every one once, whoever is killed and whatever is away.

use std::process::Command;

use jiff::Timestamp;
use rustix::process::Signal;
use serde_json::Value;
use testkit::client::Reply;
use testkit::{Gateway, Postgres, a_postgres, eventually, processes};

use super::recorded::{PATIENCE, figures, metric, signal};

const NAGAYA: &str = env!("CARGO_BIN_EXE_nagaya");
/// Minutes of each log.
const MINUTES: i64 = 60;
/// No store is asked: the table names the machine.
const CONFIG: &str = r#"
workers = 1
[fleet]
store = "redis://127.0.0.1:1"
machine = "{machine}"
[recorder]
directory = "{dir}/figures"
send = "postgres://tester@127.0.0.1:{database}/postgres?password_file={dir}/password"
[control]
socket = "{dir}/control"
[[sites]]
hosts = ["m.example"]
record = false
rules = [{ handler = { metrics = "prometheus" } }]
[[sites]]
hosts = ["console.example"]
record = false
rules = [{ allow = ["127.0.0.1"], handler = { console = true } }]
"#;

fn start(database: &Postgres, machine: &str) -> Gateway {
    let builder = Gateway::with_config(NAGAYA, CONFIG)
        .with("machine", machine)
        .with("database", database.address().port());
    builder.directory().write("password", Postgres::PASSWORD);
    let gateway = builder.start();
    // What is imported is marked from then on.
    await_status(&gateway, "has sent nothing yet");
    gateway
}

fn await_status(gateway: &Gateway, expected: &str) {
    eventually(PATIENCE, expected, || {
        let status = crate::fixtures::limited::ask(gateway, "status");
        status.contains(expected).then_some(())
    });
}

/// Reads a log of an hour into the figures: so many requests each minute.
fn import(gateway: &Gateway, (begin_s, name, requests): (i64, &str, i64)) {
    let lines = (0..MINUTES * requests).map(|number| {
        let at_s = begin_s + 60 * (number / requests) + number % requests;
        let at = Timestamp::from_second(at_s).unwrap();
        let at = at.strftime("%d/%b/%Y:%H:%M:%S +0000");
        format!("192.0.2.1 - - [{at}] \"GET /{name} HTTP/1.1\" 200 10 \"-\" \"curl/8\"\n")
    });
    let log = gateway.directory().write(name, lines.collect::<String>());
    let mut command = Command::new(NAGAYA);
    command.args(["recorder", "import", "--site", "a.example"]);
    command.arg("--directory").arg(figures(gateway)).arg(log);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Waits for what each machine's minutes come to: how many there are, and their requests.
fn await_minutes(database: &Postgres, expected: &str) {
    let sql = "SELECT machine, count(*), sum(requests), sum(bytes), sum(status_2xx) FROM nagaya_sites \
        WHERE site = 'a.example' GROUP BY machine ORDER BY machine";
    eventually(PATIENCE, expected, || {
        // Whoever sends first makes the tables.
        let are_there = database.sql("SELECT to_regclass('nagaya_sites') IS NOT NULL");
        if are_there != "t" {
            return None;
        }
        let found = database.sql(sql).replace('\n', " ");
        (found == expected).then_some(())
    });
}

/// Forgets a site on a machine, and then by what that says in the database, too.
fn forget(database: &Postgres, gateway: &Gateway) {
    let mut command = Command::new(NAGAYA);
    command.args(["recorder", "forget", "a.example", "--directory"]);
    let output = command.arg(figures(gateway)).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let (_, statements) = said.split_once('\n').unwrap();
    assert!(said.starts_with("a.example is forgotten on this machine"));
    database.sql(statements);
    let left = database.sql("SELECT count(*) FROM nagaya_sites");
    assert_eq!(left, "0", "{statements}");
}

/// A page of a machine's console.
fn seen(gateway: &Gateway, page: &str) -> Reply {
    gateway.get("console.example", &format!("/{page}"))
}

/// Requests that a list has of the site, once it has so many.
fn await_requests(gateway: &Gateway, page: &str, expected: u64) {
    eventually(PATIENCE, page, || {
        let told = seen(gateway, page);
        let told: Value = serde_json::from_str(&told.text()).ok()?;
        let rows = told["rows"].as_array()?;
        let requests: Option<u64> = rows.iter().map(|row| row[1].as_u64()).sum();
        (requests == Some(expected)).then_some(())
    });
}

/// Machines have 300, 120 and 180 requests.
fn each_console_shows_one_or_all(gateways: &[Gateway; 3], database: &mut Postgres) {
    let load = |machine: &str| format!("load?format=json&list=sites&filter=a.example{machine}");
    for (gateway, own) in gateways.iter().zip([300, 120, 180]) {
        let of_all = [("", own), ("&machine=*", 600)];
        let of_each = [("web1", 300), ("web2", 120), ("web3", 180)];
        let of_each = of_each.map(|(name, sum)| (format!("&machine={name}"), sum));
        let of_all = of_all.map(|(machine, sum)| (machine.to_owned(), sum));
        for (machine, requests) in of_all.into_iter().chain(of_each) {
            await_requests(gateway, &load(&machine), requests);
        }
        let alone = seen(gateway, "site/a.example/visits?machine=web2");
        assert!(alone.text().contains("kept by each machine alone"));
        eventually(PATIENCE, "no such machine", || {
            let unknown = seen(gateway, "load?machine=web4");
            (unknown.status == 404).then_some(())
        });
    }
    database.stop();
    let [first, ..] = gateways;
    eventually(PATIENCE, "one that is away", || {
        let away = seen(first, "load?machine=*");
        assert_eq!(away.status, 503, "{}", away.text());
        let why = "that machines send figures to cannot be read: ";
        // Or that it takes too long, where this machine stands still.
        away.text().contains(why).then_some(())
    });
    await_requests(first, &load(""), 300);
    database.restart();
    await_requests(first, &load("&machine=*"), 600);
}

#[test]
fn every_minute_of_three_machines_stands_there_once() {
    let Some(mut database) = a_postgres() else {
        return;
    };
    let machines = ["web1", "web2", "web3"];
    let gateways = machines.map(|machine| start(&database, machine));
    let now_s = Timestamp::now().as_second();
    let begin_s = now_s - now_s.rem_euclid(60) - 2 * 3_600;
    let [first, second, third] = &gateways;
    import(first, (begin_s, "first", 1));
    signal(first.child_called("recorder"), Signal::KILL);
    database.stop();
    import(second, (begin_s, "second", 2));
    import(third, (begin_s, "third", 3));
    await_status(second, "cannot send (PostgreSQL at ");
    assert_eq!(metric(second, "recorder_send_up"), 0.0);
    for name in ["recorder", "directory"] {
        let pid = second.child_called(name);
        signal(pid, Signal::KILL);
        processes::await_ended(pid);
    }
    database.restart();
    await_minutes(
        &database,
        "web1|60|60|600|60 web2|60|120|1200|120 web3|60|180|1800|180",
    );
    // What comes late is of the same minutes.
    import(first, (begin_s, "late", 4));
    await_minutes(
        &database,
        "web1|60|300|3000|300 web2|60|120|1200|120 web3|60|180|1800|180",
    );
    for gateway in &gateways {
        await_status(gateway, "sends, 0 min behind");
        assert_eq!(metric(gateway, "recorder_send_up"), 1.0);
        assert_eq!(metric(gateway, "recorder_send_lost_total"), 0.0);
    }
    each_console_shows_one_or_all(&gateways, &mut database);
    forget(&database, second);
}
