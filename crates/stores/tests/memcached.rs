//! The client of memcached against a real one, on a runtime like a worker's.

use std::rc::Rc;
use std::time::Duration;

use crate::worker::with;
use stores::memcached::{Memcached as Client, Stored};
use stores::{Kind, Limits, Stores};
use testkit::Memcached;

fn limits() -> Limits {
    Limits {
        connect_timeout: Duration::from_secs(30),
        command_timeout: Duration::from_secs(30),
        ..Limits::default()
    }
}

fn client(memcached: &Memcached, limits: Limits) -> Rc<Client> {
    let address = memcached.address().to_string();
    Stores::new(limits).memcached(&address).expect("an address")
}

fn key(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

#[test]
fn every_command_does_what_it_says() {
    with(Memcached::start(&[]), async |memcached| {
        let client = client(&memcached, limits());
        assert_eq!(client.get(key("k")).await, Ok(None));
        assert_eq!(client.replace(key("k"), key("a"), 0).await, Ok(Stored::No));
        assert_eq!(client.add(key("k"), key("b"), 0).await, Ok(Stored::Yes));
        assert_eq!(client.add(key("k"), key("c"), 0).await, Ok(Stored::No));
        assert_eq!(client.append(key("k"), key("d")).await, Ok(Stored::Yes));
        assert_eq!(client.prepend(key("k"), key("a")).await, Ok(Stored::Yes));
        assert_eq!(client.get(key("k")).await, Ok(Some(key("abd"))));
        assert_eq!(memcached.get("k"), Some("abd".to_owned()));
        assert_eq!(client.incr(key("n"), 1).await, Ok(None));
        assert_eq!(client.set(key("n"), key("100"), 0).await, Ok(Stored::Yes));
        assert_eq!(client.decr(key("n"), 1).await, Ok(Some(99)));
        assert_eq!(client.incr(key("n"), 2).await, Ok(Some(101)));
        assert_eq!(client.delete(key("n")).await, Ok(true));
        assert_eq!(client.delete(key("n")).await, Ok(false));
        assert_eq!(client.set(key("gone"), key("x"), -1).await, Ok(Stored::Yes));
        assert_eq!(client.get(key("gone")).await, Ok(None));
        assert_eq!(client.flush_all(0).await, Ok(()));
        assert_eq!(client.get(key("k")).await, Ok(None));
    });
}

#[test]
fn long_values_come_back_whole_and_too_long_ones_are_refused() {
    with(Memcached::start(&[]), async |memcached| {
        let client = client(&memcached, limits());
        let long: Vec<u8> = (0..1_000_000_u32).map(|number| number as u8).collect();
        assert_eq!(client.set(key("k"), long.clone(), 0).await, Ok(Stored::Yes));
        assert_eq!(client.get(key("k")).await, Ok(Some(long)));
        let error = client
            .set(key("k"), vec![0; 2_000_000], 0)
            .await
            .expect_err("too long");
        assert_eq!(error.kind(), Kind::Server, "{error}");
        assert!(
            error.to_string().contains("SERVER_ERROR object too large"),
            "{error}"
        );
        assert_eq!(client.set(key("k"), key("abc"), 0).await, Ok(Stored::Yes));
        let error = client.incr(key("k"), 1).await.expect_err("no number");
        assert_eq!(error.kind(), Kind::Server, "{error}");
        assert_eq!(client.get(key("other")).await, Ok(None));
    });
}

#[test]
fn a_restarted_server_raises_at_most_once_and_one_that_is_gone_is_refused() {
    with(Memcached::start(&[]), async |mut memcached| {
        let client = client(&memcached, limits());
        assert_eq!(client.set(key("k"), key("a"), 0).await, Ok(Stored::Yes));
        memcached.restart();
        if let Err(error) = client.get(key("k")).await {
            assert_eq!(error.kind(), Kind::Lost, "{error}");
        }
        assert_eq!(client.get(key("k")).await, Ok(None));
        memcached.stop();
        let first = client.get(key("k")).await.expect_err("nobody is there");
        assert!(
            matches!(first.kind(), Kind::Lost | Kind::Connect),
            "{first}"
        );
        let error = client.get(key("k")).await.expect_err("nobody is there");
        let text = format!("connect to memcached {}: refused", memcached.address());
        assert_eq!(error.to_string(), text);
    });
}

#[test]
fn a_server_that_hangs_costs_the_time_of_one_command() {
    with(Memcached::start(&[]), async |memcached| {
        let limits = Limits {
            command_timeout: Duration::from_secs(2),
            ..limits()
        };
        let client = client(&memcached, limits);
        assert_eq!(client.set(key("k"), key("a"), 0).await, Ok(Stored::Yes));
        memcached.pause();
        let error = client.get(key("k")).await.expect_err("nobody answers");
        assert_eq!(error.kind(), Kind::Timeout, "{error}");
        memcached.resume();
        assert_eq!(client.get(key("k")).await, Ok(Some(key("a"))));
    });
}
