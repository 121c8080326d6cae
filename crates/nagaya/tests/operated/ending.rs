//! How a gateway ends: by TERM and QUIT, and with its supervisor.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};
use testkit::client::Body;
use testkit::processes::hold_still;
use testkit::upstream::{ScriptedUpstream, Step};
use testkit::wait::eventually;

use super::supervisor::{ASK, PATIENCE, ask, body, builder, config, lives, pid, start};

#[test]
fn the_server_does_not_outlive_its_supervisor() {
    let gateway = start(&config("one", "", ""));
    let server = gateway.server_pid();
    kill_process(pid(gateway.pid()), Signal::KILL).unwrap();
    eventually(PATIENCE, "the server to end", || {
        (!lives(server)).then_some(())
    });
}

#[test]
fn term_ends_in_order() {
    for signal in [Signal::TERM, Signal::INT, Signal::QUIT] {
        let mut gateway = start(&config("one", "", ""));
        let (server, address) = (gateway.server_pid(), gateway.address());
        gateway.signal(signal);
        assert!(gateway.wait().success());
        assert!(TcpStream::connect(address).is_err());
        assert!(!lives(server));
    }
}

#[test]
fn a_request_that_has_begun_is_answered_after_term() {
    let mut gateway = start(&config("one", "", ""));
    let mut client = gateway.client();
    let (begin, end) = ASK.split_at(20);
    client.send(begin);
    // The server reads in the order of arrival: what is asked later is answered later.
    assert_eq!(ask(&gateway), "one");
    gateway.signal(Signal::TERM);
    gateway.wait_for_message("signal=TERM");
    assert_eq!(body(client.ask(end)), "one");
    assert!(gateway.wait().success());
}

#[test]
fn quit_drains_however_often_it_comes_and_children_take_no_signal_but_the_last() {
    let mut gateway = start(&config("one", "", ""));
    let (server, spawner) = (gateway.server_pid(), gateway.spawner_pid());
    // As a terminal or `pkill` does it: to all of them.
    for child in [server, spawner] {
        for signal in [Signal::USR2, Signal::QUIT] {
            kill_process(pid(child), signal).unwrap();
        }
    }
    assert_eq!(ask(&gateway), "one");
    assert_eq!(
        (gateway.server_pid(), gateway.spawner_pid()),
        (server, spawner)
    );
    let mut client = gateway.client();
    let (begin, end) = ASK.split_at(20);
    client.send(begin);
    assert_eq!(ask(&gateway), "one");
    gateway.signal(Signal::QUIT);
    gateway.wait_for_message("signal=QUIT");
    gateway.signal(Signal::QUIT);
    gateway.wait_for_message("what is under way is being finished already");
    assert_eq!(body(client.ask(end)), "one");
    assert!(gateway.wait().success());
}

#[test]
fn while_draining_new_clients_are_refused_at_once() {
    const SLOW: &str = r#"
        workers = 2
        [[listen]]
        address = "127.0.0.1:{port}"
        [[listen]]
        address = "unix:{dir}/listener"
        [upstreams.app]
        servers = ["{upstream}"]
        [[sites]]
        hosts = ["example.jp"]
        rules = [{ handler = { proxy = "app" } }]
        "#;
    let (upstream, turn) = ScriptedUpstream::held(vec![Step::reply(200, "late")]);
    let mut gateway = builder(SLOW).with("upstream", upstream.address()).start();
    let file = gateway.directory().path().join("listener");
    let unix = UnixStream::connect(&file).unwrap();
    let mut client = gateway.client();
    client.send(ASK);
    turn.wait();
    gateway.signal(Signal::TERM);
    let address = gateway.address();
    let refused = || match TcpStream::connect(address) {
        Ok(_) => false,
        Err(error) => error.kind() == ErrorKind::ConnectionRefused,
    };
    eventually(PATIENCE, "a refusal", || refused().then_some(()));
    assert!((0..100).all(|_| refused()));
    // Of the supervisor's, which goes from one listener to the next.
    eventually(PATIENCE, "the listener's file to go", || {
        (!file.exists()).then_some(())
    });
    // Whoever had connected is still heard.
    turn.wait();
    assert_eq!(body(client.read_reply(Body::Framed)), "late");
    drop(unix);
    assert!(gateway.wait().success());
}

#[test]
fn clients_that_wait_to_be_accepted_when_term_comes_are_answered() {
    let mut gateway = start(&config("one", "", ""));
    let server = gateway.server_pid();
    hold_still(server);
    let mut clients: Vec<_> = (0..32).map(|_| gateway.client()).collect();
    for client in &mut clients {
        client.send(ASK);
    }
    gateway.signal(Signal::TERM);
    gateway.wait_for_message(" signal=TERM");
    kill_process(pid(server), Signal::CONT).unwrap();
    for mut client in clients {
        assert_eq!(body(client.read_reply(Body::Framed)), "one");
    }
    assert!(gateway.wait().success());
}

#[test]
fn connections_that_ask_nothing_do_not_hold_up_the_end() {
    let mut gateway = start(&config("one", "", "[timeouts]\nheader = \"60s\""));
    let _silent: Vec<_> = (0..8).map(|_| gateway.client()).collect();
    let mut kept = gateway.client();
    let reply = kept.ask(b"GET / HTTP/1.1\r\nHost: example.jp\r\n\r\n");
    assert_eq!(body(reply), "one");
    let start = Instant::now();
    gateway.signal(Signal::TERM);
    assert!(gateway.wait().success());
    let took = start.elapsed();
    // Requests that have begun would be waited for half a minute.
    assert!(took < Duration::from_secs(20), "{took:?}");
}

#[test]
fn a_second_term_ends_at_once() {
    let mut gateway = start(&config(
        "one",
        "",
        "[timeouts]\ndrain = \"60s\"\nheader = \"60s\"",
    ));
    let mut client = gateway.client();
    client.send(b"GET / HTTP/1.1\r\nHost: exa");
    assert_eq!(ask(&gateway), "one");
    gateway.signal(Signal::TERM);
    gateway.wait_for_message("signal=TERM");
    gateway.signal(Signal::INT);
    let start = Instant::now();
    assert!(gateway.wait().success());
    assert!(
        start.elapsed() < Duration::from_secs(30),
        "{:?}",
        start.elapsed()
    );
}
