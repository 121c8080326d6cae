//! Certificates from an authority: ordered, stored, answered for on several machines, and never lost.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use testkit::client::Outcome;
use testkit::gateway::{Builder, Gateway};
use testkit::pebble::{Accounts, Pebble};
use testkit::processes::await_ended;
use testkit::wait::{eventually, free_port};
use testkit::{RawClient, TempDir};

use super::upgrade::{Installed, upgraded};

const BINARY: &str = env!("CARGO_BIN_EXE_nagaya");
/// How long an authority that refuses nine of ten nonces may take.
const PATIENCE: Duration = Duration::from_secs(120);
const HARSH: [(&str, &str); 1] = [("PEBBLE_WFE_NONCEREJECT", "90")];

const CONFIG: &str = r#"
workers = 1
[[listen]]
address = "127.0.0.1:{port}"
[[listen]]
address = "127.0.0.1:{http}"
[[listen]]
address = "127.0.0.1:{tls}"
tls = true
[acme.test]
directory = "{directory}"
ca = "{ca}"
contact = "ops@example.jp"
eab = { id = "{id}", key = "{key}" }
store = "{store}"
lease = "2s"
challenges = ["{challenge}"]
{further}
[[sites]]
hosts = ["www.example.jp", "example.jp"]
rules = [{ handler = { respond = { body = "the site" } } }]
{wish}
"#;

/// What makes the site wish for a certificate.
pub(crate) const WISH: &str = "tls = { acme = \"test\" }";

/// An authority, and a store that outlives gateways.
pub(crate) struct Town {
    pub(crate) pebble: Pebble,
    store: TempDir,
    key: PathBuf,
    /// How the authority is shown names.
    challenge: &'static str,
    /// What else the account says.
    further: &'static str,
}

impl Town {
    pub(crate) fn new(settings: &[(&str, &str)]) -> Option<Town> {
        let pebble = Pebble::start(Accounts::Bound, settings)?;
        let store = TempDir::new();
        let key = store.write("eab.key", format!("{}\n", pebble.binding().1));
        Some(Town {
            pebble,
            store,
            key,
            challenge: "http-01",
            further: "",
        })
    }

    fn gateway(&self, ports: (u16, u16), wish: &str) -> Builder {
        self.of(Path::new(BINARY), CONFIG, ports, wish)
    }

    fn of(&self, program: &Path, config: &str, (http, tls): (u16, u16), wish: &str) -> Builder {
        Gateway::with_config(program, config)
            .with("http", http)
            .with("tls", tls)
            .with("directory", self.pebble.url())
            .with("ca", self.pebble.authorities().display())
            .with("id", self.pebble.binding().0)
            .with("key", self.key.display())
            .with("store", self.store.path().join("store").display())
            .with("wish", wish)
            .with("challenge", self.challenge)
            .with("further", self.further)
    }

    /// The gateway that the authority reaches.
    pub(crate) fn reached(&self, wish: &str) -> Gateway {
        let ports = (self.pebble.http_port(), self.pebble.tls_port());
        self.gateway(ports, wish).start()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.store.path().join("store/test").join(name)
    }

    /// Whether a file is there, or any in a directory.
    fn is_there(&self, moment: &str) -> bool {
        match moment.strip_suffix('/') {
            Some(part) => {
                let entries = fs::read_dir(self.file(part));
                entries.is_ok_and(|mut entries| entries.next().is_some())
            }
            None => self.file(moment).exists(),
        }
    }

    fn until_there(&self, name: &str) -> PathBuf {
        let file = self.file(name);
        eventually(PATIENCE, name, || file.exists().then(|| file.clone()))
    }

    pub(crate) fn until_certified(&self) -> PathBuf {
        self.until_there("certificates/www.example.jp.pem")
    }
}

fn openssl(arguments: &[&str], file: &Path) -> String {
    let output = Command::new("openssl").args(arguments).arg(file).output();
    let output = output.expect("openssl is installed");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

const NAMES: [&str; 2] = ["DNS:www.example.jp", "DNS:example.jp"];

/// The names that the chain in a file is for.
fn names_in(file: &Path) -> String {
    openssl(&["x509", "-noout", "-ext", "subjectAltName", "-in"], file)
}

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
    let Some(town) = Town::new(&HARSH) else {
        return;
    };
    let gateway = town.reached(WISH);
    let file = town.until_certified();
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
        let count = |name| fs::read_dir(town.file(name)).unwrap().count();
        (count("pending") + count("challenges") == 0).then_some(())
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
    let Some(town) = Town::new(&HARSH) else {
        return;
    };
    let challenge = "tls-alpn-01";
    let town = Town { challenge, ..town };
    // Nothing else of it is reached.
    let gateway = town.gateway((free_port(), town.pebble.tls_port()), WISH);
    let gateway = gateway.start();
    eventually(PATIENCE, "the certificate of a challenge", || {
        let shown = challenge_shown(&town, "www.example.jp");
        shown.contains("ALPN protocol: acme-tls/1").then_some(())
    });
    let strange = challenge_shown(&town, "other.example.jp");
    assert!(strange.contains("unrecognized name"), "{strange}");
    assert_sound(&town.until_certified());
    gateway.wait_for_message("issued");
    eventually(PATIENCE, "nothing is shown any more", || {
        let shown = challenge_shown(&town, "www.example.jp");
        shown.contains("no peer certificate").then_some(())
    });
    let left = fs::read_dir(town.file("challenges")).unwrap().count();
    assert_eq!(left, 0);
}

#[test]
fn a_machine_that_shares_the_store_answers_for_the_one_that_orders() {
    for challenge in ["http-01", "tls-alpn-01"] {
        let Some(town) = Town::new(&[]) else {
            return;
        };
        order_through_another_machine(Town { challenge, ..town });
    }
}

fn order_through_another_machine(town: Town) {
    let mut writer = town.gateway((free_port(), free_port()), "").start();
    eventually(PATIENCE, "the lease", || {
        town.file("lease.1").exists().then_some(())
    });
    // The authority reaches this one alone.
    let reader = town.reached(WISH);
    eventually(PATIENCE, "the reader", || {
        let mut marks = fs::read_dir(town.file("readers")).ok()?;
        marks.next().map(drop)
    });
    let config = CONFIG.replace("{wish}", WISH);
    let config = config.replace("{challenge}", town.challenge);
    let config = config.replace("{further}", town.further);
    writer.reload(&config);
    assert_sound(&town.until_certified());
    writer.wait_for_message("issued");
    assert!(!reader.stderr().contains("issued"));
    reader.wait_for_message("www.example.jp.pem: taken");
}

#[test]
fn the_machine_that_is_left_orders_when_the_other_has_died() {
    let Some(town) = Town::new(&[]) else {
        return;
    };
    let first = town.gateway((free_port(), free_port()), "").start();
    eventually(PATIENCE, "the lease", || {
        town.file("lease.1").exists().then_some(())
    });
    let second = town.reached(WISH);
    kill_process(
        Pid::from_raw(i32::try_from(first.pid()).unwrap()).unwrap(),
        Signal::STOP,
    )
    .unwrap();
    assert_sound(&town.until_certified());
    second.wait_for_message("issued");
    kill_process(
        Pid::from_raw(i32::try_from(first.pid()).unwrap()).unwrap(),
        Signal::CONT,
    )
    .unwrap();
    let certificate = fs::read(town.until_certified()).unwrap();
    first.wait_for_message("writes=false");
    assert_eq!(fs::read(town.until_certified()).unwrap(), certificate);
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
    let Some(town) = Town::new(&HARSH) else {
        return;
    };
    let further = "profile = \"shortlived\"";
    let town = Town { further, ..town };
    let mut gateway = town.reached(WISH);
    let file = town.until_certified();
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
    let _gateway = town.reached(WISH);
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
        let Some(town) = Town::new(&HARSH) else {
            return;
        };
        let (moment, challenge) = match moment.strip_suffix("tls-alpn") {
            Some(moment) => (moment, "tls-alpn-01"),
            None => (moment, "http-01"),
        };
        let town = Town { challenge, ..town };
        let gateway = town.reached(WISH);
        eventually(PATIENCE, moment, || town.is_there(moment).then_some(()));
        let victim = match who {
            "gateway" => gateway.pid(),
            name => gateway.child_called(name),
        };
        let children = gateway.children();
        let pid = Pid::from_raw(i32::try_from(victim).unwrap()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        let gateway = match who {
            "gateway" => {
                drop(gateway);
                // They end by themselves, and hold the ports until then.
                children.into_iter().for_each(await_ended);
                town.reached(WISH)
            }
            _ => {
                await_ended(victim);
                gateway
            }
        };
        let file = town.until_certified();
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
        let Some(town) = Town::new(&HARSH) else {
            return;
        };
        let (moment, challenge) = match moment.strip_suffix("tls-alpn") {
            Some(moment) => (moment, "tls-alpn-01"),
            None => (moment, "http-01"),
        };
        let town = Town { challenge, ..town };
        let installed = Installed::new();
        let ports = (town.pebble.http_port(), town.pebble.tls_port());
        let config = format!("{CONFIG}\n[control]\nsocket = \"{{dir}}/control\"\n");
        let gateway = town.of(&installed.path(), &config, ports, WISH).start();
        let supervisor = gateway.pid();
        eventually(PATIENCE, moment, || town.is_there(moment).then_some(()));
        let lease = || fs::read_dir(town.file("")).unwrap().filter_map(Result::ok);
        upgraded(&gateway);
        assert_eq!(gateway.pid(), supervisor);
        let file = town.until_certified();
        assert_sound(&file);
        let certificate = fs::read(&file).unwrap();
        eventually(PATIENCE, "nothing is left over", || {
            let count = |name| fs::read_dir(town.file(name)).unwrap().count();
            (count("pending") + count("challenges") == 0).then_some(())
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
        let leases = lease().filter(|entry| {
            let name = entry.file_name();
            name.to_string_lossy().starts_with("lease.")
        });
        assert_eq!(leases.count(), 1, "{moment}");
        assert_eq!(fs::read(&file).unwrap(), certificate);
        println!("upgraded at {moment}");
    }
}
