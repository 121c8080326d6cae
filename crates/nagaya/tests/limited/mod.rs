//! What tests of limits ask of a gateway: requests that are held at its back end, and its counts.
#![allow(dead_code, reason = "each test file uses its part")]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use testkit::client::{Body, reply};
use testkit::{Gateway, RawClient, Reply, ScriptedUpstream, Step, eventually};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Whether a back end may answer.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<AtomicBool>);

impl Gate {
    pub(crate) fn open(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(crate) fn wait(&self) {
        eventually(PATIENCE, "the back end to be let go", || {
            self.0.load(Ordering::Acquire).then_some(())
        });
    }
}

/// A back end that answers once the gate is open.
pub(crate) fn held(gate: &Gate) -> ScriptedUpstream {
    let gate = gate.clone();
    ScriptedUpstream::start(move |_| {
        gate.wait();
        vec![Step::reply(200, "loaded")]
    })
}

/// Asks over the control socket.
pub(crate) fn ask(gateway: &Gateway, question: &str) -> String {
    let socket = gateway.directory().path().join("control");
    let mut stream = UnixStream::connect(socket).unwrap();
    writeln!(stream, "{question}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Waits until the one limit there is has so many under way and so many waiting.
pub(crate) fn await_counts(gateway: &Gateway, in_flight: usize, queued: usize) {
    let wanted = format!("\"in_flight\":{in_flight},\"queued\":{queued},");
    let mut last = String::new();
    eventually(PATIENCE, "the counts of the limit", || {
        last = ask(gateway, "limits list json");
        last.contains(&wanted).then_some(())
    });
}

/// Sends a request on a connection of its own and leaves it there.
pub(crate) fn send(gateway: &Gateway, path: &str) -> RawClient {
    let mut client = gateway.client().with_deadline(PATIENCE);
    client.send(&get("app.test", path));
    client
}

pub(crate) fn replies(clients: Vec<RawClient>) -> Vec<Reply> {
    let read = |mut client: RawClient| reply(client.read_reply(Body::Framed));
    clients.into_iter().map(read).collect()
}

pub(crate) fn count(replies: &[Reply], status: u16) -> usize {
    replies
        .iter()
        .filter(|reply| reply.status == status)
        .count()
}

/// A request for a page of a host.
pub(crate) fn get(host: &str, target: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes()
}
