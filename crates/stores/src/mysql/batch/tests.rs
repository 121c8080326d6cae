//! Statements that share a connection, with a server that answers as a script says.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use tokio::task::{JoinHandle, spawn_local};

use super::super::packet::{begin, seal};
use super::super::statements::TOGETHER_MAX;
use super::super::{Answer, Cell, DEFAULT_PORT, Database, Login};
use crate::peer::{Peer, Step};
use crate::{Address, Error, Kind, Limits, Session, Stores};
use Step::{Expect, ExpectClose, Hear, Send};

/// Far longer than a test may take, so that only the time under test can run out.
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(50);
const SQL: &[u8] = b"SELECT n FROM t";
const OTHER_SQL: &[u8] = b"SELECT n FROM u";
const ME: Session = Session(1);

fn kept(bytes: Vec<u8>) -> &'static [u8] {
    Box::leak(bytes.into_boxed_slice())
}

/// Packets one after another, the first with this number.
fn packets(first: u8, payloads: &[&[u8]]) -> &'static [u8] {
    let mut out = Vec::new();
    for (payload, sequence) in payloads.iter().zip(first..) {
        let place = begin(&mut out);
        out.extend_from_slice(payload);
        seal(&mut out, place, sequence);
    }
    kept(out)
}

/// Greets, hears who it is, and is content.
fn login() -> Vec<Step> {
    const GREETING: &[u8] = b"\x0a8.0.0\0\x07\0\0\x0012345678\0\xff\xff\x2d\x02\0\xff\xff\x15\
        \0\0\0\0\0\0\0\0\0\x00901234567890\0mysql_native_password\0";
    // A head of 32 bytes, two names, and a proof with its length.
    const ANSWER_BYTES: usize = 4 + 32 + 2 + 21 + 22;
    vec![
        Send(packets(0, &[GREETING])),
        Hear(ANSWER_BYTES),
        Send(packets(2, &[b"\0\0\0\x02\0\0\0"])),
    ]
}

const COLUMN: &[u8] = b"\x03def\0\0\0\x01n\x01n\x0c\x3f\0\x15\0\0\0\x08\0\0\0\0\0";

/// Prepares the statement as its first.
fn prepare() -> Vec<Step> {
    prepare_as(1, SQL)
}

/// Prepares a statement under this number.
fn prepare_as(id: u8, sql: &[u8]) -> Vec<Step> {
    let command = packets(0, &[&[&b"\x16"[..], sql].concat()]);
    let prepared = [&[0, id, 0, 0, 0][..], b"\x01\0\0\0\0\0\0"].concat();
    vec![Expect(command), Send(packets(1, &[&prepared, COLUMN]))]
}

/// So many executions of the statement in one piece.
fn executions(count: usize) -> Step {
    executions_of(&vec![1; count])
}

/// Executions of the statements with these numbers in one piece.
fn executions_of(ids: &[u8]) -> Step {
    let one = |id: &u8| packets(0, &[&[0x17, *id, 0, 0, 0, 0, 1, 0, 0, 0]]);
    Expect(kept(ids.iter().flat_map(one).copied().collect()))
}

/// A row with this number.
fn row(number: u8) -> Step {
    let row = [&[0, 0, number][..], &[0; 7]].concat();
    let end: &[u8] = b"\xfe\0\0\x02\0\0\0";
    Send(packets(1, &[b"\x01", COLUMN, &row, end]))
}

fn script(parts: &[Vec<Step>]) -> Vec<Step> {
    parts.concat()
}

fn open(address: SocketAddr, patience: Duration) -> Rc<Database> {
    open_within(address, patience, limits())
}

fn limits() -> Limits {
    Limits {
        connect_timeout: LONG,
        command_timeout: LONG,
        ..Limits::default()
    }
}

fn open_within(address: SocketAddr, patience: Duration, limits: Limits) -> Rc<Database> {
    let database = Stores::new(limits).mysql(&Login {
        address: Address::parse(&address.to_string(), DEFAULT_PORT).expect("an address"),
        user: "u".to_owned(),
        password: "p".to_owned(),
        database: String::new(),
        tls: None,
    });
    database.pipeline.share(SQL);
    database.pipeline.be_patient(patience);
    database
}

type Answering = JoinHandle<Result<Answer, Error>>;

fn ask(database: &Rc<Database>) -> Answering {
    ask_for(database, SQL)
}

fn ask_for(database: &Rc<Database>, sql: &[u8]) -> Answering {
    spawn_local(database.execute(ME, sql.to_vec(), Vec::new()))
}

async fn number(asked: Answering) -> Result<Cell, Error> {
    let answer = asked.await.expect("no panic")?;
    let rows = answer.table.expect("rows").rows;
    Ok(rows.into_iter().flatten().next().expect("a value"))
}

#[tokio::test(flavor = "local")]
async fn statements_of_one_turn_are_sent_together_and_answered_in_order() {
    let together = vec![executions(3), row(7), row(8), row(9), ExpectClose];
    let peer = Peer::start(vec![script(&[login(), prepare(), together])]).await;
    let database = open(peer.address(), LONG);
    let asked = [ask(&database), ask(&database), ask(&database)];
    for (asked, expected) in asked.into_iter().zip(7..) {
        assert_eq!(number(asked).await, Ok(Cell::Int(expected)));
    }
    assert_eq!(peer.accepted(), 1);
}

#[tokio::test(flavor = "local")]
async fn those_behind_a_statement_without_an_answer_are_asked_elsewhere() {
    let silent = vec![executions(2), ExpectClose];
    let whole = vec![executions(1), row(8), ExpectClose];
    let peer = Peer::start(vec![
        script(&[login(), prepare(), silent]),
        script(&[login(), prepare(), whole]),
    ])
    .await;
    let database = open(peer.address(), SHORT);
    let (first, second) = (ask(&database), ask(&database));
    assert_eq!(number(second).await, Ok(Cell::Int(8)));
    assert!(!first.is_finished());
    first.abort();
}

#[tokio::test(flavor = "local")]
async fn no_more_go_together_than_may() {
    let rows = (7..).map(row).take(TOGETHER_MAX).collect();
    let next = vec![executions(1), row(11), ExpectClose];
    let together = vec![executions(TOGETHER_MAX)];
    let peer = Peer::start(vec![script(&[login(), prepare(), together, rows, next])]).await;
    let limits = Limits {
        connections_max: 1,
        ..limits()
    };
    let database = open_within(peer.address(), LONG, limits);
    let asked = [0; TOGETHER_MAX + 1].map(|_| ask(&database));
    for (asked, expected) in asked.into_iter().zip(7..) {
        assert_eq!(number(asked).await, Ok(Cell::Int(expected)));
    }
}

#[tokio::test(flavor = "local")]
async fn nobody_waits_for_a_statement_that_goes_alone() {
    let silent = vec![executions(1), ExpectClose];
    let answered = vec![executions_of(&[2]), row(8), ExpectClose];
    let peer = Peer::start(vec![
        script(&[login(), prepare(), silent]),
        script(&[login(), prepare_as(2, OTHER_SQL), answered]),
    ])
    .await;
    let database = open(peer.address(), LONG);
    let turns_slow = database.pipeline.share(SQL);
    database.pipeline.share(OTHER_SQL);
    let ask = |sql| {
        database
            .pipeline
            .submit(sql, Vec::new())
            .expect("it is shared")
    };
    let (_first, second) = (ask(SQL), ask(OTHER_SQL));
    turns_slow.record_slow(tokio::time::Instant::now());
    let second = spawn_local(async { second.await.expect("it is told") });
    assert_eq!(number(second).await, Ok(Cell::Int(8)));
}

#[tokio::test(flavor = "local")]
async fn what_turns_slow_goes_alone_at_once_and_holds_up_others_once() {
    let silent = vec![executions_of(&[1, 2, 1, 2]), ExpectClose];
    let answered = |number| vec![executions_of(&[2]), row(number)];
    let alone = vec![executions(1), ExpectClose];
    let other = || prepare_as(2, OTHER_SQL);
    let peer = Peer::start(vec![
        script(&[login(), prepare(), other(), silent]),
        script(&[login(), other(), answered(8), prepare(), alone]),
        script(&[login(), other(), answered(9), vec![ExpectClose]]),
    ])
    .await;
    let database = open(peer.address(), SHORT);
    database.pipeline.share(OTHER_SQL);
    let asked = [SQL, OTHER_SQL, SQL, OTHER_SQL].map(|sql| ask_for(&database, sql));
    let [first, second, third, fourth] = asked;
    assert_eq!(number(second).await, Ok(Cell::Int(8)));
    assert_eq!(number(fourth).await, Ok(Cell::Int(9)));
    assert!(!first.is_finished() && !third.is_finished());
    assert!(database.pipeline.submit(SQL, Vec::new()).is_err());
    assert_eq!(peer.accepted(), 3);
    [first, third].iter().for_each(JoinHandle::abort);
}

#[tokio::test(flavor = "local")]
async fn a_lost_connection_is_told_to_one_and_the_others_are_asked_again_once() {
    let lost = vec![executions(4), row(7)];
    let lost_again = vec![executions(2), row(9)];
    let peer = Peer::start(vec![
        script(&[login(), prepare(), lost]),
        script(&[login(), prepare(), lost_again]),
    ])
    .await;
    let database = open(peer.address(), LONG);
    let asked = [0; 4].map(|_| ask(&database));
    let mut said = Vec::new();
    for asked in asked {
        said.push(number(asked).await.map_err(|error| error.kind()));
    }
    assert_eq!(said[0], Ok(Cell::Int(7)));
    assert_eq!(said[1], Err(Kind::Lost));
    assert_eq!(said[2], Ok(Cell::Int(9)));
    assert_eq!(said[3], Err(Kind::Lost));
    assert_eq!(peer.accepted(), 2);
}

#[tokio::test(flavor = "local")]
async fn after_an_answer_that_never_came_each_statement_goes_alone() {
    let silent = vec![executions(2), row(7), ExpectClose];
    let peer = Peer::start(vec![script(&[login(), prepare(), silent])]).await;
    let limits = Limits {
        command_timeout: Duration::from_millis(500),
        ..limits()
    };
    let database = open_within(peer.address(), LONG, limits);
    let (first, second) = (ask(&database), ask(&database));
    let first = number(first).await;
    let error = number(second).await.expect_err("no answer");
    // On a slow machine the time may be over before anything was sent.
    if first.is_ok() {
        assert_eq!(error.kind(), Kind::Timeout, "{error}");
        assert!(database.pipeline.submit(SQL, Vec::new()).is_err());
    }
}

#[tokio::test(flavor = "local")]
async fn a_refusal_is_told_and_the_connection_goes_on() {
    let no = Send(packets(1, &[b"\xff\x28\x04#42000no"]));
    let refused = vec![
        executions(2),
        no,
        row(8),
        executions(1),
        row(9),
        ExpectClose,
    ];
    let peer = Peer::start(vec![script(&[login(), prepare(), refused])]).await;
    let database = open(peer.address(), LONG);
    let (first, second) = (ask(&database), ask(&database));
    let error = number(first).await.expect_err("refused");
    assert_eq!((error.kind(), error.code()), (Kind::Statement, Some(1064)));
    assert_eq!(number(second).await, Ok(Cell::Int(8)));
    assert_eq!(number(ask(&database)).await, Ok(Cell::Int(9)));
}

#[tokio::test(flavor = "local")]
async fn nobody_to_connect_to_is_told_to_all_who_wait() {
    let database = open(crate::peer::nobody().await, LONG);
    let asked = [ask(&database), ask(&database)];
    for asked in asked {
        let error = number(asked).await.expect_err("nobody");
        assert_eq!(error.kind(), Kind::Connect, "{error}");
    }
}
