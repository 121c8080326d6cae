//! The client of Redis against a real one, on a runtime like a worker's.

use std::rc::Rc;

use crate::worker::with;
use stores::redis::{Redis, RedisReply};
use stores::{Address, Error, Kind, Limits, Session, Stores};
use testkit::{PATIENCE, RedisServer};

const ME: Session = Session(1);
const OTHER: Session = Session(2);

fn client(server: &RedisServer) -> Rc<Redis> {
    let limits = Limits {
        connect_timeout: PATIENCE,
        command_timeout: PATIENCE,
        ..Limits::default()
    };
    let address = server.address();
    let address = Address::tcp(&address.ip().to_string(), address.port());
    Stores::new(limits).redis(&address.expect("an address"), PATIENCE)
}

async fn ask(client: &Rc<Redis>, session: Session, words: &str) -> Result<RedisReply, Error> {
    let words = words.split(' ').map(|word| word.as_bytes().to_vec());
    client.command(session, words.collect()).await
}

fn bytes(text: &str) -> RedisReply {
    RedisReply::Bytes(text.as_bytes().to_vec())
}

fn ok() -> Result<RedisReply, Error> {
    Ok(RedisReply::Status(b"OK".to_vec()))
}

#[test]
fn every_kind_of_answer_is_understood() {
    with(RedisServer::start(&[]), async |server| {
        let client = client(&server);
        assert_eq!(ask(&client, ME, "SET k v").await, ok());
        assert_eq!(ask(&client, ME, "GET k").await, Ok(bytes("v")));
        assert_eq!(ask(&client, ME, "GET none").await, Ok(RedisReply::Nil));
        assert_eq!(
            ask(&client, ME, "INCRBY n -5").await,
            Ok(RedisReply::Int(-5))
        );
        assert_eq!(
            ask(&client, ME, "RPUSH l a b").await,
            Ok(RedisReply::Int(2))
        );
        let list = RedisReply::Array(vec![bytes("a"), bytes("b")]);
        assert_eq!(ask(&client, ME, "LRANGE l 0 -1").await, Ok(list));
        let error = ask(&client, ME, "INCR l").await.expect_err("no number");
        assert_eq!(error.kind(), Kind::Server);
        assert!(error.to_string().contains(": WRONGTYPE "), "{error}");
        assert_eq!(
            ask(&client, ME, "PUBLISH c hello").await,
            Ok(RedisReply::Int(0))
        );
        let long = vec![b'x'; 5_000_000];
        let set = vec![b"SET".to_vec(), b"long".to_vec(), long.clone()];
        assert_eq!(client.command(ME, set).await, ok());
        assert_eq!(
            ask(&client, ME, "GET long").await,
            Ok(RedisReply::Bytes(long))
        );
    });
}

#[test]
fn a_watched_key_that_changes_undoes_the_transaction() {
    with(RedisServer::start(&[]), async |server| {
        let client = client(&server);
        let queued = || Ok(RedisReply::Status(b"QUEUED".to_vec()));
        assert_eq!(ask(&client, ME, "WATCH k").await, ok());
        assert_eq!(ask(&client, ME, "MULTI").await, ok());
        assert_eq!(ask(&client, ME, "SET k mine").await, queued());
        assert_eq!(ask(&client, OTHER, "SET k theirs").await, ok());
        assert_eq!(ask(&client, ME, "EXEC").await, Ok(RedisReply::Nil));
        assert_eq!(ask(&client, ME, "GET k").await, Ok(bytes("theirs")));
        assert_eq!(ask(&client, ME, "MULTI").await, ok());
        assert_eq!(ask(&client, ME, "INCR n").await, queued());
        assert_eq!(
            ask(&client, ME, "EXEC").await,
            Ok(RedisReply::Array(vec![RedisReply::Int(1)]))
        );
    });
}

#[test]
fn a_password_and_a_database_hold_for_every_connection() {
    with(
        RedisServer::start(&["--requirepass", "secret"]),
        async |server| {
            let client = client(&server);
            let error = ask(&client, ME, "PING").await.expect_err("no password");
            assert_eq!(error.kind(), Kind::Server);
            assert!(error.to_string().contains("NOAUTH"), "{error}");
            let error = client
                .auth(vec![b"guess".to_vec()])
                .await
                .expect_err("wrong");
            assert_eq!(error.kind(), Kind::Connect, "{error}");
            assert_eq!(client.auth(vec![b"secret".to_vec()]).await, Ok(()));
            assert_eq!(client.select(3).await, Ok(()));
            let tasks: Vec<_> = (0..8)
                .map(|_| client.command(ME, vec![b"INCR".to_vec(), b"n".to_vec()]))
                .map(tokio::task::spawn_local)
                .collect();
            for task in tasks {
                task.await.expect("no panic").expect("an answer");
            }
            assert_eq!(ask(&client, ME, "GET n").await, Ok(bytes("8")));
            assert_eq!(client.select(0).await, Ok(()));
            assert_eq!(ask(&client, ME, "GET n").await, Ok(RedisReply::Nil));
            assert_eq!(
                client.select(1_000).await.expect_err("none").kind(),
                Kind::Connect
            );
        },
    );
}

#[test]
fn a_restarted_server_raises_at_most_once() {
    with(RedisServer::start(&[]), async |mut server| {
        let client = client(&server);
        assert_eq!(ask(&client, ME, "SET k v").await, ok());
        server.restart();
        if let Err(error) = ask(&client, ME, "GET k").await {
            assert_eq!(error.kind(), Kind::Lost, "{error}");
        }
        assert_eq!(ask(&client, ME, "GET k").await, Ok(RedisReply::Nil));
        server.stop();
        // The first finds out that the connection is gone.
        let _ = ask(&client, ME, "GET k").await;
        let error = ask(&client, ME, "GET k")
            .await
            .expect_err("nobody is there");
        assert_eq!(error.kind(), Kind::Connect, "{error}");
    });
}
