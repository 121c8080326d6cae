//! The keeper of private keys, from outside: what it may do, what the server cannot see, and what
//! becomes of files that are wrong or change.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::{Duration, Instant};

use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, PKCS_RSA_SHA256};
use rustix::process::{Pid, Signal, kill_process};
use testkit::{Gateway, PATIENCE, eventually, free_port};

use crate::fixtures::certificates::{chain_of, write_pair};
use crate::fixtures::memory::{found_in_memory, secrets};

const CONFIG: &str = r#"
workers = 1
[[listen]]
address = "127.0.0.1:{port}"
[[listen]]
address = "127.0.0.1:{tls}"
tls = true
[[sites]]
hosts = ["a.example"]
tls = { certificate = "a.pem", key = "a.key" }
rules = [{ handler = { respond = { body = "a" } } }]
[[sites]]
hosts = ["b.example"]
tls = { certificate = "b.pem", key = "b.key" }
rules = [{ handler = { respond = { body = "b" } } }]
"#;

fn gateway(config: &str) -> testkit::gateway::Builder {
    let port = free_port();
    Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), config).with("tls", port)
}

/// Two sites with keys of different kinds.
fn two_sites() -> (testkit::gateway::Builder, [KeyPair; 2]) {
    let builder = gateway(CONFIG);
    let directory = builder.directory();
    let a = write_pair(directory, "a", &["a.example"], &PKCS_ECDSA_P256_SHA256);
    let b = write_pair(directory, "b", &["b.example"], &PKCS_RSA_SHA256);
    (builder, [a, b])
}

/// The lines of a process's status.
fn status(pid: u32) -> BTreeMap<String, String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let lines = lines.map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
    lines.collect()
}

#[test]
fn the_keeper_can_do_nothing_but_sign() {
    let (builder, _) = two_sites();
    let gateway = builder.start();
    let (keeper, server) = (gateway.keeper_pid(), gateway.server_pid());
    let facts = status(keeper);
    assert_eq!(facts["Seccomp"], "2", "a filter holds");
    assert_eq!(facts["NoNewPrivs"], "1");
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(facts[set], "0000000000000000", "{set}");
    }
    let limits = fs::read_to_string(format!("/proc/{keeper}/limits")).unwrap();
    let limit = |name: &str| {
        let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().rev().nth(2).unwrap().to_owned()
    };
    assert_eq!(limit("Max core file size"), "0");
    assert_eq!(limit("Max open files"), "2112");
    for task in fs::read_dir(format!("/proc/{keeper}/task")).unwrap() {
        let text = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        assert!(text.contains("Seccomp:\t2"), "every thread is shut in");
    }
    if !testkit::lacks_root("becoming others") {
        assert_eq!(facts["CapBnd"], "0000000000000000");
        let user = |facts: &BTreeMap<String, String>| facts["Uid"].clone();
        assert_ne!(user(&facts), user(&status(server)));
        assert!(!facts["Uid"].contains("0\t0"), "{}", facts["Uid"]);
        // Who may not be dumped belongs to root, and to nobody of the same user.
        let owner = fs::metadata(format!("/proc/{keeper}/mem")).unwrap().uid();
        assert_eq!(owner, 0);
    }
    let open = testkit::processes::open_files(keeper);
    let is_known = |path: &std::path::PathBuf| {
        let path = path.to_string_lossy();
        path.starts_with("socket:")
            || path == "/dev/null"
            || path.ends_with("/stdout")
            || path.ends_with("/stderr")
    };
    assert!(open.iter().all(is_known), "{open:?}");
}

#[test]
fn no_key_lies_in_the_memory_of_the_server() {
    if testkit::lacks_root("reading the memory of others") {
        return;
    }
    let (builder, keys) = two_sites();
    let gateway = builder.start();
    for key in &keys {
        let secrets = secrets(key);
        let found = found_in_memory(gateway.keeper_pid(), &secrets);
        assert!(found > 0, "what is searched for is found where it is");
        assert_eq!(found_in_memory(gateway.server_pid(), &secrets), 0);
        assert_eq!(found_in_memory(gateway.spawner_pid(), &secrets), 0);
    }
}

#[test]
fn without_a_listener_that_speaks_tls_there_is_no_keeper() {
    let config = CONFIG.replace("tls = true\n", "");
    let builder = gateway(&config);
    let gateway = builder.start();
    assert_eq!(gateway.children().len(), 2);
}

#[test]
fn a_key_that_is_not_the_certificates_keeps_the_gateway_from_starting() {
    let (builder, _) = two_sites();
    write_pair(builder.directory(), "other", &["a.example"], &PKCS_ED25519);
    let other = fs::read(builder.directory().path().join("other.key")).unwrap();
    builder.directory().write("a.key", other);
    builder.directory().write("b.pem", "nothing\n");
    let mut gateway = builder.launch();
    assert_eq!(gateway.wait().code(), Some(1));
    let said = gateway.stderr();
    for expected in [
        "a.key: not the private key of",
        "take the one that was made with it",
        "b.pem: no certificate is in it",
    ] {
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn a_file_that_changes_counts_without_a_reload_and_a_broken_one_keeps_the_old() {
    let (builder, _) = two_sites();
    let gateway = builder.start();
    let directory = gateway.directory();
    // One after the other: between the two they do not fit, and what was there holds.
    let key = write_pair(directory, "a", &["a.example"], &PKCS_ED25519);
    gateway.wait_for_message("a.pem: taken");
    directory.write("a.pem", "half a cert");
    gateway.wait_for_message("no certificate is in it");
    gateway.wait_for_message("the certificate from before is answered with");
    gateway.signal(Signal::HUP);
    gateway.wait_for_message("1 certificate is broken: nagaya check tells why");
    let before = gateway.stderr().matches("a.pem: taken").count();
    directory.write("a.pem", chain_of(&key, &["a.example", "www.a.example"]));
    eventually(PATIENCE, "the new certificate to be taken", || {
        let taken = gateway.stderr().matches("a.pem: taken").count();
        (taken > before).then_some(())
    });
}

#[test]
fn a_reload_with_a_wrong_key_changes_nothing() {
    let (builder, _) = two_sites();
    let mut gateway = builder.start();
    let keeper = gateway.keeper_pid();
    let config = format!(
        "{CONFIG}[[sites]]\nhosts = [\"c.example\"]\n\
         tls = {{ certificate = \"a.pem\", key = \"b.key\" }}\n\
         rules = [{{ handler = {{ respond = {{ body = \"c\" }} }} }}]\n"
    );
    let config = config.replace("a.pem\", key = \"b.key", "c.pem\", key = \"b.key");
    write_pair(gateway.directory(), "c", &["c.example"], &PKCS_ED25519);
    gateway.reload(&config);
    gateway.wait_for_message("b.key: not the private key of");
    gateway.wait_for_message("nagaya.toml:18:");
    gateway.wait_for_message("reload refused, the old configuration serves on");
    gateway.reload(&config.replace("c.pem\", key = \"b.key", "c.pem\", key = \"c.key"));
    gateway.wait_for_message("generation 2 serves 3 sites");
    assert_eq!(gateway.keeper_pid(), keeper);
    gateway.reload(&CONFIG.replace("tls = true\n", ""));
    gateway.wait_for_message("generation 3 serves 2 sites");
    eventually(PATIENCE, "the keeper to go", || {
        (gateway.children().len() == 2).then_some(())
    });
}

#[test]
fn what_is_wrong_in_a_file_that_may_be_set_aside_is_its_sites_loss() {
    let config = CONFIG.replace(
        "workers = 1",
        "workers = 1\ninclude = [{ files = \"more/*.toml\", broken = \"keep\" }]",
    );
    let builder = gateway(&config);
    write_pair(builder.directory(), "a", &["a.example"], &PKCS_ED25519);
    write_pair(builder.directory(), "b", &["b.example"], &PKCS_ED25519);
    builder.directory().write(
        "more/c.toml",
        "[[sites]]\nhosts = [\"c.example\"]\ntls = { certificate = \"c.pem\" }\n\
         rules = [{ handler = { respond = { body = \"c\" } } }]\n",
    );
    let gateway = builder.start();
    gateway.wait_for_message("there is no certificate in its place");
    gateway.wait_for_message("serves 3 sites");
}

#[test]
fn a_keeper_that_is_killed_comes_back_with_every_key() {
    let (builder, keys) = two_sites();
    let gateway = builder.start();
    let first = gateway.keeper_pid();
    let id = i32::try_from(first).ok().and_then(Pid::from_raw).unwrap();
    kill_process(id, Signal::KILL).unwrap();
    gateway.wait_for_message("lost the keeper");
    let second = eventually(PATIENCE, "another keeper", || {
        let now = gateway.keeper_pid();
        (now != first).then_some(now)
    });
    if !testkit::lacks_root("reading the memory of others") {
        eventually(PATIENCE, "it to have the keys", || {
            let has = |key: &KeyPair| found_in_memory(second, &secrets(key)) > 0;
            keys.iter().all(has).then_some(())
        });
    }
    assert!(gateway.children().contains(&gateway.server_pid()));
}

#[test]
fn a_keeper_that_does_not_answer_is_replaced_within_a_dozen_seconds() {
    let (builder, _) = two_sites();
    let gateway = builder.start();
    let first = gateway.keeper_pid();
    let id = i32::try_from(first).ok().and_then(Pid::from_raw).unwrap();
    let begun = Instant::now();
    kill_process(id, Signal::STOP).unwrap();
    gateway.wait_for_message("lost the keeper: it does not answer");
    assert!(begun.elapsed() < Duration::from_secs(20));
    eventually(PATIENCE, "another keeper", || {
        (gateway.keeper_pid() != first).then_some(())
    });
}

#[test]
fn an_upgrade_brings_a_keeper_of_its_own_with_every_key() {
    let (builder, keys) = two_sites();
    let gateway = builder.start();
    gateway.wait_for_message("ready: generation 1 ");
    let first = gateway.keeper_pid();
    gateway.signal(Signal::USR2);
    gateway.wait_for_message("the program is a new one generation=2");
    testkit::processes::await_ended(first);
    let second = gateway.keeper_pid();
    assert_ne!(second, first);
    if !testkit::lacks_root("reading the memory of others") {
        eventually(PATIENCE, "it to have the keys", || {
            let has = |key: &KeyPair| found_in_memory(second, &secrets(key)) > 0;
            keys.iter().all(has).then_some(())
        });
    }
    // Server, spawner and keeper: nothing was lost and started again.
    eventually(PATIENCE, "three processes", || {
        (gateway.children().len() == 3).then_some(())
    });
    assert!(
        !gateway.stderr().contains("lost the"),
        "{}",
        gateway.stderr()
    );
}

#[test]
fn a_certificate_for_development_is_made_and_its_authority_stays() {
    let config = CONFIG.replace("certificate = \"a.pem\", key = \"a.key\"", "local = true");
    let builder = gateway(&config);
    write_pair(builder.directory(), "b", &["b.example"], &PKCS_ED25519);
    let gateway = builder.start();
    gateway.wait_for_message("an authority for development was made");
    let path = gateway.directory().path().join("nagaya-development.pem");
    let mode = fs::metadata(&path).unwrap().mode();
    assert_eq!(mode & 0o777, 0o600);
    let public = fs::read_to_string(path.with_extension("crt")).unwrap();
    assert!(public.contains("BEGIN CERTIFICATE") && !public.contains("PRIVATE"));
    let kept = fs::read(&path).unwrap();
    gateway.signal(Signal::HUP);
    gateway.wait_for_message("generation 2 serves");
    assert_eq!(fs::read(&path).unwrap(), kept);
}

#[test]
fn check_warns_of_hosts_that_no_certificate_is_good_for() {
    let config = r#"
[[listen]]
address = "127.0.0.1:{port}"
tls = { default = "c.example" }
[tls]
certificates = ["{dir}/*.pem"]
[[sites]]
hosts = ["a.example", "b.a.example", "c.example", "*.d.example"]
tls = { redirect = true }
rules = [{ handler = { respond = { body = "a" } } }]
[[sites]]
hosts = ["plain.example"]
rules = [{ handler = { respond = { body = "a" } } }]
[[sites]]
hosts = ["own.example", "own.a.example"]
tls = { certificate = "a.pem" }
rules = [{ handler = { respond = { body = "a" } } }]
"#;
    let builder = gateway(config);
    let directory = builder.directory();
    let key = KeyPair::generate().unwrap();
    let chain = chain_of(&key, &["a.example", "*.a.example"]);
    let both = directory.write("a.pem", chain + &key.serialize_pem());
    fs::set_permissions(both, PermissionsExt::from_mode(0o600)).unwrap();
    let (status, _, warned) = builder.run(&["check"]);
    assert!(status.success(), "{warned}");
    assert!(
        warned.contains("no certificate is good for c.example: "),
        "{warned}"
    );
    assert!(
        warned.contains("good for own.example: the one that its site names has other names"),
        "{warned}"
    );
    assert_eq!(warned.matches("no certificate").count(), 2, "{warned}");
}

#[test]
fn check_judges_certificates_as_of_a_day() {
    let (builder, keys) = two_sites();
    let (status, said, _) = builder.run(&["check"]);
    assert!(status.success() && said.contains("fine (2 sites"), "{said}");
    // As made here they are valid from 1975 to 4096.
    for (day, expected) in [
        ("1974-12-31", "not valid before 1975-01-01"),
        ("4096-01-03", "expired on 4096-01-01"),
        ("2030-06-01", ""),
    ] {
        let (status, _, warned) = builder.run(&["check", "--at", day]);
        assert!(status.success(), "{warned}");
        assert!(warned.contains(expected), "{warned}");
        assert_eq!(warned.is_empty(), expected.is_empty(), "{warned}");
    }
    assert_eq!(
        builder.run(&["check", "--at", "tomorrow"]).0.code(),
        Some(2)
    );
    builder.directory().write("b.key", keys[0].serialize_pem());
    let (status, _, warned) = builder.run(&["check"]);
    assert_eq!(status.code(), Some(2));
    assert!(warned.contains("error: ") && warned.contains("b.key: not the private key of"));
    assert!(
        warned.contains(&place_of(&builder, "b.key")) && warned.contains("1 problem\n"),
        "{warned}"
    );
    // Nothing else that is wrong hides it.
    let broken = format!("wrokers = 1\n{}", CONFIG.replace("a.pem", "gone.pem"));
    let builder = gateway(&broken);
    builder
        .directory()
        .write("b.pem", chain_of(&keys[1], &["b.example"]));
    builder.directory().write("b.key", keys[0].serialize_pem());
    let (status, _, warned) = builder.run(&["check"]);
    assert_eq!(status.code(), Some(2));
    for expected in [
        "unknown key `wrokers`",
        "gone.pem: no such file",
        "b.key: not the private key of",
    ] {
        assert!(warned.contains(expected), "{expected}: {warned}");
    }
    for name in ["gone.pem", "b.key"] {
        assert!(
            warned.contains(&place_of(&builder, name)),
            "{name}: {warned}"
        );
    }
}

/// Where a configuration names a file: `nagaya.toml:LINE:COLUMN`.
fn place_of(builder: &testkit::gateway::Builder, name: &str) -> String {
    let file = builder.directory().path().join("nagaya.toml");
    let text = fs::read_to_string(file).expect("it was written");
    let quoted = format!("\"{name}\"");
    let found = text
        .lines()
        .zip(1..)
        .find_map(|(line, number)| Some((number, line.find(&quoted)? + 1)));
    let (line, column) = found.unwrap_or_else(|| panic!("{name}: {text}"));
    format!("nagaya.toml:{line}:{column}")
}
