//! The request vectors in HTTP/2: the same replies, the same at the back end and the same records as in HTTP/1.1.
//!
//! A row is taken apart as text and put together as fields and data. What HTTP/2 has another way to say, or none, has no
//! equivalent: [`Lack`] lists it all.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Instant;

use serde_json::Value;
use testkit::client::Body;
use testkit::http2::{END_HEADERS, END_STREAM, RawH2, RawStream, kind, literals};
use testkit::message::{Ends, take_body};
use testkit::vectors::{RequestRow, SITES, Sees};
use testkit::{Gateway, Outcome, PATIENCE, RawClient, ScriptedUpstream};

use crate::fixtures::tls::connect_from;
use crate::vectors::{answer, rows, upstream_fault};

const CONFIG: &str = r#"
workers = 1
[[listen]]
address = "127.0.0.1:{port}"
protocols = ["http/1.1", "h2c"]
[log]
access = "{dir}/access.log"
format = "json"
level = "warn"
[timeouts]
header = "20s"
body = "20s"
[upstreams.app]
servers = ["{upstream}"]
{sites}
"#;

/// What a row of HTTP/1.1 says that HTTP/2 cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Lack {
    /// A head ends where its block does: none is cut short, and none has lines to be split, folded or ended in odd ways.
    Lines,
    /// There is no first line, no version in it and no form of the target: pseudo-fields say all that.
    FirstLine,
    /// Which connection, how long it is kept and what it becomes: refused in HTTP/2 (tested with the classes of attacks).
    ConnectionFields,
    /// Chunks: where a body ends is said by its frames. Of well-formed ones the content is an equivalent.
    Chunks,
    /// A second request behind the first, or a body longer than it says: streams are apart.
    Behind,
    /// What the reader of targets beneath sees to itself: it cuts a fragment off, and refuses `<`, `>` and a grave.
    Target,
    /// Several `Host`, or one that differs from `:authority`.
    Hosts,
}

type Field = (Vec<u8>, Vec<u8>);

/// A row as a stream.
struct Said {
    fields: Vec<Field>,
    body: Vec<u8>,
    is_cut: bool,
}

fn translated(row: &RequestRow) -> Result<Said, Lack> {
    let end = row.bytes.windows(4).position(|it| it == b"\r\n\r\n");
    let end = end.ok_or(Lack::Lines)?;
    let (head, rest) = (&row.bytes[..end], &row.bytes[end + 4..]);
    let mut lines = head.split(|byte| *byte == b'\n').map(|line| match line {
        [line @ .., b'\r'] => line,
        line => line,
    });
    if head.windows(2).any(|it| it[1] == b'\n' && it[0] != b'\r') || head.starts_with(b"\n") {
        return Err(Lack::Lines);
    }
    let mut fields = first_line(lines.next().unwrap_or_default())?;
    let mut said = Vec::new();
    for line in lines {
        said.push(field(line)?);
    }
    let mut hosts = said.iter().filter(|(name, _)| name == b"host");
    match (hosts.next(), hosts.next()) {
        (_, Some(_)) => return Err(Lack::Hosts),
        (Some((_, host)), None) => fields.push((b":authority".to_vec(), host.clone())),
        (None, None) => {}
    }
    let chunked = |(name, value): &&Field| name == b"transfer-encoding" && value == b"chunked";
    let is_chunked = said.iter().filter(chunked).count() == 1;
    let is_accepted = row.replies.iter().flatten().all(|status| *status < 400);
    let body = match is_chunked {
        true if !is_accepted => return Err(Lack::Chunks),
        true => {
            let taken = take_body(rest, Ends::Chunked).filter(|it| it.complete);
            let taken = taken.filter(|it| it.consumed == rest.len());
            taken.ok_or(Lack::Chunks)?.body
        }
        false => rest.to_vec(),
    };
    said.retain(|it| it.0 != b"host" && !(is_chunked && chunked(&it)));
    const OF_CONNECTION: [&[u8]; 6] = [
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"transfer-encoding",
        b"upgrade",
        b"te",
    ];
    if said
        .iter()
        .any(|(name, _)| OF_CONNECTION.contains(&&name[..]))
    {
        return Err(Lack::ConnectionFields);
    }
    let length = said.iter().find(|(name, _)| name == b"content-length");
    let length = length.map(|(_, value)| std::str::from_utf8(value).ok()?.parse::<usize>().ok());
    let is_longer = match length {
        Some(length) => length.is_some_and(|length| length < body.len()),
        None => !is_chunked && !body.is_empty(),
    };
    if is_longer || row.replies.len() > 1 {
        return Err(Lack::Behind);
    }
    fields.extend(said);
    let is_cut = length.flatten().is_some_and(|length| length > body.len());
    Ok(Said {
        fields,
        body,
        is_cut,
    })
}

fn first_line(line: &[u8]) -> Result<Vec<Field>, Lack> {
    let words: Vec<_> = line.split(|byte| *byte == b' ').collect();
    let [method, target, b"HTTP/1.1"] = words[..] else {
        return Err(Lack::FirstLine);
    };
    if target.iter().any(|byte| b"#<>`".contains(byte)) {
        return Err(Lack::Target);
    }
    let pseudo = |name: &[u8], value: &[u8]| (name.to_vec(), value.to_vec());
    let is_path = target.starts_with(b"/") || target == b"*";
    match is_path && !method.is_empty() && method != b"CONNECT" {
        true => Ok(vec![
            pseudo(b":method", method),
            pseudo(b":scheme", b"http"),
            pseudo(b":path", target),
        ]),
        false => Err(Lack::FirstLine),
    }
}

/// A line as a field; names are in lower case in HTTP/2, and blanks around a value are no part of it.
fn field(line: &[u8]) -> Result<Field, Lack> {
    let at = line
        .iter()
        .position(|byte| *byte == b':')
        .ok_or(Lack::Lines)?;
    let (name, value) = (&line[..at], &line[at + 1..]);
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    if name.is_empty() || name.iter().any(blank) {
        return Err(Lack::Lines);
    }
    let from = value
        .iter()
        .position(|byte| !blank(byte))
        .unwrap_or(value.len());
    let to = value
        .iter()
        .rposition(|byte| !blank(byte))
        .map_or(from, |at| at + 1);
    Ok((name.to_ascii_lowercase(), value[from..to].to_vec()))
}

/// The address that a row is sent from, by which its record is found.
fn address(row: usize, version: u8) -> [u8; 4] {
    let low = |number: usize| u8::try_from(number % 200 + 1).expect("small");
    [127, version, low(row / 200), low(row)]
}

/// A row whose back end hears of a client at this address.
fn seen_from(row: &RequestRow, from: [u8; 4]) -> RequestRow {
    let mut row = row.clone();
    if let Sees::Request(want) = &mut row.sees {
        for (_, value) in &mut want.fields {
            *value = value.replace("127.0.0.1", &from.map(|it| it.to_string()).join("."));
        }
    }
    row
}

/// The reply in HTTP/1.1.
fn ask_h1(to: SocketAddr, row: &RequestRow, from: [u8; 4]) -> (u16, Vec<u8>) {
    let mut client = RawClient::over(connect_from(from, to).expect("a connection"));
    client.send(&row.bytes);
    if row.finish {
        client.finish_sending();
    }
    let body = match row.is_head() {
        true => Body::Never,
        false => Body::Framed,
    };
    match client.read_reply(body) {
        Outcome::Reply(reply) => (reply.status, reply.body),
        _ => (0, Vec::new()),
    }
}

/// The reply in HTTP/2, and that of a canary on the next stream.
fn ask_h2(to: SocketAddr, said: &Said, from: [u8; 4]) -> (RawStream, RawStream) {
    let io = connect_from(from, to).expect("a connection");
    let mut client = RawH2::begin(io, &[(4, 1 << 20)]);
    let is_whole = said.body.is_empty();
    let flags = END_HEADERS | if is_whole { END_STREAM } else { 0 };
    client.send(kind::HEADERS, flags, 1, &literals(&said.fields));
    let mut rest = &said.body[..];
    while !rest.is_empty() {
        // As much as the window has from the beginning; more is sent when it opens.
        let (part, after) = rest.split_at(rest.len().min(16_000));
        let flags = if after.is_empty() { END_STREAM } else { 0 };
        client.send(kind::DATA, flags, 1, part);
        rest = after;
        if said.body.len() - rest.len() > 40_000 {
            break;
        }
    }
    let is_over = |it: &RawH2<_>, stream| it.streams.get(&stream).is_some_and(RawStream::is_over);
    while !is_over(&client, 1) && client.read().is_some() {}
    client.get(3, "canary.test", "/canary");
    while !is_over(&client, 3) && client.read().is_some() {}
    let mut take = |stream| client.streams.remove(&stream).unwrap_or_default();
    (take(1), take(3))
}

/// What is wrong with a row's reply in HTTP/2, if anything.
fn reply_fault(h1: &(u16, Vec<u8>), h2: &(RawStream, RawStream)) -> Option<String> {
    let ((status, body), (reply, canary)) = (h1, h2);
    // What is malformed may be refused by a reset alone (RFC 9113, 8.1.1).
    let is_reset = reply.heads.is_empty() && *status >= 400;
    if reply.status() != *status && !is_reset {
        return Some(format!("{status} in HTTP/1.1, {reply:?} in HTTP/2"));
    }
    if *status < 400 && reply.body != *body {
        return Some("another body".to_owned());
    }
    match (canary.status(), &canary.body[..]) {
        (200, b"canary") => None,
        _ if canary.heads.is_empty() && *status >= 400 => None,
        _ => Some(format!("for the canary {canary:?}")),
    }
}

/// What of a record does not depend on the version, by the client's address.
fn records(text: &str) -> BTreeMap<String, String> {
    const KEYS: [&str; 9] = [
        "site",
        "host",
        "method",
        "target",
        "status",
        "handler",
        "rule",
        "upstream_status",
        "reason",
    ];
    let mut records = BTreeMap::new();
    for line in text.lines() {
        // The last may be half written.
        let Ok(record) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        if record["target"] == "/canary" {
            continue;
        }
        let told: Vec<_> = KEYS.iter().map(|key| record[key].to_string()).collect();
        records.insert(
            record["client"].as_str().unwrap_or_default().to_owned(),
            told.join(" "),
        );
    }
    records
}

/// What differs in the records of rows, by their numbers and names.
fn record_faults(file: &Path, rows: &[(usize, &String)]) -> Vec<String> {
    let key = |at: usize, version: u8| address(at, version).map(|it| it.to_string()).join(".");
    let (begun, mut known) = (Instant::now(), BTreeMap::new());
    let mut fault = |(at, id): &(usize, &String)| {
        let keys = [key(*at, 1), key(*at, 2)];
        while !keys.iter().all(|key| known.contains_key(key)) && begun.elapsed() < PATIENCE {
            known = records(&std::fs::read_to_string(file).unwrap_or_default());
        }
        let [one, other] = keys.map(|key| known.get(&key));
        let is_same = one.is_some() && one == other;
        (!is_same).then(|| format!("{id}: the records {one:?} and {other:?}"))
    };
    rows.iter().filter_map(&mut fault).collect()
}

#[test]
fn rows_are_answered_forwarded_and_recorded_as_in_http_1() {
    let upstream = ScriptedUpstream::start(answer);
    let gateway = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG)
        .with("sites", SITES)
        .with("upstream", upstream.address())
        .start();
    let to = gateway.address();
    let all: Vec<_> = ["h1", "target", "host", "path"]
        .iter()
        .flat_map(|directory| rows(directory, |_| true))
        .collect();
    let (mut lacking, mut faults, mut told) = (BTreeMap::<_, usize>::new(), Vec::new(), Vec::new());
    for (at, row) in all.iter().enumerate() {
        let said = match translated(row) {
            Ok(said) => said,
            Err(lack) => {
                *lacking.entry(lack).or_default() += 1;
                continue;
            }
        };
        let h1 = ask_h1(to, row, address(at, 1));
        let _ = upstream.take_seen();
        let h2 = ask_h2(to, &said, address(at, 2));
        let seen = upstream.take_seen();
        let accepted = usize::from((200..300).contains(&h2.0.status()));
        let fault = reply_fault(&h1, &h2).or_else(|| match row.sees {
            _ if said.is_cut => seen
                .iter()
                .any(|it| it.complete)
                .then(|| "a cut body ended".to_owned()),
            Sees::Request(_) | Sees::Nothing => {
                upstream_fault(&seen_from(row, address(at, 2)), &seen, 1, accepted)
            }
            _ => None,
        });
        faults.extend(fault.map(|what| format!("{} [{}]: {what:.500}", row.id, row.rule)));
        // A head that is far too long is answered before anybody reads it, and without a record.
        if h1.0 != 0 && !matches!(h2.0.status(), 0 | 431) {
            told.push((at, &row.id));
        }
    }
    let file = gateway.directory().path().join("access.log");
    faults.extend(record_faults(&file, &told));
    let without: usize = lacking.values().sum();
    println!(
        "{} rows, {} compared, {} with records, without an equivalent: {lacking:?}",
        all.len(),
        all.len() - without,
        told.len()
    );
    assert!(all.len() - without > 200, "{lacking:?}");
    assert!(
        faults.is_empty(),
        "{} rows differ:\n{}",
        faults.len(),
        faults.join("\n")
    );
}
