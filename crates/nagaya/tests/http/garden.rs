//! What is forwarded reads the same everywhere: servers of other projects, each with a parser of
//! its own, behind the gateway must see the one request the recording upstream saw.
//!
//! Connections to them are kept from row to row, so a length two parsers disagree about would show
//! in the next row at the latest.

use std::path::Path;

use testkit::client::Body;
use testkit::vectors::{RequestRow, SITES, Sees, requests};
use testkit::{Gateway, Outcome, Peer, ScriptedUpstream, Seen, Step};

const CONFIG: &str = r#"
workers = 1
[log]
level = "error"
[upstreams.app]
servers = ["{upstream}"]
{sites}
"#;

const NODE: &str = r#"
// By itself it closes a connection that was idle for five seconds.
require("http").createServer({ keepAliveTimeout: 60000 }, (request, response) => {
  const pieces = [];
  request.on("data", (piece) => pieces.push(piece));
  request.on("end", () => {
    const body = Buffer.concat(pieces).toString("hex");
    const hosts = request.rawHeaders.filter((name, at) => at % 2 == 0 && name.toLowerCase() == "host");
    response.end([request.method, request.url, request.headers.host, hosts.length, body].join(" "));
  });
}).listen(process.env.PORT, "127.0.0.1");
"#;

const PYTHON: &str = r#"
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 65536
    def log_message(self, *rest):
        pass
    def chunks(self):
        while size := int(self.rfile.readline().split(b";")[0], 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
    def answer(self):
        if self.headers.get("Transfer-Encoding"):
            body = b"".join(self.chunks())
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        hosts = len(self.headers.get_all("Host", []))
        words = [self.command, self.path, self.headers["Host"], str(hosts), body.hex()]
        text = " ".join(words).encode("latin-1")
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
    def __getattr__(self, name):
        if name.startswith("do_"):
            return self.answer
        raise AttributeError(name)

class Server(ThreadingHTTPServer):
    daemon_threads = True

Server(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
"#;

/// `return` reads over the body, so nginx can't say what was in it.
const NGINX: &str = r#"
server {
  listen 127.0.0.1:{port};
  merge_slashes off;
  location / { return 200 "$request_method $request_uri $http_host 1 -"; }
}
"#;

const HAPROXY: &str = r#"
frontend f
 bind 127.0.0.1:{port}
 option http-buffer-request
 http-request return status 200 content-type text/plain lf-string "%[method] %[url] %[req.hdr(host)] %[req.hdr_cnt(host)] %[req.body,hex,lower]"
"#;

/// Rows a peer reads otherwise on purpose.
const KNOWN: [(&str, &str, &str); 1] = [(
    "python",
    "path/kept-first",
    "folds leading slashes against redirects to //host",
)];

/// Rows longer than this meet limits of the peers' own.
const ROW_BYTES_MAX: usize = 4096;

/// What a parser made of a request, body in hex; the shape every peer answers in.
fn retell(seen: &Seen) -> String {
    let mut words = seen.head.line.split(' ');
    let (method, target) = (words.next(), words.next());
    let host = seen.head.field("host").unwrap_or_default();
    let body: String = seen.body.iter().map(|byte| format!("{byte:02x}")).collect();
    format!(
        "{} {} {host} {} {body}",
        method.unwrap_or_default(),
        target.unwrap_or_default(),
        seen.head.count("host"),
    )
}

/// Rows with one forwarded request whose reply has a body to tell it in.
fn rows() -> Vec<RequestRow> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors");
    let mut rows = requests(&root, &["h1", "target", "host", "path"]);
    rows.retain(|row| {
        let whole = matches!(row.sees, Sees::Request(_)) && row.replies.len() == 1;
        let usual = row.bytes.len() <= ROW_BYTES_MAX && !row.rule.ends_with("-cap");
        whole && usual && !row.is_head()
    });
    rows
}

fn gateway(upstream: impl ToString) -> Gateway {
    Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG)
        .with("sites", SITES)
        .with("upstream", upstream)
        .start()
}

/// Status and body of the reply to a row.
fn told(gateway: &Gateway, row: &RequestRow) -> (u16, String) {
    let mut client = gateway.client();
    client.send(&row.bytes);
    match client.read_reply(Body::Framed) {
        Outcome::Reply(reply) => (reply.status, reply.text()),
        other => (0, format!("{other:?}")),
    }
}

/// Faults of one peer: rows it tells otherwise than the recording upstream.
fn disagreements(name: &str, peer: Option<Peer>, expected: &[(RequestRow, String)]) -> Vec<String> {
    let Some(peer) = peer else {
        return Vec::new();
    };
    let gateway = gateway(peer.address());
    let mut faults = Vec::new();
    for (row, retold) in expected {
        let (status, mut text) = told(&gateway, row);
        if let Some(without_body) = text.strip_suffix(" -") {
            let body = retold.rsplit(' ').next().unwrap_or_default();
            text = format!("{without_body} {body}");
        }
        let known = KNOWN
            .iter()
            .any(|known| (known.0, known.1) == (name, row.id.as_str()));
        if !known && (status != 200 || text != *retold) {
            faults.push(format!(
                "{name}: {}: {retold:?} became {status} {text:?}",
                row.id
            ));
        }
    }
    faults
}

#[test]
fn every_server_behind_the_gateway_sees_the_same_request() {
    let recording = ScriptedUpstream::start(|_| vec![Step::ReadBody, Step::reply(200, "seen")]);
    let gateway = gateway(recording.address());
    let expected: Vec<_> = rows()
        .into_iter()
        .filter_map(|row| {
            let (status, _) = told(&gateway, &row);
            (status == 200).then(|| (row, retell(&recording.next_seen())))
        })
        .collect();
    assert!(expected.len() >= 200, "only {} rows", expected.len());
    let faults = [
        ("node", Peer::node(NODE)),
        ("python", Peer::python(PYTHON)),
        ("nginx", Peer::nginx(NGINX)),
        ("haproxy", Peer::haproxy(HAPROXY)),
    ]
    .map(|(name, peer)| disagreements(name, peer, &expected))
    .concat();
    assert!(
        faults.is_empty(),
        "{} disagree:\n{}",
        faults.len(),
        faults.join("\n")
    );
}
