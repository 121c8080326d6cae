//! The client against servers that answer as a script says.

use super::*;
use crate::limits::Limits;
use crate::peer::{Peer, Step, nobody};
use Step::{Drip, Expect, ExpectClose, Send};

/// Far longer than a test may take, so that only the time under test can run out.
const LONG: Duration = Duration::from_secs(60);
const ME: Session = Session(1);
const OTHER: Session = Session(2);

fn client(peer: &Peer) -> Rc<Redis> {
    let limits = Limits {
        connect_timeout: LONG,
        command_timeout: LONG,
        ..Limits::default()
    };
    let address = Address::parse(&peer.address().to_string(), DEFAULT_PORT);
    Stores::new(limits).redis(&address.expect("an address"), LONG)
}

fn command(words: &str) -> Command {
    words
        .split(' ')
        .map(|word| word.as_bytes().to_vec())
        .collect()
}

async fn ask(client: &Rc<Redis>, session: Session, words: &str) -> Result<RedisReply, Error> {
    client.command(session, command(words)).await
}

fn status(word: &str) -> Result<RedisReply, Error> {
    Ok(RedisReply::Status(word.as_bytes().to_vec()))
}

#[tokio::test]
async fn commands_go_out_as_lists_and_answers_may_drip() {
    let peer = Peer::start(vec![vec![
        Expect(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"),
        Drip(b"$3\r\na\r\n\r\n"),
        Expect(b"*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"),
        Send(b"+PONG\r\n-ERR no\r\n"),
        Expect(b"*1\r\n$3\r\nBAD\r\n"),
        Send(b"-ERR unknown command\r\n"),
        ExpectClose,
    ]])
    .await;
    let client = client(&peer);
    assert_eq!(
        ask(&client, ME, "GET k").await,
        Ok(RedisReply::Bytes(b"a\r\n".to_vec()))
    );
    let replies = client
        .pipeline(ME, vec![command("PING"), command("GET k")])
        .await;
    let no = RedisReply::Error("ERR no".to_owned());
    assert_eq!(replies, Ok(vec![RedisReply::Status(b"PONG".to_vec()), no]));
    let error = ask(&client, ME, "BAD").await.expect_err("refused");
    assert_eq!(error.kind(), Kind::Server);
    let text = format!("BAD at Redis {}: ERR unknown command", peer.address());
    assert_eq!(error.to_string(), text);
    drop(client);
    peer.wait_until_finished(1).await;
}

#[tokio::test]
async fn a_transaction_has_a_connection_of_its_own_until_its_end() {
    let mine = vec![
        Expect(b"*2\r\n$5\r\nWATCH\r\n$1\r\nk\r\n"),
        Send(b"+OK\r\n"),
        Expect(b"*1\r\n$5\r\nMULTI\r\n"),
        Send(b"+OK\r\n"),
        Expect(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"),
        Send(b"+QUEUED\r\n"),
        Expect(b"*1\r\n$4\r\nEXEC\r\n"),
        Send(b"*1\r\n$-1\r\n"),
        ExpectClose,
    ];
    let others = vec![
        Expect(b"*1\r\n$4\r\nPING\r\n"),
        Send(b"+PONG\r\n"),
        ExpectClose,
    ];
    let peer = Peer::start(vec![mine, others]).await;
    let client = client(&peer);
    assert_eq!(ask(&client, ME, "WATCH k").await, status("OK"));
    assert_eq!(ask(&client, OTHER, "PING").await, status("PONG"));
    assert_eq!(ask(&client, ME, "MULTI").await, status("OK"));
    assert_eq!(ask(&client, ME, "GET k").await, status("QUEUED"));
    assert_eq!(
        ask(&client, ME, "EXEC").await,
        Ok(RedisReply::Array(vec![RedisReply::Nil]))
    );
    drop(client);
    peer.wait_until_finished(2).await;
}

#[tokio::test]
async fn the_end_of_a_request_gives_up_what_it_watched() {
    let watching = vec![
        Expect(b"*2\r\n$5\r\nWATCH\r\n$1\r\nk\r\n"),
        Send(b"+OK\r\n"),
        ExpectClose,
    ];
    let peer = Peer::start(vec![watching]).await;
    let client = client(&peer);
    assert_eq!(ask(&client, ME, "WATCH k").await, status("OK"));
    client.stores.end(ME);
    peer.wait_until_finished(1).await;
}

#[tokio::test]
async fn a_transaction_lost_with_its_connection_is_told_until_it_is_discarded() {
    let lost = vec![Expect(b"*1\r\n$5\r\nMULTI\r\n"), Send(b"+OK\r\n")];
    let next = vec![
        Expect(b"*1\r\n$4\r\nPING\r\n"),
        Send(b"+PONG\r\n"),
        ExpectClose,
    ];
    let peer = Peer::start(vec![lost, next]).await;
    let client = client(&peer);
    assert_eq!(ask(&client, ME, "MULTI").await, status("OK"));
    for _ in 0..2 {
        let error = ask(&client, ME, "INCR k").await.expect_err("lost");
        assert_eq!(error.kind(), Kind::Lost, "{error}");
    }
    assert_eq!(ask(&client, ME, "DISCARD").await, status("OK"));
    assert_eq!(ask(&client, ME, "PING").await, status("PONG"));
}

#[tokio::test]
async fn a_login_is_said_on_every_connection_and_kept_only_if_it_was_right() {
    let wrong = vec![
        Expect(b"*2\r\n$4\r\nAUTH\r\n$5\r\nguess\r\n"),
        Send(b"-WRONGPASS no such\r\n"),
        ExpectClose,
    ];
    let right = vec![
        Expect(b"*2\r\n$6\r\nSELECT\r\n$1\r\n2\r\n"),
        Send(b"+OK\r\n"),
        Expect(b"*1\r\n$4\r\nPING\r\n"),
        Send(b"+PONG\r\n"),
    ];
    let again = right.clone();
    let peer = Peer::start(vec![wrong, right, again]).await;
    let client = client(&peer);
    let error = client
        .auth(vec![b"guess".to_vec()])
        .await
        .expect_err("wrong");
    assert_eq!(error.kind(), Kind::Connect);
    let text = format!("connect to Redis {}: WRONGPASS no such", peer.address());
    assert_eq!(error.to_string(), text);
    assert_eq!(client.select(2).await, Ok(()));
    assert_eq!(ask(&client, ME, "PING").await, status("PONG"));
    peer.wait_until_finished(2).await;
    if ask(&client, ME, "PING").await.is_err() {
        assert_eq!(ask(&client, ME, "PING").await, status("PONG"));
    }
    assert_eq!(peer.accepted(), 3);
}

#[tokio::test]
async fn commands_that_turn_a_connection_around_are_refused_unsent() {
    let address = Address::parse(&nobody().await.to_string(), 1).expect("an address");
    let client = Stores::new(Limits::default()).redis(&address, LONG);
    for words in [
        "SUBSCRIBE c",
        "monitor",
        "client reply off",
        "select 1",
        "HELLO 3",
    ] {
        let error = ask(&client, ME, words).await.expect_err(words);
        assert_eq!(error.kind(), Kind::Argument, "{error}");
    }
    let many = vec![command("PING"); COMMANDS_MAX + 1];
    let error = client.pipeline(ME, many).await.expect_err("too many");
    assert_eq!(error.kind(), Kind::Argument);
    let long = vec![b"SET".to_vec(), vec![0; VALUE_BYTES_MAX]];
    let error = client.command(ME, long).await.expect_err("too long");
    assert_eq!(error.kind(), Kind::Argument);
    let error = ask(&client, ME, "PING").await.expect_err("nobody");
    assert_eq!(
        error.to_string(),
        format!("connect to Redis {address}: refused")
    );
}

#[tokio::test]
async fn an_answer_that_is_none_ends_the_connection() {
    let cases: [(&'static [u8], Kind); 4] = [
        (b"HTTP/1.1 400\r\n", Kind::Protocol),
        (b"$10485761\r\n", Kind::TooLarge),
        (b"+PONG\r\n+PONG\r\n", Kind::Protocol),
        (b"*2\r\n+PONG\r\n", Kind::Lost),
    ];
    for (answer, kind) in cases {
        let mut bad = vec![Expect(b"*1\r\n$4\r\nPING\r\n"), Send(answer)];
        if kind != Kind::Lost {
            bad.push(ExpectClose);
        }
        let good = vec![
            Expect(b"*1\r\n$4\r\nPING\r\n"),
            Send(b"+PONG\r\n"),
            ExpectClose,
        ];
        let peer = Peer::start(vec![bad, good]).await;
        let client = client(&peer);
        let error = ask(&client, ME, "PING").await.expect_err("no answer");
        assert_eq!(error.kind(), kind, "{error}");
        assert_eq!(ask(&client, ME, "PING").await, status("PONG"));
    }
}

#[tokio::test]
async fn an_object_may_want_less_time_than_is_allowed() {
    let peer = Peer::start(vec![vec![Expect(b"*1\r\n$4\r\nPING\r\n"), ExpectClose]]).await;
    let address = Address::parse(&peer.address().to_string(), 1).expect("an address");
    let limits = Limits {
        connect_timeout: LONG,
        command_timeout: LONG,
        ..Limits::default()
    };
    let client = Stores::new(limits).redis(&address, Duration::from_millis(50));
    let error = ask(&client, ME, "PING").await.expect_err("no answer");
    assert_eq!(error.kind(), Kind::Timeout);
    assert!(
        error
            .to_string()
            .ends_with("no answer within 50 ms (as the script wants)"),
        "{error}"
    );
}

#[tokio::test]
async fn objects_that_log_in_alike_share_connections_and_others_do_not() {
    let plain = vec![
        Expect(b"*1\r\n$4\r\nPING\r\n"),
        Send(b"+PONG\r\n"),
        Expect(b"*1\r\n$4\r\nPING\r\n"),
        Send(b"+PONG\r\n"),
        ExpectClose,
    ];
    let chosen = vec![
        Expect(b"*2\r\n$6\r\nSELECT\r\n$1\r\n2\r\n"),
        Send(b"+OK\r\n"),
        Expect(b"*1\r\n$4\r\nPING\r\n"),
        Send(b"+PONG\r\n"),
        ExpectClose,
    ];
    let peer = Peer::start(vec![plain, chosen]).await;
    let first = client(&peer);
    let address = first.server.address().clone();
    let another = || first.stores.redis(&address, LONG);
    assert_eq!(ask(&first, ME, "PING").await, status("PONG"));
    first.close();
    assert_eq!(ask(&another(), OTHER, "PING").await, status("PONG"));
    let chosen = another();
    assert_eq!(chosen.select(2).await, Ok(()));
    chosen.close();
    let chosen = another();
    assert_eq!(chosen.select(2).await, Ok(()));
    assert_eq!(ask(&chosen, ME, "PING").await, status("PONG"));
    assert_eq!(peer.accepted(), 2);
}

#[tokio::test]
async fn a_connection_on_which_a_command_changed_something_is_used_once() {
    let named = vec![
        Expect(b"*3\r\n$6\r\nCLIENT\r\n$7\r\nSETNAME\r\n$1\r\na\r\n"),
        Send(b"+OK\r\n"),
        ExpectClose,
    ];
    let next = vec![
        Expect(b"*1\r\n$4\r\nPING\r\n"),
        Send(b"+PONG\r\n"),
        ExpectClose,
    ];
    let peer = Peer::start(vec![named, next]).await;
    let client = client(&peer);
    assert_eq!(ask(&client, ME, "CLIENT SETNAME a").await, status("OK"));
    assert_eq!(ask(&client, ME, "PING").await, status("PONG"));
    assert_eq!(peer.accepted(), 2);
}
