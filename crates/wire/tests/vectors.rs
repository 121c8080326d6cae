//! Every request vector through the rules alone, whole and cut at every boundary.
//!
//! What only a server can decide (sites, caps of a process, who answers) is left to the runner that
//! drives the whole gateway; here a row of that kind must merely be accepted.

use std::path::Path;

use testkit::vectors::{RequestRow, requests};
use wire::{
    BodyCaps, BodyDecoder, EncodedSlash, HeadCaps, OddNames, PathRules, RequestHead, Slashes,
};

/// Statuses a server may choose for a request whose syntax is fine.
const BY_THE_SERVER: [u16; 11] = [204, 206, 302, 403, 404, 405, 408, 416, 417, 421, 425];

/// What came of a row: a status for each head, 200 for an accepted one, 0 where more was awaited.
#[derive(Debug, Default, PartialEq, Eq)]
struct Verdict {
    statuses: Vec<u16>,
    reason: &'static str,
    path: Vec<u8>,
    wire: Vec<u8>,
    query: Option<Vec<u8>>,
    host: String,
    body: Vec<u8>,
}

/// One connection's parser, fed piece by piece as a server would.
struct Connection<'a> {
    row: &'a RequestRow,
    head: RequestHead,
    body: Option<BodyDecoder>,
    pending: Vec<u8>,
    verdict: Verdict,
    refused: bool,
}

impl<'a> Connection<'a> {
    fn new(row: &'a RequestRow) -> Self {
        Self {
            row,
            head: RequestHead::default(),
            body: None,
            pending: Vec::new(),
            verdict: Verdict::default(),
            refused: false,
        }
    }

    fn feed(&mut self, piece: &[u8]) {
        self.pending.extend_from_slice(piece);
        while !self.refused && !self.pending.is_empty() {
            let progress = match self.body.is_some() {
                true => self.take_body(),
                false => self.take_head(),
            };
            match progress {
                Ok(true) => {}
                Ok(false) => break,
                Err(refusal) => self.refuse(refusal),
            }
        }
    }

    fn refuse(&mut self, refusal: wire::Refusal) {
        // A refusal inside a body is the reply to its request.
        if self.body.is_some() {
            self.verdict.statuses.pop();
        }
        self.verdict.statuses.push(refusal.status);
        self.verdict.reason = refusal.reason;
        self.refused = true;
    }

    fn take_head(&mut self) -> Result<bool, wire::Refusal> {
        let caps = HeadCaps {
            head_bytes: 16 * 1024,
            target_bytes: 8 * 1024,
            fields: 100,
        };
        let Some(consumed) = self.head.parse(&self.pending, &caps)? else {
            return Ok(false);
        };
        self.pending.drain(..consumed);
        self.head.canonicalize(PathRules {
            slashes: match self.row.keep_slashes {
                true => Slashes::Keep,
                false => Slashes::Merge,
            },
            encoded_slash: match self.row.keep_encoded_slash {
                true => EncodedSlash::Keep,
                false => EncodedSlash::Refuse,
            },
        })?;
        self.head.odd_field_names(OddNames::Drop)?;
        if self.verdict.statuses.is_empty() {
            self.verdict.path = self.head.path().to_vec();
            self.verdict.wire = self.head.path_wire().to_vec();
            self.verdict.query = self.head.query().map(<[u8]>::to_vec);
            self.verdict.host = self.head.host().to_owned();
        }
        self.verdict.statuses.push(200);
        let caps = BodyCaps {
            body_bytes: 1 << 30,
            chunk_extension_bytes: 4 * 1024,
            trailer_bytes: 8 * 1024,
        };
        let body = BodyDecoder::new(self.head.framing, &caps);
        // What follows a request that asks for a close is not looked at.
        self.refused = body.is_done() && !self.head.keep_alive;
        self.body = (!body.is_done()).then_some(body);
        Ok(true)
    }

    fn take_body(&mut self) -> Result<bool, wire::Refusal> {
        let Some(body) = &mut self.body else {
            return Ok(true);
        };
        let decoded = body.decode(&self.pending)?;
        if self.verdict.statuses.len() == 1 {
            self.verdict.body.extend_from_slice(decoded.data);
        }
        let (consumed, done) = (decoded.consumed, decoded.done);
        self.pending.drain(..consumed);
        if done {
            self.body = None;
            self.refused = !self.head.keep_alive;
        }
        Ok(done || consumed > 0)
    }

    fn end(mut self) -> Verdict {
        if !self.refused {
            if self.body.is_some() {
                self.verdict.statuses.pop();
                self.verdict.statuses.push(0);
            } else if !self.pending.is_empty() || self.row.bytes.is_empty() {
                self.verdict.statuses.push(0);
            }
        }
        self.verdict
    }
}

fn run(row: &RequestRow, cuts: &[usize]) -> Verdict {
    let mut connection = Connection::new(row);
    let mut from = 0;
    for &cut in cuts.iter().chain([&row.bytes.len()]) {
        connection.feed(&row.bytes[from..cut]);
        from = cut;
    }
    connection.end()
}

/// What is wrong with a verdict, if anything.
fn fault(row: &RequestRow, verdict: &Verdict) -> Option<String> {
    if verdict.statuses.len() != row.replies.len() {
        return Some(format!("{:?} expected, got {verdict:?}", row.replies));
    }
    let fits = |(status, right): (&u16, &Vec<u16>)| {
        let left_to_server = *status == 200 && right.iter().any(|at| BY_THE_SERVER.contains(at));
        right.contains(status) || left_to_server
    };
    if !verdict.statuses.iter().zip(&row.replies).all(fits) {
        return Some(format!("{:?} expected, got {verdict:?}", row.replies));
    }
    let faces = &row.faces;
    let accepted = verdict.statuses.first() == Some(&200);
    let wrong = [
        (
            "path",
            faces
                .path
                .as_ref()
                .is_some_and(|path| *path != verdict.path),
        ),
        (
            "wire",
            faces
                .wire
                .as_ref()
                .is_some_and(|wire| *wire != verdict.wire),
        ),
        (
            "query",
            faces
                .query
                .as_ref()
                .is_some_and(|query| *query != verdict.query),
        ),
        (
            "host",
            faces
                .host
                .as_ref()
                .is_some_and(|host| *host != verdict.host),
        ),
        (
            "body",
            expected_body(row).is_some_and(|body| body != verdict.body),
        ),
    ];
    let wrong = wrong.iter().find(|(_, wrong)| *wrong && accepted)?;
    Some(format!("wrong {}: {verdict:?}", wrong.0))
}

fn expected_body(row: &RequestRow) -> Option<&[u8]> {
    match &row.sees {
        testkit::vectors::Sees::Request(request) => request.body.as_deref(),
        _ => None,
    }
}

fn all_rows() -> Vec<RequestRow> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors");
    requests(&root, &["h1", "target", "host", "path"])
}

/// Runs every row with the cuts chosen for it and reports all that fail.
fn check(cuts: impl Fn(&RequestRow) -> Vec<Vec<usize>>) {
    let rows = all_rows();
    assert!(rows.len() >= 400, "only {} rows", rows.len());
    let mut faults = Vec::new();
    for row in &rows {
        let found = cuts(row)
            .iter()
            .find_map(|cuts| fault(row, &run(row, cuts)).map(|what| (cuts.clone(), what)));
        if let Some((cuts, what)) = found {
            let cuts = &cuts[..cuts.len().min(3)];
            faults.push(format!(
                "{} [{}] cut at {cuts:?}: {what:.600}",
                row.id, row.rule
            ));
        }
    }
    assert!(
        faults.is_empty(),
        "{} rows fail:\n{}",
        faults.len(),
        faults.join("\n")
    );
}

#[test]
fn rows_sent_whole() {
    check(|_| vec![Vec::new()]);
}

#[test]
fn rows_cut_at_every_boundary() {
    check(|row| row.cuts(2048).into_iter().map(|cut| vec![cut]).collect());
}

#[test]
fn rows_sent_byte_by_byte() {
    // A head that grows by one byte is looked at again from its start, so long rows go by the piece.
    check(|row| {
        let piece = row.bytes.len() / 2048 + 1;
        vec![(1..row.bytes.len()).step_by(piece).collect()]
    });
}
