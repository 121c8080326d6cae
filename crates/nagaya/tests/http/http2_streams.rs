//! HTTP/2's connections and streams: how they end, how many there may be, whom they count for, and clients that are slow.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::http2::{END_STREAM, H2Client, RawH2, get, kind};
use testkit::{Gateway, PATIENCE, ScriptedUpstream, Step, eventually, free_port};

use crate::fixtures::limited::{Gate, ask, await_counts, held};
use crate::http2::{CONFIG, alone, gateway, is_well, raw, url};

/// The highest number of a stream: what the first of two GOAWAYs says.
const EVERY_STREAM: u32 = u32::MAX >> 1;
/// As many as a test wants, counted.
const ROOMY: (&str, &str) = ("limits", "{ concurrent = 1000 }");

/// A client of which one stream is held by the back end.
fn with_one_held(gateway: &Gateway, to: std::net::SocketAddr) -> RawH2<std::net::TcpStream> {
    let mut client = RawH2::connect(to, &[]);
    client.get(1, "app.test", "/app/");
    await_counts(gateway, 1, 0);
    client
}

/// Waits for the first GOAWAY, opens a stream behind it, and hears of the last one that is taken.
fn see_it_out(client: &mut RawH2<std::net::TcpStream>, gate: &Gate) {
    client.read_until("a ping", |it| {
        !it.goaways.is_empty() && !it.pings.is_empty()
    });
    assert_eq!(client.goaways, [(EVERY_STREAM, 0)]);
    client.get(3, "app.test", "/r");
    let ping = client.pings.remove(0);
    client.send(kind::PING, 1, 0, &ping);
    client.read_until("the last stream's number", |it| it.goaways.len() == 2);
    assert_eq!(client.goaways[1], (3, 0));
    let late = client.reply(3);
    assert_eq!(
        (late.status(), &late.body[..]),
        (200, &b"thirteen byte"[..])
    );
    gate.open();
    let first = client.reply(1);
    assert_eq!((first.status(), &first.body[..]), (200, &b"loaded"[..]));
    assert_eq!(client.read_to_end(), Some(0));
}

/// A queue would hold the window that those who are out of it need to go on.
#[test]
fn uploads_that_wait_in_a_queue_leave_the_one_that_is_read_its_window() {
    const WAITING: usize = 40;
    const UPLOAD: usize = 60_000;
    let (gateway, _upstream) =
        alone(&[("limits", "{ concurrent = 1, queue = 100, wait = \"600s\" }")]);
    let mut client = raw(&gateway);
    let upload = |client: &mut RawH2<_>, stream, bytes: usize| {
        let length = bytes.to_string();
        let mut fields = get("app.test", "/app/").to_vec();
        fields[0].1 = "POST";
        fields.push(("content-length", &length));
        client.ask(stream, &fields, false);
    };
    upload(&mut client, 1, 2_000);
    client.send(kind::DATA, 0, 1, &[b'a'; 1_000]);
    await_counts(&gateway, 1, 0);
    let waiting = (3..).step_by(2).take(WAITING);
    for stream in waiting.clone() {
        upload(&mut client, stream, UPLOAD);
        for _ in 0..3 {
            client.send(kind::DATA, 0, stream, &[b'b'; UPLOAD / 4]);
        }
        client.send(kind::DATA, END_STREAM, stream, &[b'c'; UPLOAD / 4]);
    }
    await_counts(&gateway, 1, WAITING);
    client.send(kind::DATA, END_STREAM, 1, &[b'd'; 1_000]);
    for stream in std::iter::once(1).chain(waiting) {
        let reply = client.reply(stream);
        assert_eq!((reply.status(), &*reply.body), (200, &b"fixed"[..]));
    }
}

#[test]
fn a_stop_says_goaway_in_two_steps_and_loses_no_stream() {
    let gate = Gate::default();
    let upstream = held(&gate);
    let mut gateway = gateway(&upstream, &[ROOMY]);
    let mut client = with_one_held(&gateway, gateway.address());
    gateway.signal(Signal::TERM);
    see_it_out(&mut client, &gate);
    assert!(gateway.wait().success());
}

#[test]
fn a_reload_without_the_listener_lets_streams_end_and_one_with_it_touches_none() {
    let (gate, port) = (Gate::default(), free_port());
    let upstream = held(&gate);
    let more = format!("[[listen]]\naddress = \"127.0.0.1:{port}\"\nprotocols = [\"h2c\"]\n");
    let mut gateway = gateway(&upstream, &[ROOMY, ("listen", &more)]);
    let mut going = with_one_held(&gateway, ([127, 0, 0, 1], port).into());
    let mut staying = raw(&gateway);
    staying.get(1, "app.test", "/r");
    assert_eq!(staying.reply(1).status(), 200);
    gateway.reload(&CONFIG.replace("{listen}", ""));
    see_it_out(&mut going, &gate);
    staying.get(3, "app.test", "/r");
    assert_eq!(staying.reply(3).status(), 200);
    assert_eq!(staying.goaways, []);
}

#[test]
fn an_upgrade_loses_no_stream() {
    let gate = Gate::default();
    let upstream = held(&gate);
    let gateway = gateway(&upstream, &[ROOMY]);
    let mut client = with_one_held(&gateway, gateway.address());
    let mut upgrading = Command::new(env!("CARGO_BIN_EXE_nagaya"))
        .args(["upgrade", "-c"])
        .arg(gateway.directory().path().join("nagaya.toml"))
        .spawn()
        .expect("the program starts");
    see_it_out(&mut client, &gate);
    assert!(upgrading.wait().expect("an end").success());
    is_well(&gateway);
}

#[test]
fn a_connection_without_streams_ends_in_time_whatever_it_sends() {
    let (gateway, _upstream) = alone(&[("timeouts", "idle_h2 = \"1s\"")]);
    let mut client = raw(&gateway);
    client.get(1, "app.test", "/r");
    assert_eq!(client.reply(1).status(), 200);
    let begun = Instant::now();
    let end = eventually(PATIENCE, "the end of an idle connection", || {
        client.send(kind::PING, 0, 0, b"keep me!");
        while let Some(frame) = client.read() {
            if frame.kind == kind::PING {
                // Its own pace, not a wait for something.
                std::thread::sleep(Duration::from_millis(50));
                return None;
            }
        }
        Some(begun.elapsed())
    });
    assert!(end >= Duration::from_millis(900), "{end:?}");
    assert!(client.goaways.iter().all(|(_, code)| *code == 0));
    is_well(&gateway);
}

/// Replies that are there at once leave no moment in which a stream is seen open.
#[test]
fn a_connection_that_asks_all_the_time_is_not_idle() {
    let changes = [
        ("timeouts", "idle_h2 = \"5s\"\nheader = \"5s\""),
        ("caps", "requests_per_connection = 0"),
    ];
    let (gateway, _upstream) = alone(&changes);
    let mut client = raw(&gateway);
    // However many replies there are, they have a window.
    client.open_window(0, 1 << 30);
    let begun = Instant::now();
    for stream in (1..).step_by(2) {
        client.get(stream, "app.test", "/r");
        assert_eq!(client.reply(stream).status(), 200);
        if begun.elapsed() > Duration::from_secs(11) {
            break;
        }
    }
    assert_eq!(client.goaways, []);
}

#[test]
fn a_hundred_streams_are_answered_at_once_and_more_wait_at_the_client() {
    let gate = Gate::default();
    let upstream = held(&gate);
    let gateway = gateway(&upstream, &[ROOMY]);
    let mut client = raw(&gateway);
    client.read_until("settings", |it| it.settings.contains(&(3, 100)));
    for stream in (1..=401).step_by(2) {
        client.get(stream, "app.test", "/app/");
        if stream == 199 {
            await_counts(&gateway, 100, 0);
        }
    }
    // REFUSED_STREAM: it was not begun, and may be asked for again.
    client.read_until("refusals", |it| {
        it.streams.values().filter(|it| it.reset == Some(7)).count() == 101
    });
    gate.open();
    for stream in (1..=199).step_by(2) {
        assert_eq!(client.reply(stream).body, b"loaded");
    }
    let client = H2Client::connect(gateway.address());
    let asked: Vec<_> = (0..300).map(|_| client.get(&url("/app/"))).collect();
    assert!(asked.into_iter().all(|it| it.reply().status == 200));
}

#[test]
fn a_connection_carries_so_many_streams_and_ends_when_they_have() {
    let (gateway, _upstream) = alone(&[("caps", "requests_per_connection = 4")]);
    let mut client = raw(&gateway);
    for stream in [1, 3, 5, 7] {
        client.get(stream, "app.test", "/r");
    }
    for stream in [1, 3, 5, 7] {
        assert_eq!(client.reply(stream).status(), 200);
    }
    client.read_until("a ping", |it| !it.pings.is_empty());
    assert_eq!(client.goaways, [(EVERY_STREAM, 0)]);
    let ping = client.pings.remove(0);
    client.send(kind::PING, 1, 0, &ping);
    assert_eq!(client.read_to_end(), Some(0));
    assert_eq!(client.goaways.len(), 2);
}

/// Waits until so many are under way, whoever waits.
fn await_in_flight(gateway: &Gateway, in_flight: usize) {
    let wanted = format!("\"in_flight\":{in_flight},");
    eventually(PATIENCE, "so many under way", || {
        ask(gateway, "limits list json")
            .contains(&wanted)
            .then_some(())
    });
}

#[test]
fn each_stream_counts_and_its_client_is_one_among_others() {
    let (gate, limits) = (
        Gate::default(),
        "{ concurrent = 4, queue = 200, wait = \"600s\" }",
    );
    let order = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let (known, held) = (std::sync::Arc::clone(&order), gate.clone());
    let upstream = ScriptedUpstream::start(move |seen| {
        known.lock().expect("no panic").push(seen.head.line.clone());
        held.wait();
        vec![Step::reply(200, "loaded")]
    });
    let gateway = gateway(&upstream, &[("limits", limits), ("workers", "1")]);
    let greedy = H2Client::connect_from([127, 0, 0, 1], gateway.address());
    let hundred: Vec<_> = (0..100).map(|_| greedy.get(&url("/app/many"))).collect();
    await_counts(&gateway, 4, 96);
    let others: Vec<_> = (0..20)
        .map(|nth| H2Client::connect_from([127, 1, nth, 1], gateway.address()))
        .collect();
    let single: Vec<_> = others.iter().map(|it| it.get(&url("/app/one"))).collect();
    await_counts(&gateway, 4, 116);
    gate.open();
    let is_served = |asked: testkit::http2::AskedStream| asked.reply().status == 200;
    assert!(single.into_iter().all(is_served));
    assert!(hundred.into_iter().all(is_served));
    await_counts(&gateway, 0, 0);
    let order = order.lock().expect("no panic");
    let last = order.iter().rposition(|line| line.contains("/one"));
    let last = last.expect("they were served");
    // Turn by turn: 20 others, as many of the hundred, and the four that were under way.
    assert!(last < 20 + 20 + 4 + 4, "the last of the others was {last}.");
}

#[test]
fn a_reset_stream_keeps_its_permit_until_its_work_has_ended() {
    let gate = Gate::default();
    let upstream = held(&gate);
    let limits = "{ concurrent = 1, queue = 9, wait = \"600s\" }";
    let gateway = gateway(&upstream, &[("limits", limits)]);
    let mut client = raw(&gateway);
    client.get(1, "app.test", "/app/first");
    await_counts(&gateway, 1, 0);
    client.reset(1);
    client.get(3, "app.test", "/app/second");
    await_counts(&gateway, 1, 1);
    // One that waits is gone at once.
    client.get(5, "app.test", "/app/third");
    await_counts(&gateway, 1, 2);
    client.reset(5);
    await_counts(&gateway, 1, 1);
    gate.open();
    assert_eq!(client.reply(3).body, b"loaded");
    await_counts(&gateway, 0, 0);
    let lines: Vec<_> = upstream
        .take_seen()
        .into_iter()
        .map(|it| it.head.line)
        .collect();
    assert_eq!(
        lines,
        ["GET /app/first HTTP/1.1", "GET /app/second HTTP/1.1"]
    );
}

/// Fewer are answered at once while a rule sheds; nobody waits for ever for those that last.
#[test]
fn streams_beyond_those_of_shedding_are_answered_one_by_one() {
    const ALL: usize = 36;
    let gate = Gate::default();
    let upstream = held(&gate);
    let rule = "[[shed]]\nsensor = \"in_flight\"\nenter = 3.5\nleave = 1.5\nscope = \"all\"\nmatch = { path = \"/none\" }";
    let gateway = gateway(&upstream, &[ROOMY, ("listen", rule)]);
    let mut client = raw(&gateway);
    client.read_until("settings", |it| it.settings.contains(&(3, 100)));
    let mut first = raw(&gateway);
    for stream in [1, 3, 5, 7] {
        first.get(stream, "app.test", "/app/first");
    }
    gateway.wait_for_message("shedding goes from green to red");
    let mut fresh = raw(&gateway);
    fresh.read_until("settings", |it| it.settings.contains(&(3, 32)));
    // Who was there before has not heard of that.
    for stream in (1..).step_by(2).take(ALL) {
        client.get(stream, "app.test", "/app/many");
    }
    await_counts(&gateway, ALL + 4, 0);
    gate.open();
    for stream in (1..).step_by(2).take(ALL) {
        assert_eq!(client.reply(stream).body, b"loaded");
    }
    assert_eq!(first.reply(1).body, b"loaded");
}

#[test]
fn records_and_figures_know_the_version_and_the_streams() {
    let gate = Gate::default();
    let upstream = held(&gate);
    let gateway = gateway(&upstream, &[ROOMY]);
    let client = H2Client::connect(gateway.address());
    let streams: Vec<_> = (0..7).map(|_| client.get(&url("/app/x"))).collect();
    await_in_flight(&gateway, 7);
    let other = H2Client::connect(gateway.address());
    let figures = other.get(&url("/metrics")).reply().text();
    let value = |name: &str| {
        let line = figures.lines().filter(|line| line.starts_with(name));
        let values = line.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u32>().ok());
        values.sum::<u32>()
    };
    assert_eq!(value("nagaya_http2_connections{"), 2, "{figures}");
    assert_eq!(value("nagaya_http2_streams{"), 8);
    let status = ask(&gateway, "status json");
    assert!(status.contains("http2_streams"), "{status}");
    gate.open();
    assert!(streams.into_iter().all(|it| it.reply().status == 200));
    let file = gateway.directory().path().join("access.log");
    let wanted = "\"target\":\"/app/x\",\"version\":\"HTTP/2.0\",\"status\":200,\"bytes\":6";
    eventually(PATIENCE, "seven records", || {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        (text.matches(wanted).count() == 7).then_some(())
    });
}

#[test]
fn a_stream_that_is_read_too_slowly_is_cut_and_its_neighbours_are_not() {
    let (gateway, _upstream) = alone(&[("timeouts", "write = \"8s\"")]);
    // No window at first, and then a byte of it now and then: that is no progress.
    let mut client = RawH2::connect(gateway.address(), &[(4, 0)]);
    client.get(1, "app.test", "/big.bin");
    let mut neighbour = 3;
    let cut = eventually(PATIENCE, "the slow stream's end", || {
        client.open_window(1, 1);
        client.get(neighbour, "app.test", "/r");
        client.open_window(neighbour, 1_000);
        assert_eq!(client.reply(neighbour).status(), 200);
        neighbour += 2;
        // Its own pace, not a wait for something.
        std::thread::sleep(Duration::from_millis(100));
        client.streams.get(&1).and_then(|it| it.reset)
    });
    assert!(cut > 0 && client.streams[&1].body.len() < 1_000);
    client.get(neighbour, "app.test", "/small.txt");
    client.open_window(neighbour, 1_000);
    assert_eq!(client.reply(neighbour).body, b"small\n");
}

#[test]
fn a_body_that_drips_and_a_head_that_never_ends_are_cut() {
    let timeouts = "body = \"6s\"\nheader = \"6s\"";
    let (gateway, _upstream) = alone(&[("timeouts", timeouts)]);
    let mut client = raw(&gateway);
    let mut fields = get("app.test", "/app/");
    fields[0].1 = "POST";
    client.ask(1, &fields, false);
    let reply = client.reply(1);
    assert!(
        matches!(reply.status(), 0 | 408) && !reply.body.is_empty() || reply.reset.is_some(),
        "{reply:?}"
    );
    client.get(3, "app.test", "/r");
    assert_eq!(client.reply(3).status(), 200);
    // Without END_HEADERS.
    let block = testkit::http2::literals(&get("app.test", "/r"));
    client.send(kind::HEADERS, END_STREAM, 5, &block);
    client.read_to_end();
    assert!(client.is_over);
    is_well(&gateway);
}

#[test]
fn a_connection_that_dies_takes_its_streams_with_it() {
    let gate = Gate::default();
    let upstream = held(&gate);
    let limits = "{ concurrent = 2, queue = 99, wait = \"600s\" }";
    let gateway = gateway(&upstream, &[("limits", limits)]);
    let client = H2Client::connect(gateway.address());
    let streams: Vec<_> = (0..50).map(|_| client.get(&url("/app/"))).collect();
    await_counts(&gateway, 2, 48);
    drop(client);
    await_counts(&gateway, 2, 0);
    gate.open();
    await_counts(&gateway, 0, 0);
    drop(streams);
    is_well(&gateway);
}
