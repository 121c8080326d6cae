//! Real back ends: nginx and Node behind the gateway, with bodies far larger than any buffer.

use std::time::Duration;

use testkit::client::{Body, reply};
use testkit::{Gateway, Outcome, Peer, RawClient};

const CONFIG: &str = r#"
workers = 1
[log]
level = "error"
[upstreams.app]
servers = ["{upstream}"]
[[sites]]
hosts = ["app.test"]
rules = [{ handler = { proxy = "app" } }]
"#;

const NGINX: &str = r#"
server {
  listen 127.0.0.1:{port};
  root {dir};
  client_max_body_size 0;
  location = /count { return 200 "$connection $connection_requests"; }
  location / { etag on; }
}
"#;

/// Counts and sums what is uploaded, answers `/early` before the body, dies at `/dies`, and echoes
/// WebSocket frames.
const NODE: &str = r#"
const { createHash } = require("crypto");
const server = require("http").createServer((request, response) => {
  if (request.url == "/early") {
    response.writeHead(413, { Connection: "close", "Content-Length": 4 });
    return response.end("full");
  }
  if (request.url == "/dies") {
    response.writeHead(200, { "Content-Length": 100000 });
    return response.write("x".repeat(1000), () => request.socket.destroy());
  }
  let bytes = 0, sum = 0, next = 0;
  request.on("data", (piece) => {
    bytes += piece.length;
    for (; next < bytes; next += 101) {
      sum = (sum * 31 + piece[next - bytes + piece.length]) % 65521;
    }
  });
  request.on("end", () => response.end(`${bytes} ${sum}`));
});
server.on("upgrade", (request, socket, early) => {
  const key = request.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
  const accept = createHash("sha1").update(key).digest("base64");
  socket.write("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n" +
    `Connection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`);
  let pending = early;
  socket.on("data", (piece) => {
    pending = Buffer.concat([pending, piece]);
    // Short masked frames only: two bytes of head, four of mask.
    while (pending.length >= 6 && pending.length >= 6 + (pending[1] & 127)) {
      const length = pending[1] & 127;
      const frame = Buffer.alloc(2 + length);
      frame[0] = pending[0];
      frame[1] = length;
      for (let at = 0; at < length; at++) frame[2 + at] = pending[6 + at] ^ pending[2 + at % 4];
      pending = pending.subarray(6 + length);
      socket.write(frame);
    }
  });
  socket.on("end", () => socket.end());
  socket.on("error", () => {});
});
server.listen(process.env.PORT, "127.0.0.1");
"#;

const LARGE_BYTES: usize = 100 << 20;
/// How much the server may grow while it passes a large body on.
const GROWTH_BYTES_MAX: u64 = 16 << 20;

fn gateway(peer: &Peer) -> Gateway {
    Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG)
        .with("upstream", peer.address())
        .start()
}

fn get(path: &str, fields: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: app.test\r\n{fields}\r\n").into_bytes()
}

/// Large bodies are made of steps of this many bytes, each unlike its neighbours.
const STEP: usize = 1 << 20;
const STEPS: usize = LARGE_BYTES / STEP;
/// The Node peer sums up one byte in so many.
const SAMPLE: usize = 101;

/// The bytes the steps are cut from: step `n` begins at byte `n`.
fn pattern() -> Vec<u8> {
    (0..STEP + STEPS)
        .map(|place| (place.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect()
}

/// The sum the Node peer makes of a large body.
fn sum(pattern: &[u8]) -> u32 {
    let places = (0..LARGE_BYTES).step_by(SAMPLE);
    let bytes = places.map(|place| pattern[place / STEP + place % STEP]);
    bytes.fold(0, |sum, byte| (sum * 31 + u32::from(byte)) % 65521)
}

fn assert_flat(gateway: &Gateway, before: u64) {
    let grown = gateway.server_peak_bytes().saturating_sub(before);
    assert!(
        grown <= GROWTH_BYTES_MAX,
        "the server grew by {grown} bytes"
    );
}

#[test]
fn a_large_file_comes_down_through_flat_memory() {
    let Some(nginx) = Peer::nginx(NGINX) else {
        return;
    };
    let pattern = pattern();
    let steps = (0..STEPS).map(|step| &pattern[step..step + STEP]);
    let all = steps.collect::<Vec<_>>().concat();
    std::fs::write(nginx.directory().join("large"), all).unwrap();
    let gateway = gateway(&nginx);
    assert_eq!(reply(gateway.ask(&get("/count", ""))).status, 200);
    let before = gateway.server_peak_bytes();
    let mut client = gateway.client().with_deadline(Duration::from_secs(60));
    client.send(&get("/large", ""));
    let head = reply(client.read_reply(Body::Never));
    assert_eq!(head.head.field("content-length"), Some("104857600"));
    for step in 0..STEPS {
        if step == STEPS / 2 {
            // A reader that pauses must not make the gateway read ahead without end.
            std::thread::sleep(Duration::from_millis(300));
        }
        let came = client.read_exactly(STEP);
        assert!(
            came == pattern[step..step + STEP],
            "step {step}: {} bytes",
            came.len()
        );
    }
    assert_eq!(reply(client.ask(&get("/count", ""))).status, 200);
    assert_flat(&gateway, before);
}

#[test]
fn a_large_body_goes_up_through_flat_memory() {
    let Some(node) = Peer::node(NODE) else {
        return;
    };
    let gateway = gateway(&node);
    let pattern = pattern();
    let expected = format!("{LARGE_BYTES} {}", sum(&pattern));
    assert_eq!(reply(gateway.ask(&get("/", ""))).body, b"0 0");
    let before = gateway.server_peak_bytes();
    for chunked in [false, true] {
        let mut client = gateway.client().with_deadline(Duration::from_secs(60));
        let framing = match chunked {
            true => "Transfer-Encoding: chunked".to_owned(),
            false => format!("Content-Length: {LARGE_BYTES}"),
        };
        client.send(format!("PUT / HTTP/1.1\r\nHost: app.test\r\n{framing}\r\n\r\n").as_bytes());
        for step in 0..STEPS {
            let bytes = &pattern[step..step + STEP];
            match chunked {
                true => client.send(&[b"100000\r\n", bytes, b"\r\n"].concat()),
                false => client.send(bytes),
            }
        }
        if chunked {
            client.send(b"0\r\n\r\n");
        }
        let answer = reply(client.read_reply(Body::Framed));
        assert_eq!(String::from_utf8_lossy(&answer.body), expected, "{framing}");
    }
    assert_flat(&gateway, before);
}

#[test]
fn connections_to_nginx_are_used_again() {
    let Some(nginx) = Peer::nginx(NGINX) else {
        return;
    };
    let gateway = gateway(&nginx);
    let counts: Vec<String> = (0..20)
        .map(|_| reply(gateway.ask(&get("/count", ""))).body)
        .map(|body| String::from_utf8_lossy(&body).into_owned())
        .collect();
    // A connection goes back just after the reply, so a quick successor may open a second one.
    let connections: std::collections::BTreeSet<_> = counts
        .iter()
        .filter_map(|count| count.split(' ').next())
        .collect();
    assert!(connections.len() <= 3, "{counts:?}");
}

#[test]
fn validators_ranges_and_head_pass_through() {
    let Some(nginx) = Peer::nginx(NGINX) else {
        return;
    };
    std::fs::write(nginx.directory().join("small"), "0123456789").unwrap();
    let gateway = gateway(&nginx);
    let mut client = gateway.client();
    let whole = reply(client.ask(&get("/small", "")));
    assert_eq!((whole.status, &whole.body[..]), (200, &b"0123456789"[..]));
    let etag = whole.head.field("etag").unwrap().to_owned();
    let part = reply(client.ask(&get("/small", "Range: bytes=2-4\r\n")));
    assert_eq!((part.status, &part.body[..]), (206, &b"234"[..]));
    assert_eq!(part.head.field("content-range"), Some("bytes 2-4/10"));
    let same = reply(client.ask(&get("/small", &format!("If-None-Match: {etag}\r\n"))));
    assert_eq!((same.status, same.body.len()), (304, 0));
    client.send(b"HEAD /small HTTP/1.1\r\nHost: app.test\r\n\r\n");
    let head = reply(client.read_reply(Body::Never));
    assert_eq!(head.head.field("content-length"), Some("10"));
    let absent = reply(client.ask(&get("/absent", "")));
    assert_eq!(absent.status, 404);
}

fn frame(text: &[u8]) -> Vec<u8> {
    let mask = [0x12, 0x34, 0x56, 0x78];
    let masked = text
        .iter()
        .enumerate()
        .map(|(at, byte)| byte ^ mask[at % 4]);
    let length = u8::try_from(text.len()).unwrap();
    [0x81, 0x80 | length]
        .into_iter()
        .chain(mask)
        .chain(masked)
        .collect()
}

fn assert_echoed(client: &mut RawClient, text: &[u8]) {
    let came = client.read_exactly(text.len() + 2);
    assert_eq!(came.get(2..), Some(text));
}

#[test]
fn web_socket_frames_are_echoed() {
    let Some(node) = Peer::node(NODE) else {
        return;
    };
    let gateway = gateway(&node);
    let mut client = gateway.client();
    let asked = get(
        "/ws",
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
    );
    // The first frame does not wait for the 101.
    client.send(&[asked, frame(b"early")].concat());
    let answer = reply(client.read_reply(Body::Never));
    assert_eq!(answer.status, 101);
    let accept = answer.head.field("sec-websocket-accept");
    assert_eq!(accept, Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    assert_echoed(&mut client, b"early");
    for at in 0..1000 {
        let text = format!("frame {at}");
        client.send(&frame(text.as_bytes()));
        assert_echoed(&mut client, text.as_bytes());
    }
    client.finish_sending();
    assert_eq!(client.read_to_end(), (Vec::new(), Outcome::Eof));
}

#[test]
fn a_node_that_answers_before_the_body_is_heard() {
    let Some(node) = Peer::node(NODE) else {
        return;
    };
    let gateway = gateway(&node);
    let mut client = gateway.client();
    client.send(b"POST /early HTTP/1.1\r\nHost: app.test\r\nContent-Length: 10000000\r\n\r\n");
    client.send(&vec![b'x'; 5_000_000]);
    let answer = reply(client.read_reply(Body::Framed));
    assert_eq!((answer.status, &answer.body[..]), (413, &b"full"[..]));
    assert_eq!(reply(gateway.ask(&get("/", ""))).body, b"0 0");
}

#[test]
fn a_node_that_dies_in_its_reply_is_seen_to_be_cut() {
    let Some(node) = Peer::node(NODE) else {
        return;
    };
    let gateway = gateway(&node);
    for _ in 0..10 {
        let cut = reply(gateway.ask(&get("/dies", "")));
        assert!(!cut.complete, "{} bytes", cut.body.len());
        assert_eq!(reply(gateway.ask(&get("/", ""))).body, b"0 0");
    }
}
