//! `nagaya reload`: waits for what comes of a reload, and says it.

use testkit::gateway::Gateway;

use super::supervisor::{ask, builder, config, start};

const CONTROL: &str = "[control]\nsocket = \"{dir}/control\"";

/// A configuration with a control socket, that answers with `body`.
fn controlled(body: &str) -> String {
    config(body, "", CONTROL)
}

fn reload(gateway: &Gateway, words: &[&str]) -> (Option<i32>, String, String) {
    gateway.command(&[&["reload"], words].concat())
}

#[test]
fn it_ends_when_the_new_configuration_is_in_force() {
    let gateway = start(&controlled("one"));
    for (number, body) in [(2, "two"), (3, "three")] {
        gateway.place(&controlled(body));
        let (status, out, err) = reload(&gateway, &[]);
        assert_eq!((status, err.as_str()), (Some(0), ""), "{out}");
        assert!(
            out.starts_with(&format!("generation {number} serves 1 site")),
            "{out}"
        );
        assert_eq!(ask(&gateway), body);
    }
}

#[test]
fn it_says_what_is_wrong_where_and_by_whom_it_was_refused() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = format!(
        "{CONTROL}\n[[listen]]\naddress = \"{}\"",
        taken.local_addr().unwrap()
    );
    let script = format!("{CONTROL}\n[scripts]\nworker_init = {{ code = \"raise 'not today'\" }}");
    let gateway = start(&controlled("one"));
    for (config, code, complaint) in [
        (
            controlled("two").replace("workers", "wrokers"),
            2,
            "nagaya.toml:2:",
        ),
        (format!("[[[\n{}", controlled("two")), 2, "nagaya.toml:1:"),
        (
            config("two", "", &taken),
            1,
            "another process listens there",
        ),
        (config("two", "", &script), 1, "not today"),
    ] {
        gateway.place(&config);
        let (status, out, err) = reload(&gateway, &[]);
        assert_eq!((status, out.as_str()), (Some(code), ""), "{err}");
        assert!(err.contains(complaint), "{complaint}: {err}");
        assert!(
            err.ends_with("reload refused, the old configuration serves on\n"),
            "{err}"
        );
        assert_eq!(ask(&gateway), "one");
    }
}

#[test]
fn several_at_once_all_end_with_the_last_configuration() {
    let gateway = start(&controlled("one"));
    gateway.place(&controlled("two"));
    std::thread::scope(|scope| {
        let reload = || scope.spawn(|| gateway.told(&["reload"]));
        for command in [(); 4].map(|()| reload()) {
            assert!(!command.join().unwrap().is_empty());
        }
    });
    assert_eq!(ask(&gateway), "two");
}

#[test]
fn a_control_socket_that_moves_or_goes_is_no_failure() {
    let gateway = start(&controlled("one"));
    let moved = CONTROL.replace("control\"", "elsewhere\"");
    gateway.place(&config("two", "", &moved));
    let socket = gateway.directory().path().join("elsewhere");
    // Nobody is yet where the configuration says.
    let (status, out, err) = reload(&gateway, &[]);
    assert_eq!(status, Some(1), "{out}{err}");
    assert!(
        err.contains("elsewhere: no such file or directory"),
        "{err}"
    );
    let (status, out, err) = reload(&gateway, &["--pid", &gateway.pid().to_string()]);
    assert_eq!(status, Some(0), "{out}{err}");
    assert!(out.starts_with("generation 2 serves"), "{out}");
    gateway.place(&controlled("three"));
    let (status, out, err) = reload(&gateway, &["--socket", socket.to_str().unwrap()]);
    assert_eq!(status, Some(0), "{out}{err}");
    assert!(out.starts_with("generation 3 serves"), "{out}");
    gateway.place(&config("four", "", ""));
    let socket = gateway.directory().path().join("control");
    let (status, out, err) = reload(&gateway, &["--socket", socket.to_str().unwrap()]);
    assert_eq!(status, Some(0), "{out}{err}");
    assert!(out.contains("no control socket any more"), "{out}");
    assert_eq!(ask(&gateway), "four");
}

#[test]
fn without_a_gateway_or_a_way_to_it_it_says_what_to_do() {
    let directory = builder(&controlled("one"));
    let (status, _, err) = directory.run(&["reload"]);
    assert_eq!(status.code(), Some(1));
    assert!(err.contains("it does not run"), "{err}");
    let without = builder(&config("one", "", ""));
    let (status, _, err) = without.run(&["reload"]);
    assert_eq!(status.code(), Some(2));
    assert!(err.contains("[control]"), "{err}");
}

#[test]
fn without_a_control_socket_the_process_is_told_if_the_configuration_is_right() {
    let gateway = start(&config("one", "", ""));
    let pid = gateway.pid().to_string();
    gateway.place(&config("two", "wrokers = 1", ""));
    let (status, _, err) = reload(&gateway, &["--pid", &pid]);
    assert_eq!(status, Some(2), "{err}");
    assert!(
        err.contains("wrokers") && err.contains("no reload asked for"),
        "{err}"
    );
    gateway.place(&config("two", "", ""));
    let (status, out, _) = reload(&gateway, &["--pid", &pid]);
    assert_eq!(status, Some(0));
    assert!(out.contains("see the gateway's error log"), "{out}");
    gateway.wait_for_message("ready: generation 2");
    assert!(!gateway.stderr().contains("reload refused"));
}
