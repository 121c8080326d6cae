//! Back ends that speak TLS: nginx, OpenSSL's test server, Python, and such as mean harm.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use testkit::client::{Body, reply};
use testkit::{Gateway, Outcome, Peer, Reply, TempDir, eventually, free_port, quick_once};

use crate::fixtures::certificates::Authority;
use crate::fixtures::memory::{found_in_memory, secrets};

const CONFIG: &str = r#"
workers = 1
[log]
access = "{dir}/access.log"
format = "json"
[timeouts]
upstream_connect = "5s"
"#;

/// A directory with an authority's certificate, and of it that of `app.test`, as which everybody listens.
fn certificates() -> (TempDir, Authority) {
    let (directory, authority) = (TempDir::new(), Authority::new());
    directory.write("ca.pem", authority.pem.clone());
    let hosts = ["app.test", "localhost", "127.0.0.1"];
    authority.write_pair(&directory, "app", &hosts, |_| ());
    (directory, authority)
}

/// A gateway whose paths `/NAME/…` are forwarded to these upstreams, each its name, lines and handler.
fn gateway(directory: &TempDir, upstreams: &[(&str, String, &str)]) -> Gateway {
    let mut config = CONFIG.to_owned();
    for (name, lines, _) in upstreams {
        config += &format!("[upstreams.{name}]\nfails = 1000\n{lines}\n");
    }
    config += "[[sites]]\nhosts = [\"*\"]\nrules = [\n";
    for (name, _, more) in upstreams {
        let proxy = format!("{{ upstream = \"{name}\", strip_prefix = \"/{name}\"{more} }}");
        config += &format!(
            "{{ match = {{ path = \"/{name}/*\" }}, handler = {{ proxy = {proxy} }} }},\n"
        );
    }
    config += "]\n";
    let ca = directory.path().join("ca.pem");
    Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), &config)
        .with("ca", ca.display())
        .start()
}

/// Servers, and the terms they are spoken with on.
fn servers(address: impl ToString, tls: &str) -> String {
    let address = address.to_string();
    format!("servers = [\"{address}\"]\ntls = {tls}")
}

const BY_CA: &str = "{ ca = \"{ca}\" }";

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: front.test\r\n\r\n").into_bytes()
}

fn ask(gateway: &Gateway, path: &str) -> Reply {
    reply(gateway.ask(&get(path)))
}

/// nginx with TLS, what stands in `server` said of its server.
fn nginx(directory: &TempDir, server: &str) -> Option<Peer> {
    let certificates = directory.path().display();
    Peer::nginx(&format!(
        "server {{\nlisten 127.0.0.1:{{port}} ssl;\nroot {{dir}};\n\
         ssl_certificate {certificates}/app.pem;\nssl_certificate_key {certificates}/app.key;\n\
         client_max_body_size 0;\n{server}\n}}\n"
    ))
}

/// What a connection is, as nginx tells.
const TOLD: &str = "location /told { return 200 \"$connection $ssl_protocol $ssl_session_reused $ssl_server_name\"; }";

#[test]
fn nginx_is_spoken_with_in_either_version_over_kept_connections_as_who_it_is_called() {
    let (directory, _) = certificates();
    for version in ["TLSv1.2", "TLSv1.3"] {
        let server = format!("ssl_protocols {version};\n{TOLD}");
        let Some(nginx) = nginx(&directory, &server) else {
            return;
        };
        let port = nginx.address().port();
        let named = "{ ca = \"{ca}\", name = \"app.test\" }";
        let upstreams = [
            ("host", servers(format!("localhost:{port}"), BY_CA), ""),
            ("named", servers(nginx.address(), named), ""),
            ("address", servers(nginx.address(), BY_CA), ""),
        ];
        let gateway = gateway(&directory, &upstreams);
        // An address is no name to ask for (RFC 6066, 3).
        for (name, told) in [
            ("host", "localhost"),
            ("named", "app.test"),
            ("address", ""),
        ] {
            let mut client = gateway.client();
            let mut connections = std::collections::BTreeSet::new();
            for _ in 0..10 {
                let told_now = reply(client.ask(&get(&format!("/{name}/told")))).text();
                let (connection, rest) = told_now.split_once(' ').expect("words");
                assert_eq!(rest, format!("{version} . {told}"));
                connections.insert(connection.to_owned());
            }
            // One goes back just after the reply, so that a quick successor may open a second.
            assert!(connections.len() <= 3, "{version} {name}: {connections:?}");
        }
    }
}

#[test]
fn a_session_is_resumed_where_connections_are_not_kept() {
    let (directory, _) = certificates();
    for version in ["TLSv1.2", "TLSv1.3"] {
        let server = format!("ssl_protocols {version};\nkeepalive_timeout 0;\n{TOLD}");
        let Some(nginx) = nginx(&directory, &server) else {
            return;
        };
        let gateway = gateway(&directory, &[("a", servers(nginx.address(), BY_CA), "")]);
        let told = |_| ask(&gateway, "/a/told").text();
        let told: Vec<_> = (0..4).map(told).collect();
        let is_resumed = |told: &String| told.contains(&format!("{version} r "));
        let resumed = told.iter().map(is_resumed).collect::<Vec<_>>();
        assert_eq!(resumed, [false, true, true, true], "{told:?}");
    }
}

#[test]
fn large_bodies_pass_whole_both_ways() {
    let (directory, _) = certificates();
    let Some(nginx) = nginx(&directory, "") else {
        return;
    };
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    std::fs::write(nginx.directory().join("large"), &bytes).expect("a file");
    let Some(echo) = python(&directory) else {
        return;
    };
    let upstreams = [
        ("down", servers(nginx.address(), BY_CA), ""),
        ("up", servers(echo.address(), BY_CA), ""),
    ];
    let gateway = gateway(&directory, &upstreams);
    assert!(ask(&gateway, "/down/large").body == bytes);
    let mut client = gateway.client();
    let length = bytes.len();
    let head = format!("PUT /up/echo HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
    client.send(&[head.as_bytes(), &bytes].concat());
    let echoed = reply(client.read_reply(Body::Framed));
    assert!(echoed.status == 200 && echoed.body == bytes);
}

/// Answers as the path asks, over TLS.
const PYTHON: &str = r#"
import os, socket, ssl, threading
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("{dir}/app.pem", "{dir}/app.key")
def cut(tls): os.close(tls.detach())
def serve(plain):
    tls = context.wrap_socket(plain, server_side=True)
    data = b""
    while True:
        while b"\r\n\r\n" not in data:
            more = tls.recv(65536)
            if not more: return
            data += more
        head, data = data.split(b"\r\n\r\n", 1)
        path = head.split(b" ")[1].decode()
        if path == "/echo":
            length = [int(line[16:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length: ")][0]
            while len(data) < length: data += tls.recv(65536)
            tls.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length + data)
            data = b""
        elif path == "/length":
            tls.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwhole")
            return cut(tls)
        elif path == "/chunks":
            tls.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nwhole\r\n0\r\n\r\n")
            return cut(tls)
        elif path == "/end":
            tls.sendall(b"HTTP/1.1 200 OK\r\n\r\nwhole")
            return tls.unwrap()
        elif path == "/cut":
            tls.sendall(b"HTTP/1.1 200 OK\r\n\r\nhalf")
            return cut(tls)
        elif path == "/torn":
            tls.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nwhole\r\n")
            return cut(tls)
        elif path == "/short":
            tls.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
            return tls.unwrap()
        elif path == "/hints":
            tls.sendall(b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n")
            tls.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwhole")
        elif path == "/elsewhere":
            host = [line[6:] for line in head.split(b"\r\n") if line.lower().startswith(b"host: ")][0]
            tls.sendall(b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: https://%s/there\r\n\r\n" % host)
        elif path == "/upgrade":
            tls.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: upgrade\r\n\r\n")
            while True:
                if data: tls.sendall(data)
                data = tls.recv(65536)
                if not data: return tls.unwrap()
def attempt(plain):
    try: serve(plain)
    except OSError: pass
listener = socket.create_server(("127.0.0.1", int(os.environ["PORT"])))
while True:
    threading.Thread(target=attempt, args=(listener.accept()[0],), daemon=True).start()
"#;

fn python(directory: &TempDir) -> Option<Peer> {
    let dir = directory.path().display().to_string();
    Peer::python(&PYTHON.replace("{dir}", &dir))
}

#[test]
fn a_reply_that_ends_with_the_connection_is_whole_only_by_tls_s_word() {
    let (directory, _) = certificates();
    let Some(python) = python(&directory) else {
        return;
    };
    let gateway = gateway(&directory, &[("a", servers(python.address(), BY_CA), "")]);
    for path in ["/a/length", "/a/chunks", "/a/end"] {
        let whole = ask(&gateway, path);
        assert!(whole.complete, "{path}");
        assert_eq!(whole.text(), "whole", "{path}");
    }
    let half = ask(&gateway, "/a/cut");
    assert!(!half.complete, "somebody may have cut it: {half:?}");
    gateway.wait_for_message("without TLS's word for it");
    // One that says how long it is, is not whole by that word.
    for path in ["/a/torn", "/a/short"] {
        let half = ask(&gateway, path);
        assert!(!half.complete, "{path}: {half:?}");
    }
}

#[test]
fn hints_before_a_reply_reach_the_client() {
    let (directory, _) = certificates();
    let Some(python) = python(&directory) else {
        return;
    };
    let more = ", early_hints = \"all\"";
    let gateway = gateway(&directory, &[("a", servers(python.address(), BY_CA), more)]);
    let mut client = gateway.client();
    let hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n";
    for _ in 0..3 {
        client.send(&get("/a/hints"));
        assert!(client.read_exactly(hints.len()) == hints);
        assert_eq!(reply(client.read_reply(Body::Framed)).text(), "whole");
    }
}

#[test]
fn kept_connections_end_with_the_authorities_and_the_certificate_they_began_with() {
    let (directory, authority) = certificates();
    authority.write_pair(&directory, "gateway", &["gateway.test"], |_| ());
    authority.write_pair(&directory, "next", &["gateway.test"], |_| ());
    let dir = directory.path().display();
    let server = format!(
        "ssl_client_certificate {dir}/ca.pem; ssl_verify_client on;\n\
         location / {{ return 200 \"$connection $ssl_client_serial\"; }}"
    );
    let Some(nginx) = nginx(&directory, &server) else {
        return;
    };
    let files = format!("certificate = \"{dir}/gateway.pem\", key = \"{dir}/gateway.key\"");
    let terms = format!("{{ ca = \"{{ca}}\", {files} }}");
    let mut gateway = gateway(&directory, &[("a", servers(nginx.address(), &terms), "")]);
    let told = |gateway: &Gateway| {
        let told = ask(gateway, "/a/").text();
        let words = told.split_once(' ');
        words.map(|(connection, serial)| (connection.to_owned(), serial.to_owned()))
    };
    let first = told(&gateway).expect("who we are");
    eventually(Duration::from_secs(20), "a kept connection", || {
        (told(&gateway)? == first).then_some(())
    });
    let place = |name: &str| directory.path().join(name);
    for end in ["key", "pem"] {
        let (from, to) = (format!("next.{end}"), format!("gateway.{end}"));
        std::fs::rename(place(&from), place(&to)).expect("a file");
    }
    let next = eventually(Duration::from_secs(20), "another certificate", || {
        told(&gateway).filter(|(_, serial)| *serial != first.1)
    });
    assert_ne!(next.0, first.0);
    // Another authority: nobody it does not vouch for is spoken with any more.
    directory.write("ca.pem", Authority::new().pem);
    let config = std::fs::read_to_string(gateway.directory().path().join("nagaya.toml"));
    gateway.reload(&config.expect("its configuration"));
    gateway.wait_for_message("generation 2 serves");
    assert_eq!(ask(&gateway, "/a/").status, 502);
    gateway.wait_for_message("upstream_certificate");
}

#[test]
fn a_connection_that_its_server_has_left_without_a_word_is_made_anew() {
    let (directory, _) = certificates();
    let Some(python) = python(&directory) else {
        return;
    };
    let gateway = gateway(&directory, &[("a", servers(python.address(), BY_CA), "")]);
    let mut client = gateway.client();
    for _ in 0..20 {
        assert_eq!(reply(client.ask(&get("/a/length"))).text(), "whole");
    }
}

#[test]
fn a_tunnel_passes_bytes_both_ways_until_either_end_has_said_its_last() {
    let (directory, _) = certificates();
    let Some(python) = python(&directory) else {
        return;
    };
    let gateway = gateway(&directory, &[("a", servers(python.address(), BY_CA), "")]);
    let mut client = gateway.client();
    client.send(
        b"GET /a/upgrade HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n",
    );
    assert_eq!(reply(client.read_reply(Body::Never)).status, 101);
    let said: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
    client.send(&said);
    assert!(client.read_exactly(said.len()) == said);
    client.finish_sending();
    assert_eq!(client.read_to_end().0, b"");
}

#[test]
fn a_server_that_names_itself_by_https_means_a_path_here() {
    let (directory, _) = certificates();
    let Some(python) = python(&directory) else {
        return;
    };
    let more = ", host = \"upstream\"";
    let gateway = gateway(&directory, &[("a", servers(python.address(), BY_CA), more)]);
    let moved = ask(&gateway, "/a/elsewhere");
    assert_eq!(moved.head.field("location"), Some("/a/there"));
}

/// OpenSSL's test server with these arguments; killed when dropped.
struct OpenSsl(Child, SocketAddr);

impl OpenSsl {
    fn start(directory: &TempDir, arguments: &[&str]) -> Self {
        let port = free_port();
        let mut child = Command::new("openssl")
            .args(["s_server", "-quiet", "-accept", &port.to_string()])
            .args(["-cert", "app.pem", "-key", "app.key"])
            .args(arguments)
            .current_dir(directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl runs");
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        eventually(Duration::from_secs(20), "openssl to listen", || {
            assert_eq!(child.try_wait().expect("a child"), None);
            std::net::TcpStream::connect(address).ok()
        });
        Self(child, address)
    }
}

impl Drop for OpenSsl {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn openssl_is_spoken_with_and_what_it_refuses_is_told() {
    let (directory, _) = certificates();
    let usual = OpenSsl::start(&directory, &["-www"]);
    let old = OpenSsl::start(
        &directory,
        &["-www", "-tls1_1", "-cipher", "ALL:@SECLEVEL=0"],
    );
    let upstreams = [
        ("usual", servers(usual.1, BY_CA), ""),
        ("old", servers(old.1, BY_CA), ""),
    ];
    let gateway = gateway(&directory, &upstreams);
    let page = ask(&gateway, "/usual/");
    assert_eq!(page.status, 200);
    assert!(page.text().contains("TLSv1.3"), "{}", page.text());
    assert_eq!(ask(&gateway, "/old/").status, 502);
    gateway.wait_for_message("upstream_handshake");
    gateway.wait_for_message("it ended the handshake with the alert ProtocolVersion");
}

/// Writes certificates that are not what `app.test` has to show: `expired`, `stranger`, and `itself`, an authority's.
fn write_odd_pairs(directory: &TempDir, authority: &Authority) {
    let long_ago = |params: &mut rcgen::CertificateParams| {
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2002, 1, 1);
    };
    authority.write_pair(directory, "expired", &["127.0.0.1"], long_ago);
    Authority::new().write_pair(directory, "stranger", &["127.0.0.1"], |_| ());
    let own = rcgen::KeyPair::generate().expect("a key");
    let mut itself = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a name");
    itself.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let itself = itself.self_signed(&own).expect("signed").pem();
    directory.write("itself.pem", itself);
    directory.write("itself.key", own.serialize_pem());
}

/// nginx with these certificates at the ports given back, and without TLS at its own.
fn nginx_showing<const N: usize>(
    directory: &TempDir,
    names: [&str; N],
) -> Option<(Peer, [SocketAddr; N])> {
    let dir = directory.path().display();
    let mut blocks = "server { listen 127.0.0.1:{port}; }\n".to_owned();
    let addresses = names.map(|name| {
        let port = free_port();
        blocks += &format!(
            "server {{ listen 127.0.0.1:{port} ssl; ssl_certificate {dir}/{name}.pem;\n\
             ssl_certificate_key {dir}/{name}.key; return 200 fine; }}\n"
        );
        SocketAddr::from(([127, 0, 0, 1], port))
    });
    Some((Peer::nginx(&blocks)?, addresses))
}

/// Waits for the record of a request to `/NAME/` with this reason.
fn await_record(gateway: &Gateway, name: &str, reason: &str) {
    let log = gateway.directory().path().join("access.log");
    let (path, reason) = (format!("/{name}/"), format!("\"reason\":\"{reason}\""));
    eventually(Duration::from_secs(20), "its record", || {
        let log = std::fs::read_to_string(&log).unwrap_or_default();
        let is_it = |line: &str| line.contains(&path) && line.contains(&reason);
        log.lines().any(is_it).then_some(())
    });
}

#[test]
fn a_server_that_is_not_who_it_has_to_be_is_502_with_a_reason() {
    let (directory, authority) = certificates();
    write_odd_pairs(&directory, &authority);
    let names = ["expired", "stranger", "itself"];
    let Some((nginx, [expired, stranger, itself])) = nginx_showing(&directory, names) else {
        return;
    };
    let Some(python) = python(&directory) else {
        return;
    };
    let dir = directory.path().display();
    let by_itself = format!("{{ ca = \"{dir}/itself.pem\" }}");
    let itself_as = format!("{{ ca = \"{dir}/itself.pem\", name = \"app.test\" }}");
    let other = "{ ca = \"{ca}\", name = \"other.test\" }";
    let upstreams = [
        ("expired", servers(expired, BY_CA), ""),
        ("stranger", servers(stranger, BY_CA), ""),
        ("machine", servers(python.address(), "true"), ""),
        ("name", servers(python.address(), other), ""),
        ("plain", servers(nginx.address(), BY_CA), ""),
        ("itself", servers(itself, &by_itself), ""),
        ("itself_as", servers(itself, &itself_as), ""),
        ("anybody", servers(stranger, "{ verify = false }"), ""),
    ];
    let gateway = gateway(&directory, &upstreams);
    let (wrong, unsaid) = ("upstream_certificate", "upstream_handshake");
    for (name, reason, why) in [
        ("expired", wrong, "its certificate has expired"),
        ("stranger", wrong, "nobody who is believed vouches for"),
        ("machine", wrong, "nobody who is believed vouches for"),
        ("name", wrong, "its certificate is another's"),
        ("itself_as", wrong, "its certificate is another's"),
        ("plain", unsaid, "it does not speak TLS"),
    ] {
        let refused = ask(&gateway, &format!("/{name}/length"));
        assert_eq!(refused.status, 502, "{name}");
        assert!(!refused.text().contains(reason), "for the log alone");
        gateway.wait_for_message(why);
        await_record(&gateway, name, reason);
    }
    for name in ["itself", "anybody"] {
        assert_eq!(ask(&gateway, &format!("/{name}/")).text(), "fine", "{name}");
    }
}

/// A server that does this with its first connection that says something; the others are let go.
fn listening(serve: impl FnOnce(std::net::TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || serve(listener.accept().expect("a connection").0));
    address
}

fn server_of_rustls(directory: &TempDir) -> rustls::ServerConnection {
    let file = |name: &str| std::fs::read(directory.path().join(name)).expect("a file");
    let chain = CertificateDer::from_pem_slice(&file("app.pem")).expect("a certificate");
    let key = PrivateKeyDer::from_pem_slice(&file("app.key")).expect("a key");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("a version")
        .with_no_client_auth()
        .with_single_cert(vec![chain], key)
        .expect("a pair");
    config.send_half_rtt_data = true;
    rustls::ServerConnection::new(Arc::new(config)).expect("a server")
}

const FORGED: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged";

#[test]
fn cve_2026_1642_what_a_server_says_before_or_within_the_handshake_is_no_reply() {
    let (directory, _) = certificates();
    // In clear before TLS; as a record of TLS that nothing has sealed; under TLS, but unasked.
    let plain = listening(|mut stream| {
        stream.write_all(FORGED).expect("sent");
        let _ = stream.read(&mut [0; 4_096]);
        std::thread::sleep(Duration::from_secs(1));
    });
    let unsealed = listening(|mut stream| {
        let head = [23, 3, 3, 0, u8::try_from(FORGED.len()).expect("short")];
        stream.write_all(&[&head, FORGED].concat()).expect("sent");
        let _ = stream.read(&mut [0; 4_096]);
        std::thread::sleep(Duration::from_secs(1));
    });
    let mut server = server_of_rustls(&directory);
    let unasked = listening(move |mut stream| {
        while server.is_handshaking() && !server.wants_write() {
            server.read_tls(&mut stream).expect("a hello");
            server.process_new_packets().expect("a hello");
        }
        server.writer().write_all(FORGED).expect("taken");
        let mut flight = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut flight).expect("bytes");
        }
        stream.write_all(&flight).expect("sent");
        let _ = stream.read(&mut [0; 4_096]);
        std::thread::sleep(Duration::from_secs(1));
    });
    let upstreams = [
        ("plain", servers(plain, BY_CA), ""),
        ("unsealed", servers(unsealed, BY_CA), ""),
        ("unasked", servers(unasked, BY_CA), ""),
    ];
    let gateway = gateway(&directory, &upstreams);
    for (name, why) in [
        ("plain", "it does not speak TLS"),
        ("unsealed", "upstream_handshake"),
        ("unasked", "it spoke before it was asked"),
    ] {
        let refused = ask(&gateway, &format!("/{name}/"));
        assert_eq!(refused.status, 502, "{name}: {}", refused.text());
        assert!(!refused.text().contains("forged"), "{name}");
        gateway.wait_for_message(why);
    }
}

#[test]
fn a_handshake_that_does_not_go_on_is_504_within_the_time_to_connect() {
    let (directory, _) = certificates();
    // The kernel takes connections for it, and nobody reads.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let upstreams = [("a", servers(address, BY_CA), "")];
    let mut gateway = gateway(&directory, &upstreams);
    let config = std::fs::read_to_string(gateway.directory().path().join("nagaya.toml"));
    let config = config
        .expect("its configuration")
        .replace("\"5s\"", "\"300ms\"");
    gateway.reload(&config);
    quick_once(Duration::from_secs(3), "504", || {
        let start = std::time::Instant::now();
        assert_eq!(ask(&gateway, "/a/").status, 504);
        start.elapsed()
    });
    gateway.wait_for_message("no end of its handshake");
}

#[test]
fn for_whom_a_connection_is_made_is_said_before_the_hello() {
    let (directory, _) = certificates();
    let dir = directory.path().display();
    let Some(nginx) = Peer::nginx(&format!(
        "server {{ listen 127.0.0.1:{{port}} ssl proxy_protocol;\n\
         ssl_protocols TLSv1.3;
         ssl_certificate {dir}/app.pem; ssl_certificate_key {dir}/app.key;\n\
         location / {{ return 200 \"$proxy_protocol_addr $ssl_protocol\"; }} }}\n"
    )) else {
        return;
    };
    let lines = |version| {
        let servers = servers(nginx.address(), BY_CA);
        format!("{servers}\nproxy_protocol = \"{version}\"")
    };
    let upstreams = [("v1", lines("v1"), ""), ("v2", lines("v2"), "")];
    let gateway = gateway(&directory, &upstreams);
    for path in ["/v1/", "/v2/", "/v1/"] {
        assert_eq!(ask(&gateway, path).text(), "127.0.0.1 TLSv1.3", "{path}");
    }
}

#[test]
fn a_server_that_speaks_no_tls_is_passed_over_for_the_next() {
    let (directory, _) = certificates();
    let Some(python) = python(&directory) else {
        return;
    };
    let Some(nginx) = Peer::nginx("server { listen 127.0.0.1:{port}; }") else {
        return;
    };
    let (plain, fine) = (nginx.address(), python.address());
    let lines = format!("servers = [\"{plain}\", \"{fine}\"]\ntls = {BY_CA}");
    let gateway = gateway(&directory, &[("a", lines, "")]);
    for _ in 0..4 {
        assert_eq!(ask(&gateway, "/a/length").text(), "whole");
    }
}

#[test]
fn scripts_and_urls_lead_to_servers_that_speak_tls() {
    let (directory, _) = certificates();
    let Some(python) = python(&directory) else {
        return;
    };
    let config = format!(
        "{CONFIG}[upstreams.app]\nservers = [\"{}\"]\ntls = {{ verify = false }}\n\
         [[sites]]\nhosts = [\"*\"]\nrules = [\n\
         {{ match = {{ path = \"/length\" }}, handler = {{ proxy = {{ script = {{ code = \"'app'\" }} }} }} }},\n\
         {{ handler = {{ proxy = \"https://{0}\" }} }} ]\n",
        python.address(),
    );
    let gateway = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), &config).start();
    assert_eq!(ask(&gateway, "/length").text(), "whole");
    // By the authorities of the machine, none of which has heard of it.
    assert_eq!(ask(&gateway, "/end").status, 502);
    gateway.wait_for_message("upstream_certificate");
    assert!(matches!(gateway.ask(&get("/end")), Outcome::Reply(_)));
}

#[test]
fn a_server_that_asks_who_we_are_is_shown_a_certificate_whose_key_the_keeper_has() {
    let (directory, authority) = certificates();
    let key = authority.write_pair(&directory, "gateway", &["gateway.test"], |_| ());
    Authority::new().write_pair(&directory, "stranger", &["gateway.test"], |_| ());
    let dir = directory.path().display();
    for version in ["TLSv1.2", "TLSv1.3"] {
        let server = format!(
            "ssl_protocols {version}; ssl_client_certificate {dir}/ca.pem; ssl_verify_client on;\n\
             location / {{ return 200 \"$ssl_protocol $ssl_client_verify $ssl_session_reused\"; }}"
        );
        let Some(nginx) = nginx(&directory, &server) else {
            return;
        };
        let shown = |name: &str| {
            let files = format!("certificate = \"{dir}/{name}.pem\", key = \"{dir}/{name}.key\"");
            servers(nginx.address(), &format!("{{ ca = \"{{ca}}\", {files} }}"))
        };
        let upstreams = [
            ("gateway", shown("gateway"), ""),
            ("stranger", shown("stranger"), ""),
            ("nobody", servers(nginx.address(), BY_CA), ""),
        ];
        let gateway = gateway(&directory, &upstreams);
        for _ in 0..3 {
            let told = ask(&gateway, "/gateway/");
            let expected = format!("{version} SUCCESS .");
            assert_eq!((told.status, told.text()), (200, expected));
        }
        for name in ["stranger", "nobody"] {
            let refused = ask(&gateway, &format!("/{name}/"));
            assert_eq!(refused.status, 400, "nginx's word for it: {name} {version}");
        }
        // What changes is shown without a reload.
        let place = |name: &str| directory.path().join(name);
        let stranger = ["stranger.key", "stranger.pem"].map(|name| std::fs::read(place(name)));
        for end in ["key", "pem"] {
            let (from, to) = (format!("gateway.{end}"), format!("stranger.{end}"));
            std::fs::copy(place(&from), place(&to)).expect("a file");
        }
        eventually(Duration::from_secs(20), "the other certificate", || {
            (ask(&gateway, "/stranger/").status == 200).then_some(())
        });
        for (name, bytes) in ["stranger.key", "stranger.pem"].iter().zip(stranger) {
            std::fs::write(place(name), bytes.expect("a file")).expect("a file");
        }
        let secrets = secrets(&key);
        assert!(found_in_memory(gateway.keeper_pid(), &secrets) > 0);
        assert_eq!(found_in_memory(gateway.server_pid(), &secrets), 0);
    }
}

#[test]
fn openssl_that_wants_a_certificate_is_shown_one_and_refuses_who_has_none() {
    let (directory, authority) = certificates();
    authority.write_pair(&directory, "gateway", &["gateway.test"], |_| ());
    let both = ["gateway.pem", "gateway.key"]
        .map(|file| std::fs::read_to_string(directory.path().join(file)).expect("a file"));
    directory.write("both.pem", both.concat());
    let dir = directory.path().display();
    let wants = [
        "-www",
        "-CAfile",
        "ca.pem",
        "-Verify",
        "1",
        "-verify_return_error",
    ];
    let server = OpenSsl::start(&directory, &wants);
    let shown = format!("{{ ca = \"{{ca}}\", certificate = \"{dir}/both.pem\" }}");
    let upstreams = [
        ("shown", servers(server.1, &shown), ""),
        ("nobody", servers(server.1, BY_CA), ""),
    ];
    let gateway = gateway(&directory, &upstreams);
    let page = ask(&gateway, "/shown/");
    assert_eq!(page.status, 200);
    assert!(page.text().contains("gateway.test") || page.text().contains("Client certificate"));
    assert_eq!(ask(&gateway, "/nobody/").status, 502);
    gateway.wait_for_message("CertificateRequired");
}
