//! Scripts of the phase `ssl_handshake` in the running gateway: what they see, what is shown for their word, and what
//! that word cannot do.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use rcgen::{PKCS_ECDSA_P256_SHA256, PKCS_ED25519};
use rustix::process::{Pid, Signal, kill_process};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use testkit::gateway::Builder;
use testkit::{Gateway, PATIENCE, TempDir, a_redis, eventually, free_port};

use crate::fixtures::certificates::write_pair;
use crate::fixtures::memory::{found_in_memory, secrets};
use crate::fixtures::tls::{TlsClient, credulous, of_the_guide};

const CONFIG: &str = r#"
workers = 2
{process}
[control]
socket = "{dir}/control"
[[listen]]
address = "127.0.0.1:{port}"
[[listen]]
address = "127.0.0.1:{tls}"
tls = {listen}
[tls]
certificates = ["{dir}/own.pem"]
script_files = "{dir}/customers"
[scripts]
cpu = "1s"
[[sites]]
hosts = ["*.shop.example"]
tls = { script = true }
scripts = { ssl_handshake = {script} }
rules = [{ handler = { script = { code = "{content}" } } }]
[[sites]]
hosts = ["files.example"]
root = "{dir}"
[[sites]]
hosts = ["planned.example"]
rules = [{ handler = { respond = { body = "planned" } } }]
"#;

const BY_FILE: &str = r#"
ssl = Nginx::SSL.new
ssl.certificate = "{dir}/customers/#{ssl.servername}.pem"
ssl.certificate_key = "{dir}/customers/#{ssl.servername}.key"
"#;

const BY_DATA: &str = r#"
ssl = Nginx::SSL.new
ssl.certificate_data = File.read "{dir}/customers/#{ssl.servername}.pem"
ssl.certificate_key_data = File.read "{dir}/customers/#{ssl.servername}.key"
"#;

/// A gateway for the shop's customers, who are `one` and `two`, with a script that says what is shown.
fn builder_with(script: &str, listen: &str, process: &str) -> Builder {
    let port = free_port();
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG)
        .with("tls", port)
        .with("listen", listen)
        .with("process", process)
        .with("content", "Nginx.rputs Userdata.new.seen.to_s")
        .with("script", "\"{dir}/certificate.rb\"");
    let directory = builder.directory();
    let dir = directory.path().display().to_string();
    directory.write("certificate.rb", script.replace("{dir}", &dir));
    for (name, host, algorithm) in [
        (
            "customers/one.shop.example",
            "one.shop.example",
            &PKCS_ECDSA_P256_SHA256,
        ),
        (
            "customers/two.shop.example",
            "two.shop.example",
            &PKCS_ECDSA_P256_SHA256,
        ),
        (
            "customers/alien.shop.example",
            "alien.elsewhere",
            &PKCS_ECDSA_P256_SHA256,
        ),
    ] {
        write_pair(directory, name, &[host], algorithm);
    }
    write_pair(
        directory,
        "own",
        &["*.shop.example", "planned.example"],
        &PKCS_ECDSA_P256_SHA256,
    );
    let key = fs::read_to_string(directory.path().join("own.key")).expect("a key");
    let chain = fs::read_to_string(directory.path().join("own.pem")).expect("a chain");
    directory.write("own.pem", format!("{chain}{key}"));
    builder
}

fn builder(script: &str) -> Builder {
    builder_with(script, "true", "")
}

/// The certificate in a file of a directory.
fn leaf(directory: &TempDir, file: &str) -> Vec<u8> {
    let der = CertificateDer::from_pem_file(directory.path().join(file)).expect("a certificate");
    der.to_vec()
}

/// What is shown to a client that asks for a host, or why nothing is.
fn shown(to: SocketAddr, host: &str) -> Result<Vec<u8>, String> {
    let client = TlsClient::connect(&credulous(), [127, 0, 0, 1], to, host);
    client
        .map(|client| client.shown())
        .map_err(|error| error.to_string())
}

fn tls_address(gateway: &Gateway) -> SocketAddr {
    let config =
        fs::read_to_string(gateway.directory().path().join("nagaya.toml")).expect("a file");
    let line = config
        .lines()
        .filter(|line| line.starts_with("address"))
        .nth(1);
    let address = line
        .and_then(|line| line.split('"').nth(1))
        .expect("an address");
    address.parse().expect("an address")
}

/// What `nagaya why --tls` says of a name.
fn why(gateway: &Gateway, name: &str) -> String {
    gateway.command(&["why", "--tls", name]).1
}

#[test]
fn files_that_a_script_names_are_shown_and_a_changed_one_counts_within_seconds() {
    let gateway = builder(BY_FILE).start();
    let (to, directory) = (tls_address(&gateway), gateway.directory());
    for name in ["one", "two"] {
        let file = format!("customers/{name}.shop.example.pem");
        for _ in 0..3 {
            let shown = shown(to, &format!("{name}.shop.example"));
            assert_eq!(shown, Ok(leaf(directory, &file)), "{}", gateway.stderr());
        }
    }
    let mut client = TlsClient::connect(&credulous(), [127, 0, 0, 1], to, "one.shop.example");
    let asked = client.as_mut().expect("a client").get("/");
    assert_eq!(asked.expect("an answer").0, 200);
    write_pair(
        directory,
        "customers/one.shop.example",
        &["one.shop.example"],
        &PKCS_ED25519,
    );
    let now = leaf(directory, "customers/one.shop.example.pem");
    // This client of ours knows no Ed25519: it is refused as soon as the new one counts.
    eventually(PATIENCE, "the changed file", || {
        shown(to, "one.shop.example").err().map(drop)
    });
    write_pair(
        directory,
        "customers/one.shop.example",
        &["one.shop.example"],
        &PKCS_ECDSA_P256_SHA256,
    );
    assert_ne!(now, leaf(directory, "customers/one.shop.example.pem"));
    eventually(PATIENCE, "the next one", || {
        let now = leaf(directory, "customers/one.shop.example.pem");
        (shown(to, "one.shop.example") == Ok(now)).then_some(())
    });
}

#[test]
fn what_cannot_be_shown_is_refused_and_told() {
    let gateway = builder(BY_FILE).start();
    let (to, directory) = (tls_address(&gateway), gateway.directory());
    let path = directory.path();
    write_pair(
        directory,
        "secret",
        &["out.shop.example"],
        &PKCS_ECDSA_P256_SHA256,
    );
    for end in ["pem", "key"] {
        let link = path.join(format!("customers/out.shop.example.{end}"));
        std::os::unix::fs::symlink(path.join(format!("secret.{end}")), link).expect("a link");
    }
    write_pair(
        directory,
        "customers/half.shop.example",
        &["half.shop.example"],
        &PKCS_ED25519,
    );
    fs::copy(
        path.join("customers/one.shop.example.key"),
        path.join("customers/half.shop.example.key"),
    )
    .expect("a copy");
    for (name, said) in [
        ("none", "none.shop.example.pem: no such file"),
        ("out", "out.shop.example.pem: "),
        ("alien", "it is good for no host of the site *.shop.example"),
        ("half", "half.shop.example.key: not the private key of"),
    ] {
        let host = format!("{name}.shop.example");
        let error = shown(to, &host).expect_err("refused");
        assert!(error.contains("InternalError"), "{error}");
        let told = why(&gateway, &host);
        assert!(
            told.contains("script_certificate") && told.contains(said),
            "{told}"
        );
        gateway.wait_for_message(said);
    }
    assert_eq!(
        shown(to, "one.shop.example"),
        Ok(leaf(directory, "customers/one.shop.example.pem"))
    );
}

#[test]
fn files_outside_of_the_directories_are_none() {
    let script = r#"
ssl = Nginx::SSL.new
paths = { "up" => "{dir}/customers/../own.pem", "full" => "{dir}/own.pem", "here" => "own.pem" }
ssl.certificate = paths[ssl.servername.split(".").first]
"#;
    let gateway = builder(script).start();
    let to = tls_address(&gateway);
    for name in ["up", "full", "here"] {
        let host = format!("{name}.shop.example");
        assert!(shown(to, &host).is_err(), "{name}");
        assert!(why(&gateway, &host).contains("own.pem: "), "{name}");
    }
    // What is no name at all raises.
    assert!(shown(to, "other.shop.example").is_err());
    gateway.wait_for_message("a certificate or a key is a String");
}

#[test]
fn nothing_below_the_directories_is_served_to_anybody() {
    let builder = builder(BY_FILE);
    for name in ["seen.txt", "customers/notes.txt"] {
        builder.directory().write(name, "text");
    }
    let gateway = builder.start();
    for (path, status) in [
        ("seen.txt", "200"),
        ("customers/notes.txt", "404"),
        ("customers/one.shop.example.pem", "404"),
    ] {
        let url = format!("http://{}/{path}", gateway.address());
        let output = Command::new("curl")
            .args([
                "-s",
                "--max-time",
                "25",
                "-o",
                "/dev/null",
                "-w",
                "%{http_code}",
            ])
            .args(["-H", "Host: files.example", &url])
            .output()
            .expect("curl runs");
        assert_eq!(String::from_utf8_lossy(&output.stdout), status, "{path}");
    }
}

#[test]
fn data_that_a_script_has_in_hand_is_shown_and_replaces_no_planned_key() {
    let builder = builder(BY_DATA);
    for name in ["one", "two"] {
        // A script has no more rights than the server has.
        let key = format!("customers/{name}.shop.example.key");
        let readable = fs::Permissions::from_mode(0o644);
        fs::set_permissions(builder.directory().path().join(key), readable).expect("readable");
    }
    let gateway = builder.start();
    let (to, directory) = (tls_address(&gateway), gateway.directory());
    let own = leaf(directory, "own.pem");
    for name in ["one.shop.example", "two.shop.example"] {
        let file = format!("customers/{name}.pem");
        assert_eq!(
            shown(to, name),
            Ok(leaf(directory, &file)),
            "{}",
            gateway.stderr()
        );
    }
    // With the key that is planned for everybody: its own certificate goes on being signed for.
    let key = fs::read_to_string(directory.path().join("own.key")).expect("a key");
    let pair = rcgen::KeyPair::from_pem(&key).expect("a key");
    directory.write("customers/like.shop.example.key", &key);
    let chain = crate::fixtures::certificates::chain_of(&pair, &["like.shop.example"]);
    directory.write("customers/like.shop.example.pem", chain);
    let like = leaf(directory, "customers/like.shop.example.pem");
    assert_eq!(shown(to, "like.shop.example"), Ok(like));
    assert_eq!(shown(to, "planned.example"), Ok(own));
    directory.write("customers/bad.shop.example.pem", "no PEM");
    directory.write("customers/bad.shop.example.key", "no PEM");
    assert!(shown(to, "bad.shop.example").is_err());
    let told = why(&gateway, "bad.shop.example");
    assert!(
        told.contains("certificate_data by a script of site *.shop.example: no certificate"),
        "{told}"
    );
}

/// The guide's own configuration and script.
#[test]
fn a_script_that_asks_redis_waits_for_it_and_shows_what_it_says() {
    let Some(redis) = a_redis() else { return };
    let section = "Certificates that scripts choose";
    let port = free_port();
    let config = of_the_guide(section, "toml")
        .replace("0.0.0.0:443", "127.0.0.1:{tls}")
        .replace("/etc/ssl/customers", "{dir}/customers")
        .replace("/var/www/html", "{dir}/www");
    let config = format!(
        "{config}\n[control]\nsocket = \"{{dir}}/control\"\n[[listen]]\naddress = \"127.0.0.1:{{port}}\"\n"
    );
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), &config).with("tls", port);
    let directory = builder.directory();
    let dir = directory.path().display().to_string();
    let script = of_the_guide(section, "ruby")
        .replace("6379", &redis.address().port().to_string())
        .replace("/etc/ssl/customers", &format!("{dir}/customers"));
    directory.write("hooks/certificate.rb", script);
    directory.write("www/index.html", "hello");
    write_pair(
        directory,
        "pair",
        &["*.example.jp"],
        &PKCS_ECDSA_P256_SHA256,
    );
    fs::create_dir_all(directory.path().join("customers/7")).expect("a directory");
    for (from, to) in [("pair.pem", "chain.pem"), ("pair.key", "key.pem")] {
        let to = directory.path().join("customers/7").join(to);
        fs::rename(directory.path().join(from), to).expect("moved");
    }
    assert_eq!(redis.command(&["SET", "rented.example.jp", "7"]), "OK");
    let gateway = builder.start();
    let (to, directory) = (
        SocketAddr::from(([127, 0, 0, 1], port)),
        gateway.directory(),
    );
    assert_eq!(
        shown(to, "rented.example.jp"),
        Ok(leaf(directory, "customers/7/chain.pem")),
        "{}",
        gateway.stderr()
    );
    let refused = shown(to, "free.example.jp").expect_err("refused");
    assert!(refused.contains("InternalError"), "{refused}");
    let told = why(&gateway, "free.example.jp");
    assert!(
        told.contains("script_raised") && told.contains("nobody has"),
        "{told}"
    );
    gateway.wait_for_message("nobody has free.example.jp");
}

#[test]
fn a_script_may_refuse_fail_or_say_nothing() {
    let script = r#"
case Nginx::SSL.new.servername.split(".").first
when "refused" then Nginx.return 403
when "failed" then raise "on purpose"
when "key" then Nginx::SSL.new.certificate_key = "{dir}/customers/one.shop.example.key"
when "logs" then Nginx::SSL.log Nginx::LOG_ERR, "logged in passing"
end
"#;
    let gateway = builder(script).start();
    let (to, directory) = (tls_address(&gateway), gateway.directory());
    let own = leaf(directory, "own.pem");
    for (name, alert, reason) in [
        ("refused", "UnrecogniZedName", "script_said"),
        ("failed", "InternalError", "script_raised"),
        ("key", "InternalError", "script_certificate"),
    ] {
        let host = format!("{name}.shop.example");
        let error = shown(to, &host).expect_err("refused").to_lowercase();
        let alert = alert.to_lowercase().replace('z', "");
        assert!(
            error.replace('s', "").contains(&alert.replace('s', "")),
            "{name}: {error}"
        );
        assert!(why(&gateway, &host).contains(reason), "{name}");
    }
    assert_eq!(shown(to, "logs.shop.example"), Ok(own));
    gateway.wait_for_message("logged in passing");
    let config = fs::read_to_string(directory.path().join("nagaya.toml")).expect("a file");
    let file = format!("\"{}/certificate.rb\"", directory.path().display());
    let allowed = format!("{{ file = {file}, on_error = \"allow\" }}");
    let mut gateway = gateway;
    gateway.reload(&config.replacen(&file, &allowed, 1));
    gateway.wait_for_message("ready: generation 2");
    assert!(shown(to, "failed.shop.example").is_ok());
    gateway.wait_for_message("the handshake goes on");
}

#[test]
fn scripts_run_for_no_site_that_does_not_let_them() {
    let everybody = "[[sites]]\nhosts = [\"closed.example\"]\nscripts = { ssl_handshake = \"{dir}/certificate.rb\" }\n\
        rules = [{ handler = { respond = { body = \"closed\" } } }]\n";
    let script = "raise \"it runs\" unless Nginx::SSL.new.servername.end_with?(\".shop.example\")";
    let mut gateway = builder(script).start();
    let to = tls_address(&gateway);
    let path = gateway.directory().path().join("nagaya.toml");
    let dir = gateway.directory().path().display().to_string();
    let config = fs::read_to_string(path).expect("a file");
    gateway
        .directory()
        .write("certificate.rb", "raise \"it runs\"");
    gateway.reload(&format!("{config}{}", everybody.replace("{dir}", &dir)));
    gateway.wait_for_message("ready: generation 2");
    assert!(shown(to, "planned.example").is_ok());
    assert!(shown(to, "one.shop.example").is_err());
    assert!(!why(&gateway, "planned.example").contains("script"));
    // Where no certificate is planned for a name, and no script may say one, there is none.
    assert!(shown(to, "closed.example").is_err());
    assert!(why(&gateway, "closed.example").contains("no_certificate"));
}

#[test]
fn no_key_of_a_file_lies_in_the_memory_of_the_server() {
    if testkit::lacks_root("reading the memory of others") {
        return;
    }
    let builder = builder(BY_FILE);
    let host = "kept.shop.example";
    let key = write_pair(
        builder.directory(),
        &format!("customers/{host}"),
        &[host],
        &PKCS_ECDSA_P256_SHA256,
    );
    let gateway = builder.start();
    assert!(shown(tls_address(&gateway), host).is_ok());
    let secrets = secrets(&key);
    assert!(found_in_memory(gateway.keeper_pid(), &secrets) > 0);
    assert_eq!(found_in_memory(gateway.server_pid(), &secrets), 0);
}

/// What ngx_mruby's own tests say of the class: names, ports and versions are seen, and none is a name, too.
#[test]
fn a_script_sees_name_version_and_port_and_clients_without_a_name() {
    let script = r#"
ssl = Nginx::SSL.new
Userdata.new.seen = [ssl.servername.empty? ? "servername is empty" : ssl.servername, ssl.tls_version,
  ssl.local_port, Nginx::Connection.new.remote_ip].join(" ")
"#;
    let gateway = builder_with(script, "{ default = \"x.shop.example\" }", "").start();
    let to = tls_address(&gateway);
    let ask = |more: &[&str]| {
        let output = Command::new("curl")
            .args(["-sk", "--max-time", "25", "-H", "Host: one.shop.example"])
            .args(more)
            .output()
            .expect("curl runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let resolve = format!("one.shop.example:{}:127.0.0.1", to.port());
    let url = format!("https://one.shop.example:{}/", to.port());
    let seen = |name: &str, version: &str| format!("{name} {version} {} 127.0.0.1", to.port());
    // The VM that saw the handshake is that of the worker which has the connection.
    let named = ["--resolve", &resolve, &url];
    assert_eq!(
        ask(&named),
        seen("one.shop.example", "TLSv1.3"),
        "{}",
        gateway.stderr()
    );
    let old = [&["--tls-max", "1.2"][..], &named].concat();
    assert_eq!(ask(&old), seen("one.shop.example", "TLSv1.2"));
    let unnamed = format!("https://127.0.0.1:{}/", to.port());
    assert_eq!(ask(&[&unnamed]), seen("servername is empty", "TLSv1.3"));
}

#[test]
fn what_a_script_takes_is_counted_as_the_handshakes() {
    let script = "count = 0; count += 1 while count < 1_000_000";
    let log = "[log]\naccess = \"{dir}/access.log\"\nformat = \"json\"";
    let gateway = builder_with(script, "true", log).start();
    let to = tls_address(&gateway);
    let mut client =
        TlsClient::connect(&credulous(), [127, 0, 0, 1], to, "one.shop.example").expect("a client");
    assert_eq!(client.get("/").expect("an answer").0, 200);
    let log = gateway.directory().path().join("access.log");
    let spent_us = eventually(PATIENCE, "the record", || {
        let text = fs::read_to_string(&log).ok()?;
        let value = text.split("\"handshake_us\":").nth(1)?;
        value
            .split(|it: char| !it.is_ascii_digit())
            .next()?
            .parse::<u64>()
            .ok()
    });
    // A million turns of a loop take no machine less than that.
    assert!(spent_us > 5_000, "{spent_us} us");
}

#[test]
fn a_ticket_opens_nothing_that_a_script_refuses_now() {
    let script = r#"
ssl = Nginx::SSL.new
Nginx.return 403 if File.exist? "{dir}/customers/closed"
ssl.certificate = "{dir}/customers/one.shop.example.pem"
ssl.certificate_key = "{dir}/customers/one.shop.example.key"
"#;
    let gateway = builder(script).start();
    let (to, directory) = (tls_address(&gateway), gateway.directory());
    let client = r#"
import os, socket, ssl, sys
port, closed = int(sys.argv[1]), sys.argv[2]
it = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
it.check_hostname, it.verify_mode = False, ssl.CERT_NONE
def connect(session=None):
    plain = socket.create_connection(("127.0.0.1", port), 25)
    return it.wrap_socket(plain, server_hostname="one.shop.example", session=session)
first = connect()
first.sendall(b"GET / HTTP/1.1\r\nHost: one.shop.example\r\n\r\n"); first.recv(4096)
again = connect(first.session)
print(again.session_reused)
open(closed, "w").close()
try: connect(first.session); print("open")
except ssl.SSLError as error: print(error.reason)
os.remove(closed)
print(connect(first.session).session_reused)
"#;
    let closed = directory.path().join("customers/closed");
    let output = Command::new("python3")
        .args(["-c", client, &to.port().to_string()])
        .arg(closed)
        .output()
        .expect("python3 runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(
        said,
        "True\nTLSV1_UNRECOGNIZED_NAME\nTrue\n",
        "{output:?} {}",
        gateway.stderr()
    );
}

#[test]
fn scripts_certificates_outlive_reloads_and_the_keeper() {
    let mut gateway = builder(BY_FILE).start();
    let to = tls_address(&gateway);
    let expected = leaf(gateway.directory(), "customers/two.shop.example.pem");
    assert_eq!(shown(to, "two.shop.example"), Ok(expected.clone()));
    let config =
        fs::read_to_string(gateway.directory().path().join("nagaya.toml")).expect("a file");
    for generation in 2..5 {
        gateway.reload(&config);
        gateway.wait_for_message(&format!("ready: generation {generation} "));
        assert_eq!(shown(to, "two.shop.example"), Ok(expected.clone()));
    }
    let keeper = Pid::from_raw(gateway.keeper_pid().try_into().expect("a pid")).expect("a pid");
    kill_process(keeper, Signal::KILL).expect("killed");
    gateway.wait_for_message("lost the keeper");
    eventually(PATIENCE, "the next keeper to sign", || {
        (shown(to, "two.shop.example") == Ok(expected.clone())).then_some(())
    });
}
