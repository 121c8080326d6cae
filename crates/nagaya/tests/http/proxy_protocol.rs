//! Balancers in front that say for whom they speak: made by hand, and nginx and HAProxy as they are.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use testkit::client::{Body, RawClient, reply};
use testkit::{Gateway, Outcome, Peer, eventually, free_port};

const CONFIG: &str = r#"
workers = 2
timeouts = { header = "500ms" }
caps = { connections_per_client = 3 }
[[listen]]
address = "127.0.0.1:{port}"
[[listen]]
address = "127.0.0.1:{balanced}"
proxy_protocol = { from = ["127.0.0.0/8"] }
[[listen]]
address = "unix:{dir}/front.sock"
mode = "0600"
proxy_protocol = { from = "unix" }
[log]
access = "{dir}/access.log"
format = "json"
[[sites]]
hosts = ["*"]
reply_headers = { set = { X-Client = "$client" } }
rules = [{ handler = { respond = { status = 200, body = "hello" } } }]
"#;

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";
const LAST: &[u8] = b"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n";
const LINE: &[u8] = b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\r\n";
/// 192.0.2.8:1 to 198.51.100.1:443 with a unique id.
const BLOCK: &[u8] =
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x13\xc0\0\x02\x08\xc6\x33\x64\x01\0\x01\x01\xbb\x05\0\x04id-1";

struct Front {
    gateway: Gateway,
    balanced: u16,
}

impl Front {
    fn start() -> Self {
        let balanced = free_port();
        let gateway = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG)
            .with("balanced", balanced)
            .start();
        Self { gateway, balanced }
    }

    fn balancer(&self) -> RawClient {
        RawClient::connect(([127, 0, 0, 1], self.balanced).into())
    }

    /// What a client is told to be who comes with these bytes before its request.
    fn client_with(&self, header: &[u8]) -> String {
        let mut balancer = self.balancer();
        balancer.send(&[header, LAST].concat());
        let told = reply(balancer.read_reply(Body::Framed));
        told.head.field("x-client").unwrap_or("nobody").to_owned()
    }

    /// The record that has this text, once it is written.
    fn record(&self, text: &str) -> String {
        eventually(Duration::from_secs(10), "a record", || {
            let log = std::fs::read_to_string(self.gateway.directory().path().join("access.log"));
            let log = log.unwrap_or_default();
            log.lines()
                .find(|line| line.contains(text))
                .map(str::to_owned)
        })
    }
}

#[test]
fn a_header_says_who_the_client_is_and_where_it_connected() {
    let front = Front::start();
    assert_eq!(front.client_with(LINE), "192.0.2.7");
    let record = front.record("\"client\":\"192.0.2.7\"");
    assert!(
        record.contains("\"peer\":\"192.0.2.7\",\"port\":443"),
        "{record}"
    );
    assert!(
        record.contains("\"proxy_sender\":\"127.0.0.1\""),
        "{record}"
    );
    assert_eq!(front.client_with(BLOCK), "192.0.2.8");
    let record = front.record("\"client\":\"192.0.2.8\"");
    assert!(record.contains("\"proxy_unique_id\":\"id-1\""), "{record}");
    for own in [
        &b"PROXY UNKNOWN\r\n"[..],
        b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0",
        b"\r\n\r\n\0\r\nQUIT\n\x21\0\0\0",
    ] {
        assert_eq!(front.client_with(own), "127.0.0.1");
    }
}

#[test]
fn a_header_may_come_byte_by_byte_and_not_a_byte_behind_it_is_lost() {
    let front = Front::start();
    for header in [LINE, BLOCK] {
        let mut balancer = front.balancer();
        balancer.send_bytewise(&[header, GET].concat());
        assert_eq!(reply(balancer.read_reply(Body::Framed)).status, 200);
        balancer.send(LAST);
        assert_eq!(reply(balancer.read_reply(Body::Framed)).status, 200);
        // The request comes with the header's last byte, or after a while.
        for cut in [1, header.len() - 1, header.len(), header.len() + 1] {
            let mut balancer = front.balancer();
            balancer.send_split(&[header, LAST].concat(), &[cut]);
            assert_eq!(reply(balancer.read_reply(Body::Framed)).status, 200);
        }
    }
}

#[test]
fn who_has_to_send_a_header_and_sends_none_is_closed_without_a_word() {
    let front = Front::start();
    for sent in [
        GET,
        b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 0443\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
        b"PROXY TCP4",
        b"",
    ] {
        let mut balancer = front.balancer();
        balancer.send(sent);
        let (came, _) = balancer.read_to_end();
        assert!(came.is_empty(), "{}", came.escape_ascii());
    }
    front
        .gateway
        .wait_for_message("no header of the PROXY protocol");
    assert!(front.gateway.stderr().contains("proxy_missing"));
}

#[test]
fn a_header_from_anybody_else_is_bad_http() {
    let front = Front::start();
    for header in [LINE, BLOCK] {
        let asked = front.gateway.ask(&[header, GET].concat());
        assert_eq!(reply(asked).status, 400);
    }
}

#[test]
fn connections_of_a_balancer_count_for_the_clients_it_speaks_for() {
    let front = Front::start();
    let open = |client: u8| {
        let mut balancer = front.balancer();
        balancer.send(format!("PROXY TCP4 192.0.2.{client} 198.51.100.1 1 443\r\n").as_bytes());
        balancer.send(GET);
        let answered = balancer.read_reply(Body::Framed);
        (matches!(answered, Outcome::Reply(_)), balancer)
    };
    let held: Vec<_> = (0..12).map(|number| open(number / 3)).collect();
    assert!(held.iter().all(|(is_answered, _)| *is_answered));
    assert!(!open(0).0, "a fourth connection of one client");
    assert!(open(9).0);
}

#[test]
fn a_unix_socket_with_a_mode_takes_a_balancers_word() {
    let front = Front::start();
    let path = front.gateway.directory().path().join("front.sock");
    let mode = std::fs::metadata(&path)
        .expect("a socket")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut balancer = UnixStream::connect(&path).expect("root may");
    balancer.write_all(&[LINE, LAST].concat()).expect("sent");
    let mut told = String::new();
    balancer.read_to_string(&mut told).expect("a reply");
    assert!(told.contains("X-Client: 192.0.2.7"), "{told}");
    let mut balancer = UnixStream::connect(&path).expect("root may");
    balancer.write_all(GET).expect("sent");
    let mut told = Vec::new();
    // It may be a reset: what was sent was not read.
    let _ = balancer.read_to_end(&mut told);
    assert!(told.is_empty());
}

#[test]
fn a_reload_changes_who_is_believed_and_who_may_connect() {
    let mut front = Front::start();
    assert_eq!(front.client_with(LINE), "192.0.2.7");
    let config = CONFIG.replace("{balanced}", &front.balanced.to_string());
    let other = config
        .replace("127.0.0.0/8", "10.0.0.0/8")
        .replace("0600", "0640");
    front.gateway.reload(&other);
    front.gateway.wait_for_message("generation 2 serves");
    let mut balancer = front.balancer();
    balancer.send(&[LINE, GET].concat());
    assert_eq!(reply(balancer.read_reply(Body::Framed)).status, 400);
    let path = front.gateway.directory().path().join("front.sock");
    let mode = std::fs::metadata(&path)
        .expect("a socket")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o640);
}

/// nginx's way to pass a connection on, told to speak for its client.
const NGINX: &str = r#"
server { listen 127.0.0.1:{port}; proxy_pass 127.0.0.1:{balanced}; proxy_protocol on; }
"#;

#[test]
fn nginx_speaks_for_its_clients() {
    let front = Front::start();
    let config = NGINX.replace("{balanced}", &front.balanced.to_string());
    let Some(nginx) = Peer::nginx_stream(&config) else {
        return;
    };
    let mut client = RawClient::connect(nginx.address());
    client.send(LAST);
    let told = reply(client.read_reply(Body::Framed));
    assert_eq!(told.head.field("x-client"), Some("127.0.0.1"));
    let port = nginx.address().port();
    let record = front.record(&format!("\"port\":{port}"));
    assert!(
        record.contains("\"proxy_sender\":\"127.0.0.1\""),
        "{record}"
    );
}

/// HAProxy in front, which speaks for its clients in each way it knows.
const HAPROXY: &str = "
frontend front
 mode tcp
 bind 127.0.0.1:{port}
 unique-id-format %{+X}o\\ %ci:%cp
 default_backend nagaya
backend nagaya
 mode tcp
 server one 127.0.0.1:{balanced} {how}
";

#[test]
fn haproxy_speaks_for_its_clients_in_both_versions() {
    let front = Front::start();
    for (how, has_id) in [
        ("send-proxy", false),
        ("send-proxy-v2", false),
        (
            "send-proxy-v2 proxy-v2-options unique-id,crc32c,authority",
            true,
        ),
    ] {
        let config = HAPROXY
            .replace("{balanced}", &front.balanced.to_string())
            .replace("{how}", how);
        let Some(haproxy) = Peer::haproxy(&config) else {
            return;
        };
        let mut client = RawClient::connect(haproxy.address());
        client.send(LAST);
        let told = reply(client.read_reply(Body::Framed));
        assert_eq!(
            (told.status, told.head.field("x-client")),
            (200, Some("127.0.0.1")),
            "{how}"
        );
        let record = front.record(&format!("\"port\":{}", haproxy.address().port()));
        let id = format!(
            "\"proxy_unique_id\":\"7F000001:{:04X}\"",
            client.local_address().port()
        );
        assert_eq!(record.contains(&id), has_id, "{how}: {record}");
    }
}

/// Back ends that must be told for whom a connection is made.
const FORWARDING: &str = r#"
workers = 1
trusted_proxies = ["127.0.0.1"]
[upstreams.app]
servers = ["{upstream}"]
proxy_protocol = "{version}"
[[sites]]
hosts = ["*"]
rules = [{ handler = { proxy = "app" } }]
"#;

fn forwarding(upstream: impl ToString, version: &str) -> Gateway {
    Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), FORWARDING)
        .with("upstream", upstream)
        .with("version", version)
        .start()
}

/// A request on behalf of a client, as a trusted proxy sends it.
fn for_client(client: &str) -> Vec<u8> {
    format!(
        "GET / HTTP/1.1\r\nHost: a.test\r\nX-Request-Id: id-1\r\nX-Forwarded-For: {client}\r\n\r\n"
    )
    .into_bytes()
}

/// What the back end says it was told of two clients, who come one after the other on one connection.
fn told_of(gateway: &Gateway, clients: [&str; 2]) -> [String; 2] {
    let mut client = gateway.client();
    clients.map(|address| {
        client.send(&for_client(address));
        let told = reply(client.read_reply(Body::Framed));
        assert_eq!(told.status, 200);
        told.text().trim().to_owned()
    })
}

const NGINX_BEHIND: &str = r#"
server {
  listen 127.0.0.1:{port} proxy_protocol;
  return 200 "$proxy_protocol_addr $proxy_protocol_port $proxy_protocol_server_port $connection_requests";
}
"#;

#[test]
fn nginx_is_told_for_whom_a_connection_is_made() {
    for version in ["v1", "v2"] {
        let Some(nginx) = Peer::nginx(NGINX_BEHIND) else {
            return;
        };
        let gateway = forwarding(nginx.address(), version);
        let port = gateway.address().port();
        // Each has a connection of its own, and a port that is not known is none.
        assert_eq!(
            told_of(&gateway, ["192.0.2.1", "192.0.2.2"]),
            ["192.0.2.1", "192.0.2.2"].map(|client| format!("{client}  {port} 1")),
            "{version}"
        );
        let own = told_of(&gateway, ["127.0.0.1", "127.0.0.1"]);
        assert!(own.iter().all(|told| !told.contains("  ")), "{own:?}");
        assert!(told_of(&gateway, ["2001:db8::1", "::1"])[0].starts_with("2001:db8::1  "));
    }
}

const HAPROXY_BEHIND: &str = "
frontend front
 mode http
 bind 127.0.0.1:{port} accept-proxy
 http-request return status 200 content-type text/plain lf-string \"%[src] %[fc_pp_unique_id]\"
";

#[test]
fn haproxy_is_told_for_whom_a_connection_is_made_and_the_requests_id() {
    for (version, id) in [("v1", ""), ("v2", " id-1")] {
        let Some(haproxy) = Peer::haproxy(HAPROXY_BEHIND) else {
            return;
        };
        let gateway = forwarding(haproxy.address(), version);
        assert_eq!(
            told_of(&gateway, ["192.0.2.1", "2001:db8::1"]),
            ["192.0.2.1", "2001:db8::1"].map(|client| format!("{client}{id}")),
            "{version}"
        );
    }
}

#[test]
fn a_gateway_behind_a_gateway_knows_the_client() {
    let front = Front::start();
    let address = format!("127.0.0.1:{}", front.balanced);
    for version in ["v1", "v2"] {
        let before = forwarding(&address, version);
        let mut client = before.client();
        // Its fields are believed there for the first hop alone.
        client.send(&for_client("192.0.2.9"));
        let told = reply(client.read_reply(Body::Framed));
        assert_eq!(told.head.field("x-client"), Some("192.0.2.9"), "{version}");
    }
}
