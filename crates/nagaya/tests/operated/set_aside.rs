//! Broken files of tenants (`broken = "keep"`): set aside, while everything else is in force.

use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use testkit::client::RawClient;
use testkit::gateway::{Builder, Gateway};
use testkit::wait::eventually;

use super::supervisor::{PATIENCE, body, builder};

const BINARY: &str = env!("CARGO_BIN_EXE_nagaya");

const MAIN: &str = r#"
workers = 1
include = [{ files = "sites.d/*.toml", broken = "keep" }]
[control]
socket = "{dir}/control"
[[listen]]
address = "127.0.0.1:{port}"
[upstreams.app]
servers = ["127.0.0.1:1"]
[[sites]]
hosts = ["*"]
rules = [{ handler = { respond = { body = "default" } } }]
"#;

/// A file of a tenant, whose site answers with `body`.
fn site(host: &str, body: &str) -> String {
    format!(
        "[[sites]]\nhosts = [\"{host}\"]\nrules = [{{ handler = {{ respond = {{ body = \"{body}\" }} }} }}]\n"
    )
}

/// A site that names an upstream of the first file.
fn site_of_app(host: &str) -> String {
    let first = "{ match = { path = \"/app\" }, handler = { proxy = \"app\" } }";
    site(host, host).replace("rules = [", &format!("rules = [{first}, "))
}

fn with_files(files: &[(&str, &str)]) -> Builder {
    let builder = builder(MAIN);
    builder.directory().write("sites.d/.keep", "");
    for (name, text) in files {
        builder.directory().write(&format!("sites.d/{name}"), text);
    }
    builder
}

fn started(files: &[(&str, &str)]) -> Gateway {
    let gateway = with_files(files).start();
    gateway.wait_for_message("ready: generation 1");
    gateway
}

fn file(gateway: &Gateway, name: &str) -> PathBuf {
    gateway.directory().path().join("sites.d").join(name)
}

fn write(gateway: &Gateway, name: &str, text: impl AsRef<[u8]>) {
    std::fs::write(file(gateway, name), text).unwrap();
}

/// Status and everything that a command says.
fn said(gateway: &Gateway, words: &[&str]) -> (Option<i32>, String) {
    let (status, out, err) = gateway.command(words);
    (status, out + &err)
}

/// Reloads, which has to succeed; what is said of it.
fn reload(gateway: &Gateway) -> String {
    let (status, told) = said(gateway, &["reload"]);
    assert_eq!(status, Some(0), "{told}");
    told
}

fn request(host: &str) -> Vec<u8> {
    format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").into_bytes()
}

fn ask(gateway: &Gateway, host: &str) -> String {
    body(gateway.ask(&request(host)))
}

fn stored(gateway: &Gateway) -> String {
    let path = gateway.directory().path().join("nagaya.toml.last-good");
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The gateway as it comes back after a reboot: another process, over the same directory.
struct Restarted {
    child: Child,
    gateway: Gateway,
}

impl Restarted {
    fn after(mut gateway: Gateway, change: impl FnOnce(&Gateway)) -> Restarted {
        gateway.stop();
        change(&gateway);
        let config = gateway.directory().path().join("nagaya.toml");
        let log = gateway.directory().path().join("stderr.again");
        let mut command = Command::new(BINARY);
        let command = command.arg("serve").arg("-c").arg(config);
        let command = command.stdin(Stdio::null()).stdout(Stdio::null());
        let log = std::fs::File::create(log).unwrap();
        let child = command.stderr(log).spawn().unwrap();
        eventually(PATIENCE, "the gateway to be back", || {
            let (status, _) = said(&gateway, &["status"]);
            TcpStream::connect(gateway.address()).ok()?;
            (status == Some(0)).then_some(())
        });
        Restarted { child, gateway }
    }

    fn ask(&self, host: &str) -> String {
        body(RawClient::connect(self.gateway.address()).ask(&request(host)))
    }

    fn log(&self) -> String {
        let path = self.gateway.directory().path().join("stderr.again");
        std::fs::read_to_string(path).unwrap()
    }
}

impl Drop for Restarted {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn a_broken_file_stays_as_it_was_everything_else_is_applied_and_all_say_so() {
    let gateway = started(&[("a.toml", &site("a", "a1")), ("b.toml", &site("b", "b1"))]);
    write(&gateway, "a.toml", format!("{}\nhots = 1", site("a", "a2")));
    write(&gateway, "b.toml", site("b", "b2"));
    let (status, told) = said(&gateway, &["check"]);
    assert_eq!(status, Some(2), "{told}");
    let told_again = reload(&gateway);
    for told in [told, told_again] {
        assert!(told.contains("unknown key `hots`"), "{told}");
        assert!(told.contains("sites.d/a.toml:5:1"), "{told}");
        assert!(
            told.contains("a.toml: set aside: its version of 20"),
            "{told}"
        );
        assert!(told.contains("stays in force"), "{told}");
    }
    assert_eq!(
        (ask(&gateway, "a"), ask(&gateway, "b")),
        ("a1".into(), "b2".into())
    );
    let log = gateway.stderr();
    let line = log
        .lines()
        .find(|line| line.contains("stays in force"))
        .unwrap();
    assert!(line.contains(" error supervisor: set aside: "), "{line}");
    // The line may come after who asked for the reload has heard of it.
    eventually(PATIENCE, "the generation's line", || {
        let log = gateway.stderr();
        let line = "with 1 workers; 1 broken file is set aside";
        log.contains(line).then_some(())
    });
    let (_, status) = said(&gateway, &["status"]);
    assert!(
        status.contains("sites.d/a.toml is broken since 20"),
        "{status}"
    );
    assert!(status.contains(": line 5: unknown key `hots`"), "{status}");
    let (_, json) = said(&gateway, &["status", "--json"]);
    assert!(json.contains("\"config_files_set_aside\":1,"), "{json}");
    // Since when it is so does not change with the next reload.
    let since = |text: &str| {
        let (_, rest) = text.split_once("\"since\":\"").unwrap();
        rest.split('"').next().unwrap().to_owned()
    };
    let first = since(&json);
    write(&gateway, "b.toml", site("b", "b3"));
    reload(&gateway);
    let (_, json) = said(&gateway, &["status", "--json"]);
    assert_eq!(since(&json), first);

    write(&gateway, "a.toml", site("a", "a3"));
    assert_eq!(said(&gateway, &["check"]).0, Some(0));
    assert!(!reload(&gateway).contains("set aside"));
    assert_eq!(
        (ask(&gateway, "a"), ask(&gateway, "b")),
        ("a3".into(), "b3".into())
    );
    let (_, json) = said(&gateway, &["status", "--json"]);
    assert!(
        json.contains("\"config_files_set_aside\":0,\"set_aside\":[]"),
        "{json}"
    );
}

#[test]
fn after_a_restart_the_stored_version_serves_and_what_never_was_right_is_left_out() {
    let gateway = started(&[("a.toml", &site("a", "a1")), ("b.toml", &site("b", "b1"))]);
    assert!(
        stored(&gateway).contains("body = \\\"a1\\\""),
        "{}",
        stored(&gateway)
    );
    let again = Restarted::after(gateway, |gateway| {
        write(gateway, "a.toml", "[[sites");
        write(gateway, "c.toml", "[[sites");
        write(gateway, "b.toml", site("b", "b2"));
    });
    assert_eq!(
        (again.ask("a"), again.ask("b"), again.ask("c")),
        ("a1".into(), "b2".into(), "default".into())
    );
    let log = again.log();
    assert!(log.contains("its version of 20"), "{log}");
    assert!(
        log.contains("it is left out, for there is no good version of it"),
        "{log}"
    );
    let (status, told) = said(&again.gateway, &["check"]);
    assert_eq!(status, Some(2));
    assert!(
        told.contains("a.toml: set aside: its version of 20"),
        "{told}"
    );
    assert!(told.contains("c.toml: set aside: it is left out"), "{told}");
}

#[test]
fn where_versions_are_stored_may_change_by_a_reload() {
    let gateway = started(&[("a.toml", &site("a", "a1"))]);
    let directory = gateway.directory().path();
    let config = directory.join("nagaya.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("last_good = \"moved\"\n{text}")).unwrap();
    reload(&gateway);
    let moved = std::fs::read_to_string(directory.join("moved"));
    assert!(moved.is_ok_and(|text| text.contains("a.toml")));
}

#[test]
fn a_store_that_is_spoilt_costs_what_it_held_and_nothing_else() {
    let gateway = started(&[("a.toml", &site("a", "a1")), ("b.toml", &site("b", "b1"))]);
    let again = Restarted::after(gateway, |gateway| {
        write(gateway, "a.toml", "[[sites");
        gateway
            .directory()
            .write("nagaya.toml.last-good", "[[files]]\nfile = 1\n");
    });
    assert_eq!(
        (again.ask("a"), again.ask("b")),
        ("default".into(), "b1".into())
    );
    assert!(
        again
            .log()
            .contains("the last good versions of files cannot be read")
    );
}

#[test]
fn a_host_stays_with_the_file_that_had_it() {
    for (owner, other) in [("a.toml", "b.toml"), ("b.toml", "a.toml")] {
        let gateway = started(&[(owner, &site("x", "owner"))]);
        write(&gateway, other, site("x", "other"));
        let told = reload(&gateway);
        assert!(
            told.contains(&format!("{other}: set aside: it is left out")),
            "{told}"
        );
        assert_eq!(ask(&gateway, "x"), "owner");
        // The owner may go on with it meanwhile.
        write(&gateway, owner, site("x", "owner again"));
        reload(&gateway);
        assert_eq!(ask(&gateway, "x"), "owner again");
        // And give it away.
        write(&gateway, owner, site("y", "owner"));
        let told = reload(&gateway);
        assert!(!told.contains("set aside"), "{told}");
        assert_eq!(ask(&gateway, "x"), "other");
    }
}

#[test]
fn of_two_new_files_the_first_by_name_gets_the_host_and_the_operators_file_gets_any() {
    let gateway = started(&[]);
    write(&gateway, "b.toml", site("x", "b"));
    write(&gateway, "a.toml", site("x", "a"));
    write(&gateway, "c.toml", site("*", "c"));
    let told = reload(&gateway);
    assert_eq!(
        (ask(&gateway, "x"), ask(&gateway, "y")),
        ("a".into(), "default".into())
    );
    for file in ["b.toml", "c.toml"] {
        assert!(
            told.contains(&format!("{file}: set aside: it is left out")),
            "{told}"
        );
    }
}

#[test]
fn with_its_file_a_site_goes_and_its_version_too() {
    let gateway = started(&[("a.toml", &site("a", "a1")), ("b.toml", &site("b", "b1"))]);
    std::fs::remove_file(file(&gateway, "a.toml")).unwrap();
    reload(&gateway);
    assert_eq!(
        (ask(&gateway, "a"), ask(&gateway, "b")),
        ("default".into(), "b1".into())
    );
    let text = stored(&gateway);
    assert!(
        !text.contains("a.toml") && text.contains("b.toml"),
        "{text}"
    );
    write(&gateway, "a.toml", "[[sites");
    assert!(reload(&gateway).contains("a.toml: set aside: it is left out"));
}

#[test]
fn whatever_is_wrong_with_it_a_file_costs_itself_alone() {
    let gateway = started(&[("a.toml", &site("a", "a1")), ("b.toml", &site("b", "b1"))]);
    let rule = |rule: &str| {
        format!(
            "{}\n[[sites]]\nhosts = [\"more\"]\n{rule}\n",
            site("a", "a2")
        )
    };
    let respond = "handler = { respond = { body = \"\" } }";
    let table = [
        (
            rule("root = \"/nonexistent/root\""),
            "directory `/nonexistent/root`",
        ),
        (
            rule("rules = [{ handler = { proxy = \"nowhere\" } }]"),
            "nowhere",
        ),
        (
            rule(&format!(
                "auth = {{ file = \"/nonexistent/passwords\" }}\nrules = [{{ {respond} }}]"
            )),
            "/nonexistent/passwords",
        ),
        (
            rule(&format!(
                "rules = [{{ {respond}, scripts = {{ access = \"/nonexistent/a.rb\" }} }}]"
            )),
            "/nonexistent/a.rb",
        ),
        (
            rule("user = \"nobodysuch\"\nroot = \"/\"\nrules = [{ handler = { cgi = true } }]"),
            "nobodysuch",
        ),
        (
            format!("workers = 1\n{}", site("a", "a2")),
            "`workers` is set in two files",
        ),
        (
            format!("last_good = \"/tmp/x\"\n{}", site("a", "a2")),
            "`last_good` stands in the first file alone",
        ),
        (
            format!("include = [\"/nonexistent/x.toml\"]\n{}", site("a", "a2")),
            "cannot include",
        ),
        (
            format!("include = [\"more/broken\"]\n{}", site("a", "a2")),
            "more/broken: set aside: it is left out",
        ),
    ];
    gateway.directory().write("sites.d/more/broken", "[[sites");
    for (number, (text, complaint)) in table.iter().enumerate() {
        write(&gateway, "a.toml", text);
        let new = format!("b of {number}");
        write(&gateway, "b.toml", site("b", &new));
        let told = reload(&gateway);
        assert!(told.contains(complaint), "{complaint}: {told}");
        assert_eq!(ask(&gateway, "b"), new, "{complaint}");
        let mine = if complaint.starts_with("more") {
            "a2"
        } else {
            "a1"
        };
        assert_eq!(ask(&gateway, "a"), mine, "{complaint}");
    }
    write(&gateway, "a.toml", b"\xff\xfe");
    let told = reload(&gateway);
    assert!(told.contains("a.toml`: not UTF-8 on line 1"), "{told}");
    assert_eq!(ask(&gateway, "a"), "a2");
}

#[test]
fn a_version_that_no_longer_goes_with_the_rest_is_left_out_until_it_does() {
    let mut gateway = started(&[("a.toml", &site_of_app("a")), ("b.toml", &site("b", "b1"))]);
    assert_eq!(ask(&gateway, "a"), "a");
    write(&gateway, "a.toml", "[[sites");
    reload(&gateway);
    assert_eq!(ask(&gateway, "a"), "a");
    gateway.reload(&MAIN.replace("upstreams.app", "upstreams.other"));
    let told = reload(&gateway);
    assert!(told.contains("does not go with the rest"), "{told}");
    assert_eq!(
        (ask(&gateway, "a"), ask(&gateway, "b")),
        ("default".into(), "b1".into())
    );
    gateway.reload(MAIN);
    let told = reload(&gateway);
    assert!(told.contains("stays in force"), "{told}");
    assert_eq!(ask(&gateway, "a"), "a");
}

#[test]
fn what_is_wrong_with_the_operators_own_file_still_refuses_all() {
    let mut gateway = started(&[("a.toml", &site("a", "a1"))]);
    write(&gateway, "a.toml", "[[sites");
    gateway.reload(&format!("wrokers = 1\n{MAIN}"));
    gateway.wait_for_message("reload refused");
    let (status, told) = said(&gateway, &["check"]);
    assert_eq!(status, Some(2));
    assert!(
        told.contains("wrokers") && told.contains("a.toml:1:"),
        "{told}"
    );
    let refuse = MAIN.replace("\"keep\"", "\"refuse\"");
    gateway.reload(&refuse);
    let (status, told) = said(&gateway, &["reload"]);
    assert_eq!(status, Some(2), "{told}");
    assert!(
        told.contains("reload refused, the old configuration serves on"),
        "{told}"
    );
    assert_eq!(ask(&gateway, "a"), "a1");
}
