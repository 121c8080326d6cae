//! Certificates from an authority: ordered, stored, answered for on several machines, and never lost.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use testkit::RawClient;
use testkit::client::Outcome;
use testkit::gateway::Gateway;
use testkit::pebble::{Accounts, Pebble};
use testkit::processes::await_ended;
use testkit::wait::{eventually, free_port};

use super::town::{BINARY, PATIENCE, Town, names_in, openssl};
use super::upgrade::{Installed, upgraded};

const HARSH: [(&str, &str); 1] = [("PEBBLE_WFE_NONCEREJECT", "90")];

const CONFIG: &str = r#"
contact = "ops@example.jp"
eab = { id = "{id}", key = "{place}/eab.key" }
lease = "2s"
challenges = ["{challenge}"]
[[sites]]
hosts = ["www.example.jp", "example.jp"]
rules = [{ handler = { respond = { body = "the site" } } }]
tls = { acme = "test" }
"#;

/// What makes the site wish for a certificate.
const WISH: &str = "tls = { acme = \"test\" }";

/// An authority that knows its customers, and is shown names in this way.
pub(crate) fn town(challenge: &str, settings: &[(&str, &str)]) -> Option<Town> {
    let config = CONFIG.replace("{challenge}", challenge);
    let town = Town::new(Accounts::Bound, settings, &config)?;
    let key = format!("{}\n", town.pebble.binding().1);
    town.place.write("eab.key", key);
    Some(town)
}

/// A machine that wants no certificate, and that nobody reaches.
fn aside(town: &Town) -> Gateway {
    let config = town.config.replace(WISH, "");
    let ports = (free_port(), free_port());
    town.gateway(BINARY, &config, ports).start()
}

/// Whether a file is there, or any in a directory.
fn is_there(town: &Town, moment: &str) -> bool {
    match moment.strip_suffix('/') {
        Some(part) => !town.files(part).is_empty(),
        None => town.file(moment).exists(),
    }
}

pub(crate) fn until_certified(town: &Town) -> PathBuf {
    town.until_there("certificates/www.example.jp.pem")
}

const NAMES: [&str; 2] = ["DNS:www.example.jp", "DNS:example.jp"];

/// The file holds a chain for both names, and the key that belongs to it.
fn assert_sound(file: &Path) {
    let names = names_in(file);
    assert!(NAMES.iter().all(|name| names.contains(name)), "{names}");
    assert_with_key(file);
}

/// The file holds a chain, and the key that belongs to it.
fn assert_with_key(file: &Path) {
    let of_chain = openssl(&["x509", "-noout", "-pubkey", "-in"], file);
    let of_key = openssl(&["pkey", "-pubout", "-in"], file);
    assert_eq!(of_chain, of_key);
    assert_eq!(
        fs::metadata(file).unwrap().permissions().mode() & 0o777,
        0o600
    );
}

fn get(port: u16, path: &str) -> String {
    let mut client = RawClient::connect(([127, 0, 0, 1], port).into());
    let request = format!("GET {path} HTTP/1.1\r\nHost: example.jp\r\nConnection: close\r\n\r\n");
    match client.ask(request.as_bytes()) {
        Outcome::Reply(reply) => String::from_utf8(reply.body).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_site_has_its_certificate_ordered_and_keeps_all_other_challenges() {
    let Some(town) = town("http-01", &HARSH) else {
        return;
    };
    let gateway = town.reached().start();
    let file = until_certified(&town);
    assert_sound(&file);
    gateway.wait_for_message("issued");
    let shown = || {
        let address = format!("127.0.0.1:{}", town.pebble.tls_port());
        let arguments = [
            "s_client",
            "-connect",
            &address,
            "-servername",
            "example.jp",
        ];
        let output = Command::new("openssl")
            .args(arguments)
            .stdin(Stdio::null())
            .output();
        let shown = output.unwrap().stdout;
        String::from_utf8_lossy(&shown)
            .contains("Pebble")
            .then_some(())
    };
    eventually(PATIENCE, "clients are shown it", shown);
    let path = "/.well-known/acme-challenge/of-the-site";
    assert_eq!(get(town.pebble.http_port(), path), "the site");
    for name in ["account.json", "pending"] {
        let mode = fs::metadata(town.file(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{name}");
    }
    eventually(PATIENCE, "nothing is left over", || {
        let count = town.files("pending").len() + town.files("challenges").len();
        (count == 0).then_some(())
    });
    let key = fs::read_to_string(town.file("account.json")).unwrap();
    assert!(!gateway.stderr().contains(&key));
}

/// What a client is told that wants this name and speaks `acme-tls/1` alone.
fn challenge_shown(town: &Town, name: &str) -> String {
    let address = format!("127.0.0.1:{}", town.pebble.tls_port());
    let mut client = Command::new("openssl");
    client.args(["s_client", "-connect", &address, "-servername", name]);
    let output = client.args(["-alpn", "acme-tls/1"]).stdin(Stdio::null());
    let output = output.output().unwrap();
    let (shown, told) = (output.stdout, output.stderr);
    String::from_utf8_lossy(&[shown, told].concat()).into_owned()
}

#[test]
fn a_name_is_shown_in_a_handshake_while_that_is_asked_for_and_no_longer() {
    let Some(town) = town("tls-alpn-01", &HARSH) else {
        return;
    };
    // Nothing else of it is reached.
    let ports = (free_port(), town.pebble.tls_port());
    let gateway = town.gateway(BINARY, &town.config, ports).start();
    eventually(PATIENCE, "the certificate of a challenge", || {
        let shown = challenge_shown(&town, "www.example.jp");
        shown.contains("ALPN protocol: acme-tls/1").then_some(())
    });
    let strange = challenge_shown(&town, "other.example.jp");
    assert!(strange.contains("unrecognized name"), "{strange}");
    assert_sound(&until_certified(&town));
    gateway.wait_for_message("issued");
    eventually(PATIENCE, "nothing is shown any more", || {
        let shown = challenge_shown(&town, "www.example.jp");
        shown.contains("no peer certificate").then_some(())
    });
    assert_eq!(town.files("challenges").len(), 0);
}

#[test]
fn a_machine_that_shares_the_store_answers_for_the_one_that_orders() {
    for challenge in ["http-01", "tls-alpn-01"] {
        let Some(town) = town(challenge, &[]) else {
            return;
        };
        order_through_another_machine(&town);
    }
}

fn order_through_another_machine(town: &Town) {
    let mut writer = aside(town);
    eventually(PATIENCE, "the lease", || {
        town.file("lease.1").exists().then_some(())
    });
    // The authority reaches this one alone.
    let reader = town.reached().start();
    eventually(PATIENCE, "the reader", || {
        (!town.files("readers").is_empty()).then_some(())
    });
    writer.reload(&town.config);
    assert_sound(&until_certified(town));
    writer.wait_for_message("issued");
    assert!(!reader.stderr().contains("issued"));
    reader.wait_for_message("www.example.jp.pem: taken");
}

#[test]
fn what_another_machine_shows_is_shown_no_longer_once_no_account_is_left() {
    let Some(town) = town("http-01", &[]) else {
        return;
    };
    let _writer = aside(&town);
    town.until_there("lease.1");
    let mut reader = aside(&town);
    eventually(PATIENCE, "the reader", || {
        (!town.files("readers").is_empty()).then_some(())
    });
    fs::write(town.file("challenges/token"), "example.jp\ntoken.key\n").unwrap();
    let port = reader.address().port();
    let is_shown = |text: &str| {
        let shown = get(port, "/.well-known/acme-challenge/token");
        (shown == text).then_some(())
    };
    eventually(PATIENCE, "the challenge", || is_shown("token.key"));
    let (before, account) = town.config.split_once("[acme.test]").unwrap();
    let (_, sites) = account.split_once("[[sites]]").unwrap();
    reader.reload(&format!("{before}[[sites]]{}", sites.replace(WISH, "")));
    eventually(PATIENCE, "the site's own", || is_shown("the site"));
}

#[test]
fn the_machine_that_is_left_orders_when_the_other_has_died() {
    let Some(town) = town("http-01", &[]) else {
        return;
    };
    let first = aside(&town);
    eventually(PATIENCE, "the lease", || {
        town.file("lease.1").exists().then_some(())
    });
    let second = town.reached().start();
    kill_process(
        Pid::from_raw(i32::try_from(first.pid()).unwrap()).unwrap(),
        Signal::STOP,
    )
    .unwrap();
    assert_sound(&until_certified(&town));
    second.wait_for_message("issued");
    kill_process(
        Pid::from_raw(i32::try_from(first.pid()).unwrap()).unwrap(),
        Signal::CONT,
    )
    .unwrap();
    let certificate = fs::read(until_certified(&town)).unwrap();
    first.wait_for_message("writes=false");
    assert_eq!(fs::read(until_certified(&town)).unwrap(), certificate);
    assert!(!town.file("lease.1").exists());
}

/// Says that a certificate is to be renewed within a window that is over.
fn wants_renewal(pebble: &Pebble, file: &Path) {
    let window =
        r#"{"suggestedWindow": {"start": "2025-01-02T04:00:00Z", "end": "2025-01-03T04:00:00Z"}}"#;
    let certificate = openssl(&["x509", "-in"], file);
    let said = serde_json::json!({"Certificate": certificate, "ARIResponse": window});
    let place = format!(
        "https://127.0.0.1:{}/set-renewal-info/",
        pebble.reports_port()
    );
    let curl = Command::new("curl")
        .args(["-sSfk", "--data-binary", &said.to_string(), &place])
        .status();
    assert!(curl.unwrap().success());
}

#[test]
#[ignore = "needs a Pebble that Debian does not have yet: make soak"]
fn an_authoritys_profile_is_had_and_its_wish_to_renew_heard_after_a_start() {
    let Some(mut town) = town("http-01", &HARSH) else {
        return;
    };
    town.config = town
        .config
        .replace("lease =", "profile = \"shortlived\"\nlease =");
    let mut gateway = town.reached().start();
    let file = until_certified(&town);
    assert_sound(&file);
    let ends_within = |seconds: &str| {
        let told = Command::new("openssl")
            .args(["x509", "-noout", "-checkend", seconds, "-in"])
            .arg(&file)
            .status();
        !told.unwrap().success()
    };
    assert!(ends_within("518400") && !ends_within("432000"));
    gateway.wait_for_message("issued");
    gateway.stop();
    let first = fs::read(&file).unwrap();
    wants_renewal(&town.pebble, &file);
    let _gateway = town.reached().start();
    eventually(PATIENCE, "another certificate", || {
        (fs::read(&file).ok()? != first).then_some(())
    });
    assert_sound(&file);
}

/// Who is killed, and the file whose appearance is the moment.
const DEATHS: [(&str, &str); 14] = [
    ("keeper", "challenges/tls-alpn"),
    ("server", "challenges/tls-alpn"),
    ("acme", "account.json"),
    ("gateway", "account.json"),
    ("acme", "challenges/"),
    ("server", "challenges/"),
    ("gateway", "challenges/"),
    ("keeper", "challenges/"),
    ("acme", "pending/www.example.jp.order"),
    ("gateway", "pending/www.example.jp.order"),
    ("acme", "pending/www.example.jp.key"),
    ("gateway", "pending/www.example.jp.key"),
    ("keeper", "pending/www.example.jp.key"),
    ("gateway", "certificates/"),
];

#[test]
fn whoever_dies_at_whatever_step_there_is_a_certificate_with_its_key_in_the_end() {
    for (who, moment) in DEATHS {
        let (moment, challenge) = match moment.strip_suffix("tls-alpn") {
            Some(moment) => (moment, "tls-alpn-01"),
            None => (moment, "http-01"),
        };
        let Some(town) = town(challenge, &HARSH) else {
            return;
        };
        let gateway = town.reached().start();
        eventually(PATIENCE, moment, || is_there(&town, moment).then_some(()));
        let victim = match who {
            "gateway" => gateway.pid(),
            name => gateway.child_called(name),
        };
        let pid = Pid::from_raw(i32::try_from(victim).unwrap()).unwrap();
        // Stopped it starts no other child, which would hold the ports unseen.
        kill_process(pid, Signal::STOP).unwrap();
        let children = gateway.children();
        kill_process(pid, Signal::KILL).unwrap();
        let gateway = match who {
            "gateway" => {
                drop(gateway);
                // They end by themselves, and hold the ports until then.
                children.into_iter().for_each(await_ended);
                town.reached().start()
            }
            _ => {
                await_ended(victim);
                gateway
            }
        };
        let file = until_certified(&town);
        let names = names_in(&file);
        // One whose proof was asked for while nobody answered is left out, and tried again by itself.
        assert!(NAMES.iter().any(|name| names.contains(name)), "{names}");
        assert_with_key(&file);
        drop(gateway);
        println!("{who} at {moment}");
    }
}

/// When another program takes over: at the appearance of these.
const UPGRADES: [&str; 6] = [
    "account.json",
    "challenges/",
    "challenges/tls-alpn",
    "pending/www.example.jp.order",
    "pending/www.example.jp.key",
    "certificates/",
];

#[test]
fn another_program_goes_on_with_an_order_and_orders_nothing_twice() {
    for moment in UPGRADES {
        let (moment, challenge) = match moment.strip_suffix("tls-alpn") {
            Some(moment) => (moment, "tls-alpn-01"),
            None => (moment, "http-01"),
        };
        let Some(town) = town(challenge, &HARSH) else {
            return;
        };
        let installed = Installed::new();
        let gateway = town.gateway(installed.path(), &town.config, town.ports());
        let gateway = gateway.start();
        let supervisor = gateway.pid();
        eventually(PATIENCE, moment, || is_there(&town, moment).then_some(()));
        upgraded(&gateway);
        assert_eq!(gateway.pid(), supervisor);
        let file = until_certified(&town);
        assert_sound(&file);
        let certificate = fs::read(&file).unwrap();
        eventually(PATIENCE, "nothing is left over", || {
            let count = town.files("pending").len() + town.files("challenges").len();
            (count == 0).then_some(())
        });
        let told = town.pebble.log();
        assert_eq!(
            told.matches("Issued certificate serial").count(),
            1,
            "{told}"
        );
        // The order itself may not have been kept yet when the first moments came.
        let orders = told.matches("Added order").count();
        let is_kept = moment.starts_with("pending") || moment.starts_with("certificates");
        assert!(orders == 1 || orders == 2 && !is_kept, "{moment}: {told}");
        let files = town.files("");
        let leases = files.iter().filter(|it| {
            let name = it.file_name().unwrap().to_string_lossy();
            name.starts_with("lease.")
        });
        assert_eq!(leases.count(), 1, "{moment}");
        assert_eq!(fs::read(&file).unwrap(), certificate);
        println!("upgraded at {moment}");
    }
}
