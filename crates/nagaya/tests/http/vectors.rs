//! Every request vector against the running gateway: whole, byte by byte, cut at many boundaries,
//! and each with a canary behind it whose reply must be its own or must not come at all.
//!
//! The upstream records what reached it. All trials of a row run interleaved on connections of
//! their own, a piece each in turn, so that the gateway really sees the pieces apart.

use std::path::Path;

use testkit::client::Body;
use testkit::vectors::{After, RequestRow, SITES, SeenRequest, Sees, requests};
use testkit::{Gateway, Outcome, RawClient, Reply, ScriptedUpstream, Seen, Step};

const CONFIG: &str = r#"
workers = 2
[log]
level = "warn"
[timeouts]
header = "20s"
body = "20s"
[upstreams.app]
servers = ["{upstream}"]
{sites}
"#;

const CANARY: &[u8] = b"GET /canary HTTP/1.1\r\nHost: canary.test\r\nConnection: close\r\n\r\n";

/// Connections of one row open at once.
const BATCH: usize = 48;
/// Rows up to this length are cut at every boundary.
const DENSE: usize = 120;

/// One way of sending a row.
struct Trial {
    cuts: Vec<usize>,
    /// The canary is sent with the last piece rather than after the replies.
    pipelined: bool,
}

/// What went wrong in a trial, or how many of its requests were accepted.
type Result = std::result::Result<usize, String>;

fn trials(row: &RequestRow) -> Vec<Trial> {
    let piece = row.bytes.len() / 2048 + 1;
    let every: Vec<_> = (1..row.bytes.len()).step_by(piece).collect();
    let both = |cuts: &Vec<usize>| {
        [true, false].map(|pipelined| Trial {
            cuts: cuts.clone(),
            pipelined,
        })
    };
    let mut trials: Vec<_> = [Vec::new(), every].iter().flat_map(both).collect();
    trials.extend(row.cuts(DENSE).into_iter().map(|cut| Trial {
        cuts: vec![cut],
        pipelined: cut % 2 == 0,
    }));
    trials
}

/// A trial under way.
struct Running<'a> {
    trial: &'a Trial,
    client: RawClient,
    pieces: Vec<Vec<u8>>,
}

impl<'a> Running<'a> {
    fn begin(gateway: &Gateway, row: &RequestRow, trial: &'a Trial) -> Self {
        let mut pieces = Vec::new();
        let mut from = 0;
        for &cut in trial.cuts.iter().chain([&row.bytes.len()]) {
            pieces.push(row.bytes[from..cut].to_vec());
            from = cut;
        }
        if let Some(last) = pieces.last_mut()
            && trial.pipelined
            && !row.finish
        {
            last.extend_from_slice(CANARY);
        }
        pieces.reverse();
        Self {
            trial,
            client: gateway.client(),
            pieces,
        }
    }

    /// Sends the next piece; false when there is none left.
    fn send_piece(&mut self, row: &RequestRow) -> bool {
        let Some(piece) = self.pieces.pop() else {
            return false;
        };
        self.client.send(&piece);
        if self.pieces.is_empty() && row.finish {
            self.client.finish_sending();
        }
        !self.pieces.is_empty()
    }

    fn judge(&mut self, row: &RequestRow) -> Result {
        let accepted = self.judge_replies(row)?;
        if row.finish || row.after == After::Closes {
            return self.judge_close(row).map(|()| accepted);
        }
        if !self.trial.pipelined {
            self.client.send(CANARY);
        }
        match self.client.read_reply(Body::Framed) {
            Outcome::Reply(reply) if is_canary(&reply) => self.judge_close(row).map(|()| accepted),
            Outcome::Eof | Outcome::Reset if row.after == After::Either => Ok(accepted),
            other => Err(format!(
                "after the replies, for the canary: {}",
                show(&other)
            )),
        }
    }

    fn judge_replies(&mut self, row: &RequestRow) -> Result {
        let mut accepted = 0;
        for (at, right) in row.replies.iter().enumerate() {
            let body = match row.is_head() && at == 0 {
                true => Body::Never,
                false => Body::Framed,
            };
            match self.client.read_reply(body) {
                Outcome::Reply(reply) if right.contains(&reply.status) && reply.complete => {
                    accepted += usize::from((200..300).contains(&reply.status));
                }
                Outcome::Eof | Outcome::Reset if right.contains(&0) => {}
                other => {
                    return Err(format!(
                        "reply {at}: {right:?} expected, got {}",
                        show(&other)
                    ));
                }
            }
        }
        Ok(accepted)
    }

    fn judge_close(&mut self, row: &RequestRow) -> std::result::Result<(), String> {
        // A refusal must be readable whatever else the client sent. A client that asked for the
        // close and still sends may be reset.
        let refused = row
            .replies
            .last()
            .is_some_and(|right| right.iter().all(|&at| at >= 400));
        match self.client.read_to_end() {
            (rest, Outcome::Eof) if rest.is_empty() => Ok(()),
            (rest, Outcome::Reset) if rest.is_empty() && !refused => Ok(()),
            (rest, end) => Err(format!(
                "expected a close, got {:?} and {}",
                String::from_utf8_lossy(&rest),
                show(&end)
            )),
        }
    }
}

fn is_canary(reply: &Reply) -> bool {
    reply.status == 200 && reply.body == b"canary" && reply.complete
}

fn show(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Reply(reply) => format!(
            "{} {:?}{}",
            reply.status,
            String::from_utf8_lossy(&reply.body),
            if reply.complete { "" } else { " cut short" },
        ),
        Outcome::Garbage(bytes) => format!("garbage {:?}", String::from_utf8_lossy(bytes)),
        other => format!("{other:?}"),
    }
}

/// Runs all trials of a row; how many requests were accepted, or the first fault.
fn run_trials(gateway: &Gateway, row: &RequestRow, trials: &[Trial]) -> Result {
    let mut accepted = 0;
    for batch in trials.chunks(BATCH) {
        let mut running: Vec<_> = batch
            .iter()
            .map(|trial| Running::begin(gateway, row, trial))
            .collect();
        let mut left = true;
        while left {
            left = false;
            for one in &mut running {
                left |= one.send_piece(row);
            }
            std::thread::yield_now();
        }
        for one in &mut running {
            let result = one.judge(row);
            accepted += result.map_err(|what| {
                let cuts = &one.trial.cuts[..one.trial.cuts.len().min(2)];
                let canary = if one.trial.pipelined {
                    ", canary behind"
                } else {
                    ""
                };
                format!("cut at {cuts:?}{canary}: {what}")
            })?;
        }
    }
    Ok(accepted)
}

/// What is wrong with what the upstream saw, if anything.
pub(crate) fn upstream_fault(
    row: &RequestRow,
    seen: &[Seen],
    trials: usize,
    accepted: usize,
) -> Option<String> {
    let shown = |seen: &Seen| format!("{:?}", String::from_utf8_lossy(&seen.head.bytes));
    match &row.sees {
        Sees::Anything | Sees::Unfinished => None,
        Sees::Nothing => {
            let first = seen.first()?;
            Some(format!("the upstream saw {}", shown(first)))
        }
        Sees::Request(_) if seen.len() != accepted => Some(format!(
            "{accepted} requests were accepted and the upstream saw {}",
            seen.len()
        )),
        Sees::Request(want) => {
            let is_meant = |one: &&Seen| match &want.line {
                Some(line) => *line == one.head.line || row.replies.len() == 1,
                None => true,
            };
            let meant: Vec<_> = seen.iter().filter(is_meant).collect();
            if want.line.is_some() && row.replies.len() > 1 && meant.len() < trials {
                return Some(format!(
                    "the upstream did not see {:?} each time",
                    want.line
                ));
            }
            meant
                .iter()
                .find_map(|one| Some(format!("{} in {}", seen_fault(want, one)?, shown(one))))
        }
    }
}

fn seen_fault(want: &SeenRequest, seen: &Seen) -> Option<String> {
    if want
        .line
        .as_ref()
        .is_some_and(|line| *line != seen.head.line)
    {
        return Some(format!("no {:?}", want.line));
    }
    for (name, value) in &want.fields {
        if seen.head.count(name) != 1 || seen.head.field(name) != Some(value) {
            return Some(format!("no single {name}: {value}"));
        }
    }
    if let Some(name) = want.lacks.iter().find(|name| seen.head.count(name) > 0) {
        return Some(format!("the field {name}"));
    }
    let all = [&seen.head.bytes[..], &seen.body].concat();
    let all = String::from_utf8_lossy(&all).into_owned();
    if let Some(text) = want.never.iter().find(|text| all.contains(text.as_str())) {
        return Some(format!("{text:?}"));
    }
    if want.body.as_ref().is_some_and(|body| *body != seen.body) || !seen.complete {
        return Some(format!("another body ({} bytes)", seen.body.len()));
    }
    None
}

pub(crate) fn answer(seen: &Seen) -> Vec<Step> {
    match seen.head.line.starts_with("HEAD ") {
        true => vec![
            Step::ReadBody,
            Step::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n".to_vec()),
        ],
        false => vec![Step::ReadBody, Step::reply(200, "seen")],
    }
}

/// Runs rows and reports all that fail.
fn run(rows: &[RequestRow]) {
    let upstream = ScriptedUpstream::start(answer);
    let gateway = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG)
        .with("sites", SITES)
        .with("upstream", upstream.address())
        .start();
    let mut faults = Vec::new();
    for row in rows {
        let trials = trials(row);
        let result = run_trials(&gateway, row, &trials);
        // What is seen of an unfinished request may come late: it is looked at in the end.
        let fault = match result {
            Ok(accepted) if is_settled(row) => {
                upstream_fault(row, &upstream.take_seen(), trials.len(), accepted)
            }
            Ok(_) => None,
            Err(what) => {
                // Trials given up on may still be under way.
                upstream.settle();
                Some(what)
            }
        };
        if let Some(what) = fault {
            faults.push(format!("{} [{}]: {what:.700}", row.id, row.rule));
        }
    }
    if rows.iter().all(|row| row.sees == Sees::Unfinished) {
        let seen = upstream.take_seen();
        let finished = seen.iter().filter(|one| one.complete);
        faults.extend(finished.map(|one| format!("the upstream saw a whole {one:?}")));
    }
    assert!(
        faults.is_empty(),
        "{} of {} rows fail:\n{}",
        faults.len(),
        rows.len(),
        faults.join("\n")
    );
}

pub(crate) fn rows(directory: &str, which: fn(&RequestRow) -> bool) -> Vec<RequestRow> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors");
    let mut rows = requests(&root, &[directory]);
    rows.retain(which);
    assert!(!rows.is_empty());
    rows
}

/// Whether the upstream sees a known number of whole requests.
fn is_settled(row: &RequestRow) -> bool {
    matches!(row.sees, Sees::Nothing | Sees::Request(_))
}

#[test]
fn heads_and_bodies() {
    run(&rows("h1", is_settled));
}

#[test]
fn a_body_in_doubt_never_reaches_its_end_upstream() {
    run(&rows("h1", |row| row.sees == Sees::Unfinished));
}

#[test]
fn rows_an_upstream_may_see_or_not() {
    for directory in ["h1", "target", "host"] {
        run(&rows(directory, |row| row.sees == Sees::Anything));
    }
}

#[test]
fn targets() {
    run(&rows("target", is_settled));
}

#[test]
fn hosts() {
    run(&rows("host", is_settled));
}

#[test]
fn paths() {
    let rows = rows("path", is_settled);
    assert!(
        rows.iter()
            .any(|row| row.keep_slashes && row.keep_encoded_slash)
    );
    run(&rows);
}
