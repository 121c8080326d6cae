//! What goes into a program and comes out of it: framing, size, and everybody's pace.

use super::cgi::ECHO;
use crate::fixtures::programs::{self, answer, gateway, note, pipes, request, tell};
use testkit::client::{Body, reply};
use testkit::{PATIENCE, RawClient, eventually};

#[test]
fn a_body_goes_in_and_comes_back_however_it_is_framed() {
    let gateway = gateway("", "", &[("echo.cgi", ECHO)]);
    for length in [0, 1, 5_000, 70_000, 300_000] {
        let body = "x".repeat(length);
        let expected = format!("[{length}]\n{body}");
        let mut client = gateway.client().with_deadline(PATIENCE);
        client.send(&request(
            "POST /echo.cgi",
            &format!("Content-Length: {length}\r\n"),
        ));
        client.send(body.as_bytes());
        let (status, echoed) = answer(client.read_reply(Body::Framed));
        assert!((status, &echoed) == (200, &expected), "{length}: {status}");
        // CGI has no other way to say how long a body is: it is taken first.
        let mut client = gateway.client().with_deadline(PATIENCE);
        client.send(&request("POST /echo.cgi", "Transfer-Encoding: chunked\r\n"));
        for piece in body.as_bytes().chunks(10_000) {
            client.send(&[format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat());
        }
        client.send(b"0\r\n\r\n");
        let (status, echoed) = answer(client.read_reply(Body::Framed));
        assert!(
            (status, &echoed) == (200, &expected),
            "{length} in chunks: {status}"
        );
    }
}

#[test]
fn a_body_nobody_reads_is_no_error() {
    let deaf = "#!/bin/sh\nexec <&-\nprintf 'Content-Type: x\\n\\n'\necho deaf\n";
    let gateway = gateway("", "", &[("deaf.cgi", deaf)]);
    for length in [10, 3_000_000] {
        let mut client = gateway.client().with_deadline(PATIENCE);
        client.send(&request(
            "POST /deaf.cgi",
            &format!("Content-Length: {length}\r\n"),
        ));
        client.send(&vec![b'x'; length]);
        assert_eq!(
            answer(client.read_reply(Body::Framed)),
            (200, "deaf\n".into())
        );
    }
}

#[test]
fn a_client_that_waits_to_be_asked_for_its_body_is_asked() {
    let gateway = gateway("", "", &[("echo.cgi", ECHO)]);
    let mut client = gateway.client().with_deadline(PATIENCE);
    client.send(&request(
        "POST /echo.cgi",
        "Content-Length: 3\r\nExpect: 100-continue\r\n",
    ));
    let interim = b"HTTP/1.1 100 Continue\r\n\r\n";
    assert_eq!(client.read_exactly(interim.len()), interim);
    client.send(b"abc");
    assert_eq!(
        answer(client.read_reply(Body::Framed)),
        (200, "[3]\nabc".into())
    );
}

#[test]
fn ten_megabytes_go_both_ways_and_leave_memory_alone() {
    const LENGTH: usize = 10 << 20;
    let mirror = "#!/bin/sh\nprintf 'Content-Length: %s\\n\\n' \"$CONTENT_LENGTH\"\nexec cat\n";
    let gateway = gateway("", "", &[("mirror.cgi", mirror)]);
    let ask = |length: usize| {
        let body: Vec<u8> = (0..length).map(|at| (at * 7 / 3) as u8).collect();
        let mut client = gateway.client().with_deadline(PATIENCE);
        client.send(&request(
            "PUT /mirror.cgi",
            &format!("Content-Length: {length}\r\n"),
        ));
        client.send(&body);
        let reply = reply(client.read_reply(Body::Framed));
        assert!(
            reply.complete && reply.body == body,
            "{length}: {}",
            reply.status
        );
    };
    ask(1 << 20);
    let before = gateway.server_peak_bytes();
    ask(LENGTH);
    let grown = gateway.server_peak_bytes().saturating_sub(before);
    assert!(grown < 8 << 20, "{grown} bytes more for a body of {LENGTH}");
}

#[test]
fn a_slow_reader_does_not_hold_the_program() {
    let large = "#!/bin/sh\nprintf 'Content-Type: x\\n\\n'\nhead -c 4000000 /dev/zero\necho $$ >{notes}/done\n";
    let gateway = gateway("", "", &[("large.cgi", large)]);
    let server = gateway.server_pid();
    let before = pipes(server);
    let mut client = RawClient::connect_narrow(gateway.address()).with_deadline(PATIENCE);
    client.send(&request("GET /large.cgi", ""));
    let process = note(&gateway, "done");
    programs::await_gone(&process);
    eventually(PATIENCE, "the program's pipes to be closed", || {
        (pipes(server) == before).then_some(())
    });
    let reply = reply(client.read_reply(Body::Framed));
    assert!(reply.complete);
    assert_eq!(reply.body.len(), 4_000_000);
}

#[test]
fn without_a_buffer_the_programs_pace_is_its_clients() {
    let large = "#!/bin/sh\nprintf 'Content-Length: 9000000\\n\\n'\nhead -c 9000000 /dev/zero\necho $$ >{notes}/done\n";
    let gateway = gateway("buffer_reply = false", "", &[("large.cgi", large)]);
    let mut client = RawClient::connect_narrow(gateway.address()).with_deadline(PATIENCE);
    client.send(&request("GET /large.cgi", ""));
    let head = client.read_exactly(100);
    assert!(head.starts_with(b"HTTP/1.1 200 "));
    assert!(!gateway.directory().path().join("notes/done").exists());
    let rest = client.read_exactly(9_000_000);
    assert!(rest.len() > 8_999_000, "{}", rest.len());
    note(&gateway, "done");
}

#[test]
fn what_a_program_says_reaches_the_client_before_it_ends() {
    let slow = "#!/bin/sh\nprintf 'Content-Type: x\\n\\nfirst'\nuntil [ -e {notes}/go ]; do sleep 0.02; done\nprintf second\n";
    let gateway = gateway("", "", &[("slow.cgi", slow)]);
    let mut client = gateway.client().with_deadline(PATIENCE);
    client.send(&request("GET /slow.cgi", ""));
    let mut seen = Vec::new();
    while !seen.ends_with(b"5\r\nfirst\r\n") {
        let more = client.read_exactly(1);
        assert!(!more.is_empty(), "{}", String::from_utf8_lossy(&seen));
        seen.extend(more);
    }
    tell(&gateway, "go");
    assert_eq!(client.read_exactly(11 + 5), b"6\r\nsecond\r\n0\r\n\r\n");
}
