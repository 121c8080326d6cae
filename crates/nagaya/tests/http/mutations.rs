//! Vectors gone wrong at random: whatever arrives, the gateway answers or closes, and what it
//! forwards is one clean request that two parsers read alike.
//!
//! The seed is fixed, so a failure comes again; `NAGAYA_MUTATIONS` asks for more of them.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use testkit::vectors::{RequestRow, SITES, Sees, requests};
use testkit::{Gateway, Outcome, Peer, RawClient, ScriptedUpstream, Seen, Step};

const CONFIG: &str = r#"
workers = 2
[log]
level = "error"
[upstreams.app]
servers = ["{upstream}"]
{sites}
"#;

/// Keeps what it parsed until it is asked at `/_seen`.
const NODE: &str = r#"
let seen = [];
const server = require("http").createServer({ maxHeaderSize: 65536 }, (request, response) => {
  if (request.url == "/_seen") {
    const all = seen.join("\n");
    seen = [];
    return response.end(all);
  }
  const pieces = [];
  request.on("data", (piece) => pieces.push(piece));
  request.on("end", () => {
    const body = Buffer.concat(pieces).toString("hex");
    seen.push([request.headers["x-tag"], request.method, request.url, request.headers.host, body].join(" "));
    response.end("seen");
  });
});
server.on("upgrade", (request, socket) => {
  socket.on("error", () => {});
  socket.end("HTTP/1.1 426 No\r\nContent-Length: 0\r\n\r\n");
});
server.on("clientError", (error, socket) => {
  seen.push("refused " + error.code);
  socket.destroy();
});
server.listen(process.env.PORT, "127.0.0.1");
"#;

const MUTATIONS: usize = 3_000;
/// Reasons for which the peer refuses what is fine: methods it does not know, and requests that
/// ended with their client.
const KNOWN: [&str; 3] = [
    "refused HPE_INVALID_METHOD",
    "refused HPE_INVALID_EOF_STATE",
    "refused ECONNRESET",
];
/// Mutations under way at once.
const BATCH: usize = 48;

/// A small generator (xorshift), enough to choose places.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit.max(1) as u64).expect("below a usize")
    }
}

/// Bytes that mean something to a parser.
const TELLING: [&[u8]; 16] = [
    b"\r\n",
    b"\n",
    b"\r",
    b" ",
    b"\t",
    b":",
    b"\0",
    b",",
    b";",
    b"%",
    b"/",
    b"..",
    b"#",
    b"\r\n\r\n",
    b"\r\nContent-Length: 5",
    b"\r\nTransfer-Encoding: chunked",
];

/// One or two small changes.
fn mutate(bytes: &[u8], other: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=dice.below(2) {
        let at = dice.below(bytes.len() + 1);
        let end = (at + 1 + dice.below(8)).min(bytes.len());
        match dice.below(6) {
            0 => drop(bytes.drain(at..end.max(at))),
            1 => drop(bytes.splice(at..at, TELLING[dice.below(TELLING.len())].iter().copied())),
            2 => drop(bytes.splice(
                at..end.max(at),
                TELLING[dice.below(TELLING.len())].iter().copied(),
            )),
            3 => {
                let again = bytes[at..end.max(at)].to_vec();
                bytes.splice(at..at, again);
            }
            4 => bytes.insert(at, b' ' + u8::try_from(dice.below(96)).unwrap_or_default()),
            _ => {
                let from = dice.below(other.len());
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
        }
    }
    bytes
}

fn rows() -> Vec<RequestRow> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors");
    let mut rows = requests(&root, &["h1", "target", "host", "path"]);
    rows.retain(|row| row.bytes.len() < 2_000 && !row.bytes.is_empty());
    // Mostly such that are accepted as they are: a change to the others is refused all the same.
    let mut refused = 0;
    rows.retain(|row| {
        refused += usize::from(row.sees == Sees::Nothing);
        row.sees != Sees::Nothing || refused % 8 == 0
    });
    rows
}

fn gateway(upstream: impl ToString) -> Gateway {
    Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG)
        .with("sites", SITES)
        .with("upstream", upstream)
        .start()
}

/// Sends each of a batch on a connection of its own, and an end once the answers have had time to
/// come; says which of them the gateway left hanging.
fn send(gateway: &Gateway, batch: &[Vec<u8>]) -> Vec<String> {
    let mut clients: Vec<_> = batch
        .iter()
        .map(|bytes| {
            let mut client = gateway.client();
            client.send(bytes);
            client
        })
        .collect();
    // Nothing is taken from how much was answered by then.
    std::thread::sleep(Duration::from_millis(30));
    clients.iter().for_each(RawClient::finish_sending);
    let ends = clients.iter_mut().zip(batch);
    ends.filter_map(|(client, bytes)| match client.read_to_end() {
        (_, Outcome::Eof | Outcome::Reset) => None,
        (_, other) => Some(format!(
            "{other:?} for {:?}",
            String::from_utf8_lossy(bytes)
        )),
    })
    .collect()
}

/// What is unclean about a forwarded request, if anything; an own look, apart from every parser.
fn unclean(seen: &Seen) -> Option<&'static str> {
    let head = &seen.head.bytes;
    let text = &head[..head.len() - 2];
    let odd = |&byte: &u8| byte < 0x20 && !b"\r\n\t".contains(&byte) || byte == 0x7f;
    let lone = text
        .windows(2)
        .any(|pair| (pair[0] == b'\r') != (pair[1] == b'\n'));
    let lengths = seen.head.count("content-length");
    let codings = seen.head.count("transfer-encoding");
    let words: Vec<_> = seen.head.line.split(' ').collect();
    match () {
        () if head.iter().any(odd) => Some("a control octet"),
        () if lone => Some("a bare CR or LF"),
        () if lengths + codings > 1 => Some("two framings"),
        () if seen.head.count("host") != 1 => Some("not one Host"),
        () if words.len() != 3 || words[2] != "HTTP/1.1" => Some("an odd request line"),
        () if !words[1].starts_with('/') && words[1] != "*" => Some("an odd target"),
        () if words[1].contains('#') || !words[1].is_ascii() => Some("an odd target octet"),
        () if seen.head.fields.iter().any(|(name, _)| !plain(name)) => Some("an odd field name"),
        () => None,
    }
}

fn plain(name: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    !name.is_empty() && name.bytes().all(letter)
}

fn retell(seen: &Seen) -> String {
    let mut words = seen.head.line.split(' ');
    let (method, target) = (words.next(), words.next());
    let host = seen.head.field("host").unwrap_or_default();
    let body: String = seen.body.iter().map(|byte| format!("{byte:02x}")).collect();
    let tag = seen.head.field("x-tag").unwrap_or_default();
    format!(
        "{tag} {} {} {host} {body}",
        method.unwrap_or_default(),
        target.unwrap_or_default()
    )
}

/// Two gateways alike, one before the recording upstream, one before Node.
struct Bench {
    recording: ScriptedUpstream,
    recorded: Gateway,
    node: Option<(Peer, Gateway)>,
    forwarded: usize,
    compared: usize,
}

impl Bench {
    fn start() -> Self {
        let recording = ScriptedUpstream::start(|_| vec![Step::ReadBody, Step::reply(200, "seen")]);
        Self {
            recorded: gateway(recording.address()),
            node: Peer::node(NODE).map(|node| {
                let gateway = gateway(node.address());
                (node, gateway)
            }),
            recording,
            forwarded: 0,
            compared: 0,
        }
    }

    /// Runs a batch through both; what is wrong with the outcome.
    fn run(&mut self, batch: &[Vec<u8>]) -> Vec<String> {
        let mut faults = send(&self.recorded, batch);
        let seen = self.recording.take_seen();
        self.forwarded += seen.len();
        for one in &seen {
            let what = unclean(one).map(|what| format!("forwarded with {what}: {one:?}"));
            faults.extend(what);
        }
        let Some((node, reread)) = &self.node else {
            return faults;
        };
        faults.extend(send(reread, batch));
        let complete = seen.iter().filter(|one| one.complete);
        let ours: Vec<_> = complete.map(retell).collect();
        let (refused, theirs): (Vec<_>, Vec<_>) = seen_by(node)
            .into_iter()
            .partition(|line| line.starts_with("refused "));
        let odd = refused
            .into_iter()
            .filter(|line| !KNOWN.contains(&&line[..]));
        faults.extend(odd.map(|line| format!("the peer {line} in {:?}", shown(batch))));
        let disagree = disagreements(&ours, &theirs);
        self.compared += theirs.len();
        faults.extend(
            disagree
                .iter()
                .map(|what| format!("{what} in {:?}", shown(batch))),
        );
        faults
    }
}

fn shown(batch: &[Vec<u8>]) -> Vec<std::borrow::Cow<'_, str>> {
    let texts = batch.iter().map(|bytes| String::from_utf8_lossy(bytes));
    texts.collect()
}

/// Requests of one tag that the two tell differently. A client's end may overtake its request, so
/// that one of the two saw less; what both saw must be the same.
fn disagreements(ours: &[String], theirs: &[String]) -> Vec<String> {
    let tag_of = |line: &String| line.split(' ').next().unwrap_or_default().to_owned();
    let of_tag = |lines: &[String], tag: &String| -> BTreeSet<String> {
        let lines = lines.iter().filter(|line| tag_of(line) == *tag);
        lines.cloned().collect()
    };
    let tags: BTreeSet<_> = theirs.iter().map(tag_of).collect();
    let mut faults = Vec::new();
    for tag in tags.iter().filter(|tag| !tag.is_empty()) {
        let (ours, theirs) = (of_tag(ours, tag), of_tag(theirs, tag));
        if !ours.is_subset(&theirs) && !theirs.is_subset(&ours) {
            faults.push(format!("{ours:?} or {theirs:?}?"));
        }
    }
    faults
}

/// Marks the first request, so that two records of it can be laid side by side.
fn tag(bytes: &[u8], number: usize) -> Vec<u8> {
    const HOST: &[u8] = b"Host: app.test\r\n";
    let Some(at) = bytes.windows(HOST.len()).position(|at| at == HOST) else {
        return bytes.to_vec();
    };
    let (before, after) = bytes.split_at(at + HOST.len());
    [before, format!("X-Tag: {number}\r\n").as_bytes(), after].concat()
}

fn seen_by(node: &Peer) -> Vec<String> {
    let mut client = RawClient::connect(node.address());
    match client.ask(b"GET /_seen HTTP/1.1\r\nHost: node\r\n\r\n") {
        Outcome::Reply(reply) => {
            let text = reply.text();
            text.lines().map(str::to_owned).collect()
        }
        other => panic!("the peer is gone: {other:?}"),
    }
}

#[test]
fn mutated_rows_are_answered_and_forwarded_clean_or_not_at_all() {
    let mut bench = Bench::start();
    let asked = std::env::var("NAGAYA_MUTATIONS").ok();
    let count = asked
        .and_then(|text| text.parse().ok())
        .unwrap_or(MUTATIONS);
    let rows = rows();
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut faults = Vec::new();
    for first in (0..count).step_by(BATCH) {
        let batch: Vec<_> = (first..first + BATCH)
            .map(|number| {
                let (row, other) = (dice.below(rows.len()), dice.below(rows.len()));
                tag(
                    &mutate(&rows[row].bytes, &rows[other].bytes, &mut dice),
                    number,
                )
            })
            .collect();
        faults.extend(bench.run(&batch));
    }
    let alive = bench
        .recorded
        .ask(b"GET / HTTP/1.1\r\nHost: canary.test\r\n\r\n");
    assert!(matches!(alive, Outcome::Reply(_)), "{alive:?}");
    let (forwarded, compared) = (bench.forwarded, bench.compared);
    assert!(forwarded > count / 10, "only {forwarded} were forwarded");
    eprintln!("{count} sent, {forwarded} forwarded, {compared} of them compared");
    assert!(
        faults.is_empty(),
        "{} of {count} fail:\n{}",
        faults.len(),
        faults.join("\n")
    );
}
