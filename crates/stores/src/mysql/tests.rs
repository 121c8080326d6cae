//! The client against servers that are none, or say no at once.

use std::net::SocketAddr;
use std::time::Duration;

use super::*;
use crate::Address;
use crate::limits::Limits;
use crate::peer::{BlackHole, Peer, Step, nobody};
use Step::{ExpectClose, Send};

/// Far longer than a test may take, so that only the time under test can run out.
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(50);
const ME: Session = Session(1);

fn limits() -> Limits {
    Limits {
        connect_timeout: LONG,
        command_timeout: LONG,
        ..Limits::default()
    }
}

fn open(address: SocketAddr, limits: Limits) -> Rc<Database> {
    Stores::new(limits).mysql(&Login {
        address: Address::parse(&address.to_string(), DEFAULT_PORT).expect("an address"),
        user: "u".to_owned(),
        password: "p".to_owned(),
        database: String::new(),
        tls: None,
    })
}

async fn fails(database: &Rc<Database>) -> Error {
    let asked = database.execute(ME, "SELECT 1".into(), Vec::new());
    asked.await.expect_err("no answer")
}

#[tokio::test]
async fn nobody_and_a_black_hole_are_errors_of_connecting() {
    let address = nobody().await;
    let error = fails(&open(address, limits())).await;
    assert_eq!(
        error.to_string(),
        format!("connect to MySQL {address}: refused")
    );
    let hole = BlackHole::start().await;
    let connect = Limits {
        connect_timeout: SHORT,
        ..limits()
    };
    let total = Limits {
        command_timeout: SHORT,
        ..limits()
    };
    for (limits, key) in [(connect, "connect_timeout"), (total, "store_timeout")] {
        let error = fails(&open(hole.address(), limits)).await;
        assert_eq!(error.kind(), Kind::Connect, "{error}");
        let address = hole.address();
        let text = format!("connect to MySQL {address}: no answer within 50 ms (scripts.{key})");
        assert_eq!(error.to_string(), text);
    }
}

#[tokio::test]
async fn a_server_that_never_greets_costs_the_connect_timeout_and_is_left() {
    let peer = Peer::start(vec![vec![ExpectClose]]).await;
    let limits = Limits {
        connect_timeout: SHORT,
        ..limits()
    };
    let error = fails(&open(peer.address(), limits)).await;
    assert_eq!(error.kind(), Kind::Connect, "{error}");
    peer.wait_until_finished(1).await;
}

#[tokio::test]
async fn what_greets_otherwise_is_an_error_of_connecting() {
    let cases: [(&'static [u8], &str, Option<u16>); 4] = [
        (
            b"\x17\0\0\0\xff\x10\x04Too many connections",
            "ERROR 1040",
            Some(1040),
        ),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "", None),
        (b"\x01\0\0\0\x0a", "", None),
        (b"", "the server closed the connection", None),
    ];
    for (greeting, words, code) in cases {
        let peer = Peer::start(vec![vec![Send(greeting)]]).await;
        let error = fails(&open(peer.address(), limits())).await;
        assert_eq!(
            (error.kind(), error.code()),
            (Kind::Connect, code),
            "{error}"
        );
        let begin = format!("connect to MySQL {}: {words}", peer.address());
        assert!(error.to_string().starts_with(&begin), "{error}");
    }
}

#[tokio::test]
async fn a_statement_too_long_is_refused_unsent() {
    let database = open(nobody().await, limits());
    let asked = database.execute(ME, vec![b' '; VALUE_BYTES_MAX + 1], Vec::new());
    assert_eq!(asked.await.expect_err("too long").kind(), Kind::Argument);
}
