//! TLS as clients meet it: curl, OpenSSL by Python's `ssl`, and bytes that are cut anywhere.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Output};

use rustix::process::{Pid, Signal, kill_process};
use testkit::fastcgi::printed;
use testkit::{FastCgiResponder, Gateway, PATIENCE, Step, eventually, free_port};

use crate::fixtures::tls;

/// Python that connects: `open(host, …)` gives a connection under TLS, `ask` a reply's first line and body.
const CLIENT: &str = r#"
import socket, ssl, sys
port = int(sys.argv[1])
def context(version=None, certificate=None):
    it = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    it.check_hostname, it.verify_mode = False, ssl.CERT_NONE
    if version: it.minimum_version = it.maximum_version = version
    if certificate: it.load_cert_chain(certificate)
    return it
def connect(context, host, session=None):
    plain = socket.create_connection(("127.0.0.1", port), 25)
    return context.wrap_socket(plain, server_hostname=host, session=session)
def ask(tls, host, path="/"):
    tls.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    data = b""
    while b"\r\n\r\n" not in data: data += more(tls)
    head, body = data.split(b"\r\n\r\n", 1)
    length = [int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")][0]
    while len(body) < length: body += more(tls)
    return head.split(b" ")[1].decode(), body
def more(tls):
    data = tls.recv(65536)
    if not data: raise EOFError()
    return data
"#;

pub(crate) fn python(to: SocketAddr, script: &str, more: &[&str]) -> String {
    let output = Command::new("python3")
        .args(["-c", &format!("{CLIENT}\n{script}"), &to.port().to_string()])
        .args(more)
        .output()
        .expect("python3 runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

fn curl(arguments: &[&str]) -> Output {
    Command::new("curl")
        .args(["-sk", "--max-time", "25"])
        .args(arguments)
        .output()
        .expect("curl runs")
}

/// A gateway with TLS for `*.example`, whose sites are these.
pub(crate) fn gateway(listen: &str, sites: &str) -> (Gateway, SocketAddr) {
    gateway_with(listen, sites, |_| ())
}

pub(crate) fn gateway_with(
    listen: &str,
    sites: &str,
    prepare: impl FnOnce(&Path),
) -> (Gateway, SocketAddr) {
    gateway_under("", listen, sites, prepare)
}

/// As [`gateway_with`], with these keys of the process.
pub(crate) fn gateway_under(
    process: &str,
    listen: &str,
    sites: &str,
    prepare: impl FnOnce(&Path),
) -> (Gateway, SocketAddr) {
    let config = format!(
        "{process}[control]\nsocket = \"{{dir}}/control\"\n\
         [[listen]]\naddress = \"127.0.0.1:{{port}}\"\n\
         [[listen]]\naddress = \"127.0.0.1:{{tls}}\"\ntls = {listen}\n\
         [tls]\ncertificates = [\"{{dir}}/all.pem\", \"{{dir}}/live/*\"]\n{sites}"
    );
    let port = free_port();
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), &config).with("tls", port);
    let directory = builder.directory().path().to_owned();
    std::fs::create_dir(directory.join("live")).expect("a directory");
    tls::certificate(&directory.join("all.pem"), &["*.example"]);
    prepare(&directory);
    (builder.start(), SocketAddr::from(([127, 0, 0, 1], port)))
}

pub(crate) const FINE: &str = "rules = [{ handler = { respond = { body = \"fine\" } } }]\n";

#[test]
fn files_and_uploads_pass_whole_in_every_version_over_kept_connections() {
    let sites = "[[sites]]\nhosts = [\"a.example\"]\nroot = \"{dir}/www\"\n";
    let (_gateway, to) = gateway_with("true", sites, |directory| {
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
        std::fs::create_dir(directory.join("www")).expect("a directory");
        for (name, end) in [
            ("small.txt", 20),
            ("page.txt", 43_008),
            ("large.bin", 3_000_000),
        ] {
            std::fs::write(directory.join("www").join(name), &bytes[..end]).expect("a file");
        }
    });
    let script = r#"
for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
    tls = connect(context(version), "a.example")
    for name, length in (("small.txt", 20), ("page.txt", 43008), ("large.bin", 3000000), ("small.txt", 20)):
        status, body = ask(tls, "a.example", "/" + name)
        assert status == "200" and body == bytes(at % 251 for at in range(length)), (name, status, len(body))
    print(tls.version())
"#;
    assert_eq!(python(to, script, &[]), "TLSv1.2\nTLSv1.3\n");
    let url = format!("https://127.0.0.1:{}/small.txt", to.port());
    let host = ["-H", "Host: a.example"];
    // Without a name that is ours there is no certificate to show, and without a default no other.
    assert!(!curl(&[&url, host[0], host[1]]).status.success());
}

#[test]
fn plain_http_on_a_port_of_tls_is_told_so_in_words() {
    let (gateway, to) = gateway(
        "true",
        &format!("[[sites]]\nhosts = [\"a.example\"]\n{FINE}"),
    );
    let reply = curl(&["-i", &format!("http://{to}/")]);
    let text = String::from_utf8_lossy(&reply.stdout).into_owned();
    assert!(text.starts_with("HTTP/1.1 400"), "{text}");
    assert!(text.ends_with("This port speaks TLS. Come with https:// instead of http."));
    // A request of which most is still to be read does not have the words lost to a reset.
    let mut client = TcpStream::connect(to).expect("connected");
    let long = "GET /".to_owned() + &"a".repeat(200_000);
    client.write_all(long.as_bytes()).expect("taken");
    client.write_all(b" HTTP/1.1\r\n").expect("taken");
    let mut text = String::new();
    client.read_to_string(&mut text).expect("no reset");
    assert!(
        text.ends_with("Come with https:// instead of http."),
        "{text}"
    );
    drop(gateway);
}

#[test]
fn a_session_is_resumed_in_both_versions() {
    let (_gateway, to) = gateway(
        "true",
        &format!("[[sites]]\nhosts = [\"a.example\"]\n{FINE}"),
    );
    let script = r#"
for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
    it = context(version)
    tls = connect(it, "a.example")
    first, _ = ask(tls, "a.example")
    again = connect(it, "a.example", tls.session)
    second, _ = ask(again, "a.example")
    print(first, tls.session_reused, second, again.session_reused)
"#;
    let twice = "200 False 200 True\n".repeat(2);
    assert_eq!(python(to, script, &[]), twice);
}

#[test]
fn a_session_is_resumed_by_another_machine_that_has_the_same_secret() {
    let sites = format!(
        "ticket_secret = \"{{dir}}/tickets.secret\"\n[[sites]]\nhosts = [\"a.example\"]\n{FINE}"
    );
    let machine = |secret: &str| {
        let write = |directory: &Path| {
            std::fs::write(directory.join("tickets.secret"), secret).expect("written");
        };
        gateway_with("true", &sites, write)
    };
    let (one, other, stranger) = (
        machine(&"5".repeat(64)),
        machine(&"5".repeat(64)),
        machine(&"6".repeat(64)),
    );
    let script = r#"
one = port
for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
    it, port = context(version), one
    tls = connect(it, "a.example")
    ask(tls, "a.example")
    for port in map(int, sys.argv[2:]):
        again = connect(it, "a.example", tls.session)
        print(ask(again, "a.example")[0], again.session_reused)
"#;
    let ports = [other.1, stranger.1].map(|it| it.port().to_string());
    let told = python(one.1, script, &[&ports[0], &ports[1]]);
    assert_eq!(told, "200 True\n200 False\n".repeat(2));
}

#[test]
fn another_secret_counts_after_a_reload_and_not_after_one_that_was_refused() {
    let sites = format!(
        "ticket_secret = \"{{dir}}/tickets.secret\"\n[[sites]]\nhosts = [\"a.example\"]\n{FINE}"
    );
    let machine = |secret: &str| {
        let write = |directory: &Path| {
            std::fs::write(directory.join("tickets.secret"), secret).expect("written");
        };
        gateway_with("true", &sites, write)
    };
    let (old, new) = ("5".repeat(64), "6".repeat(64));
    let ((gateway, to), (_before, before), (_after, after)) =
        (machine(&old), machine(&old), machine(&new));
    let script = r#"
one, it = port, context()
tls = connect(it, "a.example")
ask(tls, "a.example")
port = int(sys.argv[2])
again = connect(it, "a.example", tls.session)
print(ask(again, "a.example")[0], again.session_reused)
"#;
    let is_resumed_at = |other: SocketAddr| match &*python(to, script, &[&other.port().to_string()])
    {
        "200 True\n" => true,
        "200 False\n" => false,
        told => panic!("{told}"),
    };
    assert!(is_resumed_at(before) && !is_resumed_at(after));
    let directory = gateway.directory().path();
    std::fs::write(directory.join("tickets.secret"), new).expect("written");
    let file = directory.join("nagaya.toml");
    let config = std::fs::read_to_string(&file).expect("its configuration");
    let wrong = format!("[log]\naccess = \"{{dir}}/all.pem/access.log\"\n{config}");
    let mut gateway = gateway;
    gateway.reload(&wrong);
    gateway.wait_for_message("the old configuration serves on");
    // A server that comes anew has no keys, and asks for them.
    let server = gateway.server_pid();
    let id = i32::try_from(server).ok().and_then(Pid::from_raw);
    kill_process(id.expect("a process id"), Signal::KILL).expect("killed");
    eventually(PATIENCE, "another server", || {
        (!gateway.children().contains(&server)).then_some(())
    });
    assert!(is_resumed_at(before) && !is_resumed_at(after));
    gateway.reload(&config);
    eventually(PATIENCE, "the new secret", || {
        is_resumed_at(after).then_some(())
    });
    assert!(!is_resumed_at(before));
}

#[test]
fn a_name_that_nobody_has_is_refused_or_shown_the_default_and_misdirected() {
    let sites = format!("[[sites]]\nhosts = [\"a.example\"]\n{FINE}");
    let script = r#"
try:
    print(ask(connect(context(), "b.elsewhere"), "b.elsewhere")[0])
except ssl.SSLError as error:
    print(error.reason)
"#;
    let (_gateway, to) = gateway("true", &sites);
    assert_eq!(python(to, script, &[]), "TLSV1_UNRECOGNIZED_NAME\n");
    let (_gateway, to) = gateway("{ default = \"a.example\" }", &sites);
    assert_eq!(python(to, script, &[]), "421\n");
}

/// Makes `by-NAME.pem`: a certificate by the authority `NAME.pem`, with its key.
fn client_certificate(directory: &Path, authority: &str) {
    let script = "openssl req -batch -nodes -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -subj /CN=somebody \
        -keyout key -out request && printf 'extendedKeyUsage=clientAuth\\n' >extensions && \
        openssl x509 -req -days 30 -in request -CA $1.pem -CAkey $1.pem -CAcreateserial -extfile extensions -out leaf && \
        cat leaf key >by-$1.pem && rm key leaf request extensions";
    let made = Command::new("sh")
        .args(["-c", script, "sh", authority])
        .current_dir(directory)
        .output()
        .expect("a shell");
    assert!(made.status.success(), "{made:?}");
}

/// CVE-2025-23419, and CVE-2026-32305's kin: terms are judged by the host that is served.
#[test]
fn a_session_without_a_client_certificate_opens_no_site_that_wants_one() {
    let sites = format!(
        "[[sites]]\nhosts = [\"open.example\"]\n{FINE}\
         [[sites]]\nhosts = [\"staff.example\"]\n{FINE}\
         tls = {{ client_ca = \"{{dir}}/staff.pem\" }}\n"
    );
    let (gateway, to) = gateway_with("true", &sites, |directory| {
        tls::certificate(&directory.join("staff.pem"), &["staff"]);
        tls::certificate(&directory.join("stranger.pem"), &["stranger"]);
        for of in ["staff", "stranger"] {
            client_certificate(directory, of);
        }
    });
    let script = r#"
def attempt(what):
    try: return what()
    except (ssl.SSLError, ConnectionError, EOFError) as error: return "refused"
staff, stranger = sys.argv[2], sys.argv[3]
it = context()
open_ = connect(it, "open.example")
print(ask(open_, "open.example")[0], ask(open_, "staff.example")[0])
print(attempt(lambda: ask(connect(it, "staff.example"), "staff.example")[0]))
try:
    again = connect(it, "staff.example", open_.session)
    print(attempt(lambda: ask(again, "staff.example")[0]))
except (ssl.SSLError, ValueError):
    print("refused")
print(attempt(lambda: ask(connect(context(None, stranger), "staff.example"), "staff.example")[0]))
own = context(None, staff)
tls = connect(own, "staff.example")
print(ask(tls, "staff.example")[0], ask(tls, "open.example")[0])
"#;
    let file = |name: &str| gateway.directory().path().join(name).display().to_string();
    let told = python(
        to,
        script,
        &[&file("by-staff.pem"), &file("by-stranger.pem")],
    );
    assert_eq!(told, "200 421\nrefused\nrefused\nrefused\n200 421\n");
}

/// A gateway whose site asks clients for certificates, and tells of them to whoever answers at `program`, by fields,
/// a script and records.
fn that_tells_of_clients(program: SocketAddr) -> (Gateway, SocketAddr) {
    let script = "Nginx::Headers_out.new[\"X-Script\"] = Nginx::Var.new.ssl_client_s_dn.to_s";
    let sites = format!(
        "[log]\naccess = \"{{dir}}/access.log\"\nformat = \"json\"\n\
         [[sites]]\nhosts = [\"staff.example\"]\nroot = \"{{dir}}/www\"\n\
         tls = {{ client_ca = \"{{dir}}/staff.pem\", client_auth = \"ask\" }}\n\
         scripts = {{ header_filter = {{ code = '{script}' }} }}\n\
         [sites.reply_headers.set]\n\
         X-Subject = \"$tls_client_subject\"\nX-Verify = \"$tls_client_verify\"\n\
         [[sites.rules]]\nhandler = {{ fastcgi = {{ address = \"{program}\" }} }}\nmatch = {{ file = \"*.php\" }}\n"
    );
    gateway_with("true", &sites, |directory| {
        std::fs::create_dir(directory.join("www")).expect("a directory");
        std::fs::write(directory.join("www/a.php"), "not shown").expect("a file");
        tls::certificate(&directory.join("staff.pem"), &["staff"]);
        client_certificate(directory, "staff");
    })
}

/// What programs, fields, scripts and records say of a client's certificate, whatever the client says of itself.
#[test]
fn what_a_clients_certificate_says_is_told_and_no_field_can_forge_it() {
    let page = b"Content-Type: text/plain\r\n\r\nhello";
    let responder = FastCgiResponder::start(move |_| vec![Step::Send(printed(page))]);
    let (gateway, to) = that_tells_of_clients(responder.address());
    let certificate = gateway.directory().path().join("by-staff.pem");
    let certificate = certificate.display().to_string();
    let resolve = format!("staff.example:{}:127.0.0.1", to.port());
    let url = format!("https://staff.example:{}/a.php", to.port());
    let ask = |more: &[&str]| {
        let forged = [
            "SSL_CLIENT_S_DN: CN=root",
            "SSL-CLIENT-S-DN: CN=root",
            "X-Subject: CN=root",
        ];
        let mut arguments = vec!["-i", "--http1.1", "--resolve", &resolve, &url];
        arguments.extend(forged.iter().flat_map(|field| ["-H", field]));
        arguments.extend(more);
        String::from_utf8_lossy(&curl(&arguments).stdout).into_owned()
    };
    for (more, subject, verified) in [
        (
            &["--cert", &certificate][..],
            Some("CN=somebody"),
            "SUCCESS",
        ),
        (&[][..], None, "NONE"),
    ] {
        let text = ask(more);
        assert!(
            text.starts_with("HTTP/1.1 200"),
            "{text}\n{}",
            gateway.stderr()
        );
        let shown = subject.unwrap_or_default();
        for field in [
            format!("X-Subject: {shown}\r\n"),
            format!("X-Verify: {verified}\r\n"),
            format!("X-Script: {shown}\r\n"),
        ] {
            assert!(text.contains(&field), "{field} is missing in {text}");
        }
        let call = responder.next_call();
        assert_eq!(call.param("SSL_CLIENT_VERIFY"), Some(verified));
        assert_eq!(call.param("SSL_CLIENT_S_DN"), subject);
        assert_eq!(
            call.param("SSL_CLIENT_S_DN_CN"),
            subject.map(|_| "somebody")
        );
        assert_eq!(call.param("SSL_CLIENT_I_DN"), subject.map(|_| "CN=test"));
        let serial = call.param("SSL_CLIENT_M_SERIAL");
        assert_eq!(serial.is_some(), subject.is_some());
        assert!(serial.is_none_or(|it| it.bytes().all(|it| it.is_ascii_hexdigit())));
        let pem = call.param("SSL_CLIENT_CERT");
        assert_eq!(
            pem.is_some_and(|it| it.starts_with("-----BEGIN CERTIFICATE-----\n")),
            subject.is_some()
        );
    }
    let log = gateway.directory().path().join("access.log");
    let record = eventually(tls::PATIENCE, "records", || {
        let text = std::fs::read_to_string(&log).ok()?;
        (text.matches("\"target\":\"/a.php\"").count() >= 2).then_some(text)
    });
    assert_eq!(
        record
            .matches("\"tls_client_subject\":\"CN=somebody\"")
            .count(),
        1,
        "{record}"
    );
}

#[test]
fn what_comes_without_tls_is_sent_to_it_and_browsers_are_told_to_stay() {
    let sites = format!(
        "[[sites]]\nhosts = [\"a.example\"]\n{FINE}tls = {{ redirect = true, hsts = \"365d\" }}\n"
    );
    let (gateway, to) = gateway("{ default = \"a.example\" }", &sites);
    let plain = format!("http://{}/a%20b?c=d", gateway.address());
    let reply = curl(&["-i", "-H", "Host: a.example", &plain]);
    let text = String::from_utf8_lossy(&reply.stdout).into_owned();
    assert!(text.starts_with("HTTP/1.1 308"), "{text}");
    assert!(
        text.contains("Location: https://a.example/a%20b?c=d\r\n"),
        "{text}"
    );
    assert!(!text.contains("Strict-Transport-Security"), "{text}");
    let sealed = format!("https://a.example:{}/", to.port());
    let resolve = format!("a.example:{}:127.0.0.1", to.port());
    let reply = curl(&["-i", "--http1.1", "--resolve", &resolve, &sealed]);
    let text = String::from_utf8_lossy(&reply.stdout).into_owned();
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    assert!(
        text.contains("Strict-Transport-Security: max-age=31536000\r\n"),
        "{text}"
    );
}

#[test]
fn a_killed_keeper_ends_no_connection_and_the_next_one_signs() {
    let (gateway, to) = gateway(
        "true",
        &format!("[[sites]]\nhosts = [\"a.example\"]\n{FINE}"),
    );
    let script = r#"
import os, signal
tls = connect(context(), "a.example")
first = ask(tls, "a.example")[0]
os.kill(int(sys.argv[2]), signal.SIGKILL)
print(first, ask(tls, "a.example")[0], ask(connect(context(), "a.example"), "a.example")[0])
"#;
    let keeper = gateway.keeper_pid();
    assert_eq!(python(to, script, &[&keeper.to_string()]), "200 200 200\n");
}
