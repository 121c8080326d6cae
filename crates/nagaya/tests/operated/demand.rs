//! Certificates for names that nobody knew before a client asked: ordered in the handshake, within budgets.

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use testkit::TempDir;
use testkit::gateway::Gateway;
use testkit::pebble::Accounts;
use testkit::processes::await_ended;
use testkit::wait::{eventually, free_port};

use super::certs::rows;
use super::town::{BINARY, PATIENCE, Town};
use crate::fixtures::tls::{TlsClient, connect_from, credulous, hello};

const CLIENT: [u8; 4] = [127, 0, 0, 1];

const CONFIG: &str = r#"
lease = "2s"
challenges = ["{challenge}"]
on_demand = { map = "customers", total = 2 }
[maps.customers]
{map}
[[sites]]
hosts = ["*.example.jp"]
rules = [{ handler = { respond = { body = "a shop" } } }]
tls = { acme = "test" }
"#;

/// A map that accepts one name, from one client.
const PROGRAM: &str = r#"program = ["sh", "-c", "while read l; do [ \"$l\" = 'shop.example.jp 127.0.0.1' ] && echo yes || echo NULL; done"]"#;
const EVERYTHING: &str = r#"program = ["sh", "-c", "while read l; do echo yes; done"]"#;
const NOTHING: &str = r#"program = ["sh", "-c", "while read l; do echo NULL; done"]"#;

fn town() -> Option<Town> {
    Town::new(Accounts::Free, &[], CONFIG)
}

fn reached(town: &Town, map: &str, challenge: &str) -> Gateway {
    reached_at(town, town.ports(), map, challenge)
}

fn reached_at(town: &Town, ports: (u16, u16), map: &str, challenge: &str) -> Gateway {
    let config = town.config.replace("{map}", map);
    let gateway = town.gateway(BINARY, &config, ports);
    gateway.with("challenge", challenge).start()
}

fn to(town: &Town) -> SocketAddr {
    ([127, 0, 0, 1], town.pebble.tls_port()).into()
}

fn is_answered(town: &Town, name: &str) -> bool {
    let client = TlsClient::connect(&credulous(), CLIENT, to(town), name);
    client.is_ok_and(|mut client| client.get("/").unwrap().0 == 200)
}

fn why(gateway: &Gateway, name: &str) -> String {
    let (status, out, err) = gateway.command(&["why", "--tls", name]);
    assert_eq!(status, Some(0), "{err}");
    out
}

#[test]
fn a_name_that_its_map_accepts_is_ordered_in_the_handshake_and_lasts() {
    let file = TempDir::new();
    let file = file.write("customers.txt", "shop.example.jp of-somebody\n");
    for (map, challenge) in [
        (PROGRAM.to_owned(), "http-01"),
        (format!("file = {file:?}"), "tls-alpn-01"),
    ] {
        let Some(town) = town() else {
            return;
        };
        let mut gateway = reached(&town, &map, challenge);
        eventually(PATIENCE, "its certificate", || {
            is_answered(&town, "shop.example.jp").then_some(())
        });
        eventually(PATIENCE, "operators are told of its order", || {
            let row = rows(&gateway, "shop.example.jp").remove(0);
            let is_told = row["source"] == "acme" && row["of"] == "test";
            (is_told && row["order"]["issued"] == 1).then_some(())
        });
        assert_eq!(town.files("certificates").len(), 1);
        for (name, reason) in [
            ("other.example.jp", "name_refused"),
            // No site has it.
            ("www.example.org", "no_certificate"),
            // No authority would certify it.
            ("a_b.example.jp", "no_certificate"),
        ] {
            assert!(!is_answered(&town, name), "{name}");
            assert!(why(&gateway, name).contains(reason), "{name}");
        }
        let (_, status, _) = gateway.command(&["status"]);
        assert!(status.contains("on demand"), "{status}");
        let server = gateway.server_pid();
        gateway.stop();
        await_ended(server);
        // Nobody is asked again for what lies in the store.
        let gateway = reached(&town, NOTHING, challenge);
        gateway.wait_for_message("ready: generation 1");
        assert!(is_answered(&town, "shop.example.jp"));
        assert!(
            !gateway.stderr().contains("ordered"),
            "{}",
            gateway.stderr()
        );
    }
}

/// Names of a table.
const ROWS: &str = r#"
lease = "2s"
on_demand = { directory = "customers", tenant = 1 }
[directories.customers]
source = "file:{place}/rows.csv"
keep = "1s"
missing = "1s"
[[sites]]
hosts = { directory = "customers" }
tenant = "$row.tenant"
rules = [{ handler = { respond = { body = "a shop" } } }]
tls = { acme = "test" }
"#;

#[test]
fn names_that_have_a_row_are_ordered_in_the_handshake_and_no_others() {
    let Some(town) = Town::new(Accounts::Free, &[], ROWS) else {
        return;
    };
    let rows = |more: &str| {
        let rows = format!("host,tenant\nshop.example.jp,anna\nmore.example.jp,anna\n{more}");
        town.place.write("rows.csv", rows)
    };
    rows("");
    let gateway = town.gateway(BINARY, &town.config, town.ports()).start();
    eventually(PATIENCE, "its certificate", || {
        is_answered(&town, "shop.example.jp").then_some(())
    });
    assert!(!is_answered(&town, "other.example.jp"));
    let told = why(&gateway, "other.example.jp");
    assert!(told.contains("no_certificate"), "{told}");
    // The budget is the row's tenant's.
    assert!(!is_answered(&town, "more.example.jp"));
    let told = why(&gateway, "more.example.jp");
    assert!(told.contains("1 new names of tenant anna"), "{told}");
    assert_eq!(town.files("certificates").len(), 1);
    rows("new.example.jp,berta\n");
    eventually(PATIENCE, "a name that came later", || {
        is_answered(&town, "new.example.jp").then_some(())
    });
    assert_eq!(town.files("certificates").len(), 2);
}

#[test]
fn a_map_that_fails_refuses_nothing_for_longer_than_it_fails() {
    let Some(town) = town() else {
        return;
    };
    let place = TempDir::new();
    let works = place.path().join("works");
    let program = format!(
        "[ -e {} ] && while read l; do echo yes; done",
        works.display()
    );
    let map = format!("program = [\"sh\", \"-c\", {program:?}]");
    let gateway = reached(&town, &map, "http-01");
    let name = "shop.example.jp";
    assert!(!is_answered(&town, name));
    let told = why(&gateway, name);
    assert!(told.contains("map customers gives no answer"), "{told}");
    place.write("works", "");
    eventually(PATIENCE, "its certificate", || {
        is_answered(&town, name).then_some(())
    });
    let told = why(&gateway, name);
    assert!(!told.contains("name_refused"), "{told}");
}

#[test]
fn the_machine_that_orders_does_so_for_clients_of_the_others() {
    let Some(town) = town() else {
        return;
    };
    let ports = (free_port(), free_port());
    let writer = reached_at(&town, ports, NOTHING, "http-01");
    writer.wait_for_message("writes=true");
    // Clients and the authority reach this one alone.
    let reader = reached(&town, PROGRAM, "http-01");
    eventually(PATIENCE, "its certificate", || {
        is_answered(&town, "shop.example.jp").then_some(())
    });
    assert!(!is_answered(&town, "other.example.jp"));
    writer.wait_for_message("issued");
    assert!(!reader.stderr().contains("issued"), "{}", reader.stderr());
}

/// What becomes of handshakes with made-up names, many at once; each from another client.
fn make_up(town: &Town, names: usize) {
    let (config, next) = (credulous(), AtomicUsize::new(0));
    let make_up = || {
        loop {
            let number = next.fetch_add(1, Relaxed);
            if number >= names {
                return;
            }
            let [_, high, middle, low] = u32::try_from(number).unwrap().to_be_bytes();
            let hello = hello(&config, &format!("n{number}.example.jp"));
            let from = [127, 8 + high, middle, low.max(1)];
            let mut client = connect_from(from, to(town)).unwrap();
            client.write_all(&hello).unwrap();
            // It is refused, or has shown a certificate.
            let _ = client.read(&mut [0; 1_024]);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(make_up);
        }
    });
}

#[test]
fn made_up_names_order_nothing_beyond_what_the_map_accepts_and_the_budgets_hold() {
    for (map, most, reason) in [
        (NOTHING, 0, "name_refused"),
        (EVERYTHING, 2, "2 new names of account test were ordered"),
    ] {
        let Some(town) = town() else {
            return;
        };
        let gateway = reached(&town, map, "http-01");
        gateway.wait_for_message("acme process started");
        make_up(&town, 400);
        assert!(!is_answered(&town, "n399.example.jp"));
        let told = why(&gateway, "n399.example.jp");
        assert!(told.contains(reason), "{told}");
        let ordered = gateway.stderr().matches("ordered account").count();
        assert!(ordered <= most, "{}", gateway.stderr());
        let orders = town.files("certificates").len() + town.files("pending").len() / 2;
        assert!(orders <= most, "{orders}");
    }
}

#[test]
#[ignore = "prints figures that depend on the machine"]
fn what_a_hundred_thousand_made_up_names_cost() {
    for map in [NOTHING, EVERYTHING] {
        let town = town().expect("pebble is installed");
        let gateway = reached(&town, map, "http-01");
        gateway.wait_for_message("acme process started");
        make_up(&town, 1_000);
        let pids = [
            ("server", gateway.server_pid()),
            ("supervisor", gateway.pid()),
            ("acme", gateway.child_called("acme")),
        ];
        let memory = |pid| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
            let line = status
                .lines()
                .find(|line| line.starts_with("VmRSS"))
                .unwrap();
            line.to_owned()
        };
        let before = pids.map(|(_, pid)| memory(pid));
        let begun = Instant::now();
        make_up(&town, 100_000);
        println!("{map}: {} s", begun.elapsed().as_secs());
        for ((who, pid), before) in pids.iter().zip(before) {
            println!("{who}: {before} -> {}", memory(*pid));
        }
        println!("certificates: {}", town.files("certificates").len());
        println!("{}", gateway.command(&["status"]).1);
    }
}
