//! What has gone wrong in other servers' HTTP/2, a test named after each: here the attacker's connection ends or has its
//! bounds, others are served meanwhile, and memory is bounded.

use std::net::TcpStream;

use testkit::http2::{
    ACK, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, RawH2, frame, get, kind, literals, push_text,
};
use testkit::{Gateway, PATIENCE, ScriptedUpstream, Step, eventually};

use crate::http2::{alone, gateway, is_well, raw};

/// Most frames that any flood is made of: far more than is endured.
const FRAMES: u32 = 50_000;
/// Frames that are sent in one go.
const BATCH: u32 = 250;
/// What any of this may add to the memory of a server.
const GROWTH_BYTES: u64 = 48 << 20;

/// A client that has been served once, and asks on with stream 3.
fn served(gateway: &Gateway) -> RawH2<TcpStream> {
    let mut client = raw(gateway);
    client.send(kind::SETTINGS, ACK, 0, &[]);
    client.get(1, "app.test", "/r");
    assert_eq!(client.reply(1).status(), 200);
    client
}

/// Sends frames, numbered from 0, until nobody takes them.
fn flood(client: &mut RawH2<TcpStream>, each: impl Fn(u32) -> Vec<u8>) {
    for from in (0..FRAMES).step_by(BATCH as usize) {
        let frames: Vec<u8> = (from..from + BATCH).flat_map(&each).collect();
        if !client.send_bytes(&frames) {
            return;
        }
    }
}

/// The stream of the frame with this number: each has its own.
fn stream(nth: u32) -> u32 {
    3 + 2 * nth
}

/// A flood ends its connection, is told of, and harms nobody.
fn is_cut(gateway: &Gateway, client: &mut RawH2<TcpStream>, each: impl Fn(u32) -> Vec<u8>) {
    let before = gateway.server_peak_bytes();
    flood(client, each);
    assert_eq!(client.read_to_end(), Some(ENHANCE_YOUR_CALM));
    is_told(gateway);
    is_bounded(gateway, before);
}

fn is_told(gateway: &Gateway) {
    gateway.wait_for_message("reason=h2_flood");
    eventually(PATIENCE, "the figure", || {
        let mut client = raw(gateway);
        client.get(1, "app.test", "/metrics");
        let text = String::from_utf8_lossy(&client.reply(1).body).into_owned();
        let mut lines = text.lines();
        lines
            .any(|line| {
                line.starts_with("nagaya_http2_connections_broken_off_total")
                    && !line.ends_with(" 0")
            })
            .then_some(())
    });
}

fn is_bounded(gateway: &Gateway, before: u64) {
    is_well(gateway);
    let growth = gateway.server_peak_bytes().saturating_sub(before);
    assert!(growth < GROWTH_BYTES, "{growth} bytes more");
}

fn head(stream: u32, path: &str) -> Vec<u8> {
    let block = literals(&get("app.test", path));
    frame(kind::HEADERS, END_HEADERS | END_STREAM, stream, &block)
}

/// The head of a request with a body to come.
fn open_head(stream: u32, path: &str) -> Vec<u8> {
    let mut fields = get("app.test", path);
    fields[0].1 = "POST";
    frame(kind::HEADERS, END_HEADERS, stream, &literals(&fields))
}

/// Streams that are reset as soon as they are open: no server's limit of streams saw them.
#[test]
fn cve_2023_44487_rapid_reset() {
    let (gateway, upstream) = alone(&[]);
    for path in ["/app/", "/r", "/big.bin"] {
        let mut client = served(&gateway);
        is_cut(&gateway, &mut client, |nth| {
            let reset = frame(kind::RST_STREAM, 0, stream(nth), &8_u32.to_be_bytes());
            [head(stream(nth), path), reset].concat()
        });
    }
    // Nor does the crate beneath fill the log.
    assert!(!gateway.stderr().contains("recv_reset"));
    let seen = upstream.take_seen().len();
    assert!(seen < 1_000, "{seen} requests came to the back end");
}

/// Streams that are reset once they were told to go on: what comes before a reply pays for nothing.
#[test]
fn cve_2023_44487_rapid_reset_behind_a_first_head() {
    let (gateway, _upstream) = alone(&[]);
    let mut client = served(&gateway);
    let mut fields = get("app.test", "/app/").to_vec();
    fields[0].1 = "POST";
    fields.extend([("content-length", "5000"), ("expect", "100-continue")]);
    let mut next = 3;
    while !client.is_over && next < 4_000 {
        let streams: Vec<u32> = (next..).step_by(2).take(50).collect();
        for stream in &streams {
            client.ask(*stream, &fields, false);
        }
        let has_come = |it: &RawH2<_>, stream| it.streams.contains_key(stream);
        while !streams.iter().all(|it| has_come(&client, it)) && client.read().is_some() {}
        streams.iter().for_each(|it| client.reset(*it));
        next += 100;
    }
    assert_eq!(client.read_to_end(), Some(ENHANCE_YOUR_CALM));
    is_told(&gateway);
    is_well(&gateway);
}

/// Streams that are reset behind a piece of their body: what a client sends pays for nothing either.
#[test]
fn cve_2023_44487_rapid_reset_behind_a_piece_of_a_body() {
    let (gateway, _upstream) = alone(&[]);
    let mut client = served(&gateway);
    is_cut(&gateway, &mut client, |nth| {
        let piece = frame(kind::DATA, 0, stream(nth), &[b'a'; 2_048]);
        let reset = frame(kind::RST_STREAM, 0, stream(nth), &8_u32.to_be_bytes());
        [open_head(stream(nth), "/app/"), piece, reset].concat()
    });
}

/// Bodies in small frames that nobody reads, each of which holds a buffer.
#[test]
fn frames_of_bodies_that_wait_are_bounded() {
    let limits = "{ concurrent = 1, queue = 200, wait = \"600s\" }";
    let (gateway, _upstream) = alone(&[("limits", limits)]);
    let before = gateway.server_peak_bytes();
    let mut client = served(&gateway);
    for stream in (3..201).step_by(2) {
        client.send_bytes(&open_head(stream, "/app/"));
    }
    is_cut(&gateway, &mut client, |nth| {
        frame(kind::DATA, 0, 5 + 2 * (nth % 98), &[b'a'; 256])
    });
    is_bounded(&gateway, before);
}

/// Streams that the server is made to reset, by windows that open by nothing or too far.
#[test]
fn cve_2025_8671_made_you_reset() {
    let (gateway, upstream) = alone(&[]);
    let mut client = served(&gateway);
    is_cut(&gateway, &mut client, |nth| {
        let by = u32::MAX >> 1;
        let window = frame(kind::WINDOW_UPDATE, 0, stream(nth), &by.to_be_bytes());
        [head(stream(nth), "/app/"), window].concat()
    });
    // By nothing: that ends the connection the first time.
    let mut client = served(&gateway);
    flood(&mut client, |nth| {
        let window = frame(kind::WINDOW_UPDATE, 0, stream(nth), &[0; 4]);
        [head(stream(nth), "/app/"), window].concat()
    });
    assert!(client.read_to_end().is_some_and(|code| code != 0));
    // Nor does data behind the end get far.
    let mut client = served(&gateway);
    flood(&mut client, |nth| {
        let late = frame(kind::DATA, 0, stream(nth), b"x");
        [head(stream(nth), "/app/"), late].concat()
    });
    assert!(client.read_to_end().is_some_and(|code| code != 0));
    let seen = upstream.take_seen().len();
    assert!(seen < 1_500, "{seen} requests came to the back end");
}

/// A block of fields that goes on for ever, in frames with much, little or nothing in them.
#[test]
fn cve_2024_27316_continuation_flood() {
    let (gateway, _upstream) = alone(&[]);
    for part in [
        vec![],
        literals(&[("x", "y")]),
        literals(&[("x", &"y".repeat(8_000))]),
    ] {
        let before = gateway.server_peak_bytes();
        let mut client = served(&gateway);
        let begun = frame(
            kind::HEADERS,
            END_STREAM,
            3,
            &literals(&get("app.test", "/r")),
        );
        client.send_bytes(&begun);
        flood(&mut client, |_| frame(kind::CONTINUATION, 0, 3, &part));
        let code = client.read_to_end();
        assert!(code.is_some_and(|code| code != 0), "{code:?}");
        is_bounded(&gateway, before);
    }
}

/// One long field in the table, and thousands of references to it: on many streams, whose replies the client has closed
/// its window to.
#[test]
fn cve_2026_49975_hpack_bomb() {
    let (gateway, upstream) = alone(&[]);
    for name in ["x", "cookie"] {
        let before = gateway.server_peak_bytes();
        let mut client = RawH2::connect(gateway.address(), &[(4, 0)]);
        let mut block = literals(&get("app.test", "/app/"));
        // A literal that the table keeps, and then what it has first.
        block.push(0x40);
        push_text(name.as_bytes(), &mut block);
        push_text(&[b'y'; 4_000], &mut block);
        block.resize(block.len() + 10_000, 0x80 | 62);
        for stream in (1..200).step_by(2) {
            client.send(kind::HEADERS, END_HEADERS | END_STREAM, stream, &block);
        }
        client.get(201, "app.test", "/small.txt");
        client.open_window(201, 100);
        let is_answered =
            |it: &RawH2<TcpStream>| it.streams.get(&201).is_some_and(|it| it.is_ended);
        while !is_answered(&client) && client.read().is_some() {}
        let statuses: Vec<_> = client.streams.values().map(|it| it.status()).collect();
        assert!(
            statuses
                .iter()
                .all(|status| matches!(status, 0 | 200 | 431)),
            "{statuses:?}"
        );
        assert!(statuses.iter().filter(|status| **status == 200).count() <= 1);
        is_bounded(&gateway, before);
    }
    assert_eq!(upstream.take_seen().len(), 0);
}

/// A browser's many cookies are no bomb.
#[test]
fn cve_2026_47774_ninety_crumbs_of_cookies_are_served() {
    let (gateway, _upstream) = alone(&[]);
    let mut client = raw(&gateway);
    let crumbs = [("cookie", "name=value"); 90];
    let fields = [&get("app.test", "/r")[..], &crumbs].concat();
    client.ask(1, &fields, true);
    assert_eq!(client.reply(1).status(), 200);
    let many = [&get("app.test", "/r")[..], &[("cookie", "a=b"); 1_000]].concat();
    client.ask(3, &many, true);
    assert!(matches!(client.reply(3).status(), 0 | 431));
    is_well(&gateway);
}

/// Large files that are taken byte by byte, on as many streams as there may be.
#[test]
fn cve_2019_9511_data_dribble() {
    let (gateway, _upstream) = alone(&[]);
    let mut client = RawH2::connect(gateway.address(), &[(4, 1)]);
    let streams = (1..200).step_by(2);
    for stream in streams.clone() {
        client.get(stream, "app.test", "/big.bin");
    }
    client.read_until("a byte of each", |it| {
        it.streams.values().filter(|it| !it.body.is_empty()).count() == 100
    });
    is_cut(&gateway, &mut client, |nth| {
        let stream = 1 + 2 * (nth % 100);
        frame(kind::WINDOW_UPDATE, 0, stream, &1_u32.to_be_bytes())
    });
    let taken: usize = client.streams.values().map(|it| it.body.len()).sum();
    assert!(taken < 10_000, "{taken} bytes were sent");
}

#[test]
fn cve_2019_9512_ping_flood() {
    let (gateway, _upstream) = alone(&[]);
    for flags in [0, ACK] {
        let mut client = served(&gateway);
        is_cut(&gateway, &mut client, |_| {
            frame(kind::PING, flags, 0, &[0; 8])
        });
    }
}

/// Priorities that are shuffled for ever.
#[test]
fn cve_2019_9513_resource_loop() {
    let (gateway, _upstream) = alone(&[]);
    let mut client = served(&gateway);
    is_cut(&gateway, &mut client, |nth| {
        let on = stream(nth % 2 + 1).to_be_bytes();
        frame(kind::PRIORITY, 0, 3, &[&on[..], &[nth as u8]].concat())
    });
}

/// Streams that are wrong from their beginning, and answered with resets.
#[test]
fn cve_2019_9514_reset_flood() {
    let (gateway, upstream) = alone(&[]);
    let mut client = served(&gateway);
    is_cut(&gateway, &mut client, |nth| {
        let fields = [&get("app.test", "/app/")[..], &[("connection", "close")]].concat();
        let flags = END_HEADERS | END_STREAM;
        frame(kind::HEADERS, flags, stream(nth), &literals(&fields))
    });
    assert_eq!(upstream.take_seen().len(), 0);
}

#[test]
fn cve_2019_9515_settings_flood() {
    let (gateway, _upstream) = alone(&[]);
    let mut client = served(&gateway);
    is_cut(&gateway, &mut client, |_| frame(kind::SETTINGS, 0, 0, &[]));
    let mut client = served(&gateway);
    is_cut(&gateway, &mut client, |nth| {
        let window = (nth % 1_000).to_be_bytes();
        frame(kind::SETTINGS, 0, 0, &[&[0, 4][..], &window].concat())
    });
}

/// Fields without a name, without a value, or without either.
#[test]
fn cve_2019_9516_headers_of_no_length() {
    let (gateway, upstream) = alone(&[]);
    let before = gateway.server_peak_bytes();
    for (name, value) in [("", ""), ("", "x")] {
        let mut client = served(&gateway);
        let fields = [&get("app.test", "/app/")[..], &[(name, value); 90]].concat();
        client.ask(3, &fields, true);
        while client.streams.get(&3).is_none_or(|it| !it.is_over()) && client.read().is_some() {}
        let status = client.streams.get(&3).map_or(0, |it| it.status());
        assert!(matches!(status, 0 | 400), "{status}");
    }
    assert_eq!(upstream.take_seen().len(), 0);
    is_bounded(&gateway, before);
}

/// Streams that are being answered, with the one that asks; `None` where it was cut, as others are.
fn open_streams(gateway: &Gateway) -> Option<u32> {
    let mut client = raw(gateway);
    client.get(1, "app.test", "/metrics");
    while !client.streams.get(&1).is_some_and(|it| it.is_over()) {
        client.read()?;
    }
    let text = String::from_utf8_lossy(&client.reply(1).body).into_owned();
    let lines = text
        .lines()
        .filter(|line| line.starts_with("nagaya_http2_streams{"));
    let counts = lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u32>().ok());
    Some(counts.sum())
}

/// Windows wide open, and nobody who reads.
#[test]
fn cve_2019_9517_internal_data_buffering() {
    let (gateway, _upstream) = alone(&[("timeouts", "write = \"8s\"")]);
    let before = gateway.server_peak_bytes();
    let most = u32::MAX >> 1;
    let mut client = RawH2::connect(gateway.address(), &[(4, most)]);
    client.open_window(0, most - 65_535);
    for stream in (1..200).step_by(2) {
        client.get(stream, "app.test", "/big.bin");
    }
    // Its own asking is a stream, too.
    eventually(PATIENCE, "the streams", || {
        (open_streams(&gateway)? > 100).then_some(())
    });
    eventually(PATIENCE, "the streams to be given up", || {
        (open_streams(&gateway)? == 1).then_some(())
    });
    let is_any_open = |it: &RawH2<TcpStream>| it.streams.values().any(|it| !it.is_over());
    while client.streams.len() < 100 || is_any_open(&client) {
        if client.read().is_none() {
            break;
        }
    }
    let taken: usize = client.streams.values().map(|it| it.body.len()).sum();
    assert!(taken < 20_000_000, "{taken} bytes were sent");
    is_bounded(&gateway, before);
}

/// Data that is none.
#[test]
fn cve_2019_9518_empty_frames() {
    let (gateway, _upstream) = alone(&[]);
    for path in ["/app/", "/r"] {
        let mut client = served(&gateway);
        client.send_bytes(&open_head(3, path));
        is_cut(&gateway, &mut client, |_| frame(kind::DATA, 0, 3, &[]));
    }
}

/// As before, in data that a server counts by its padding, and in data of a byte each.
#[test]
fn rustsec_2026_0258_data_without_content() {
    let (gateway, _upstream) = alone(&[]);
    const PADDED: u8 = 8;
    for (flags, payload) in [(PADDED, &[0][..]), (0, b"x")] {
        let mut client = served(&gateway);
        client.send_bytes(&open_head(3, "/app/"));
        is_cut(&gateway, &mut client, |_| {
            frame(kind::DATA, flags, 3, payload)
        });
    }
}

/// A table of fields that the client makes as large as it likes.
#[test]
fn cve_2016_6581_hpack_table_of_any_size() {
    let (gateway, _upstream) = alone(&[]);
    let before = gateway.server_peak_bytes();
    // A new size of 2^21, where 4,096 is all that was offered.
    let mut client = served(&gateway);
    let mut block = vec![0x3f, 0xe1, 0xff, 0x7f];
    block.extend(literals(&get("app.test", "/r")));
    client.send(kind::HEADERS, END_HEADERS | END_STREAM, 3, &block);
    assert!(client.read_to_end().is_some_and(|code| code != 0));
    // Nor does the table of our side grow by what the client says.
    let mut client = RawH2::connect(gateway.address(), &[(1, u32::MAX)]);
    for stream in (1..2_000).step_by(2) {
        client.get(stream, "app.test", "/r");
        assert_eq!(client.reply(stream).status(), 200);
    }
    is_bounded(&gateway, before);
}

/// What HTTP/2 can carry and HTTP/1.1 would take for another request.
#[test]
fn downgraded_requests_smuggle_nothing() {
    let upstream = ScriptedUpstream::start(|_| vec![Step::ReadBody, Step::reply(200, "seen")]);
    let gateway = gateway(&upstream, &[]);
    let base = get("app.test", "/app/");
    let with = |fields: &[(&'static str, &'static str)]| [&base[..], fields].concat();
    let instead = |name: &str, value: &'static str| {
        let mut fields = base.to_vec();
        let place = fields.iter_mut().find(|it| it.0 == name);
        place.expect("a field").1 = value;
        fields
    };
    for fields in [
        with(&[("transfer-encoding", "chunked")]),
        with(&[("transfer-encoding", "identity")]),
        with(&[("connection", "transfer-encoding")]),
        with(&[("upgrade", "h2c")]),
        with(&[("te", "chunked")]),
        with(&[("x", "1\r\nsmuggled: 1")]),
        with(&[("x", "1\nsmuggled: 1")]),
        with(&[("x\r\nsmuggled", "1")]),
        with(&[("smuggled:x", "1")]),
        with(&[("smuggled ", "1")]),
        with(&[("Smuggled", "1")]),
        with(&[("host", "smuggled.test")]),
        with(&[("host", "app.test"), ("host", "app.test")]),
        with(&[("content-length", "5")]),
        with(&[("content-length", "0"), ("content-length", "5")]),
        with(&[(":path", "/app/smuggled")]),
        with(&[("x", "1"), (":authority", "app.test")]),
        instead(":path", "/app/ HTTP/1.1\r\nsmuggled: 1"),
        instead(":path", "/app/ smuggled"),
        instead(":path", ""),
        instead(":path", "http://smuggled.test/"),
        instead(":method", "GET /smuggled HTTP/1.1\r\nx:"),
        instead(":method", "GE T"),
        instead(":authority", "app.test\r\nsmuggled: 1"),
        instead(":authority", "smuggled@app.test"),
        instead(":scheme", "http\r\nsmuggled: 1"),
    ] {
        let mut client = raw(&gateway);
        client.ask(1, &fields, true);
        client.get(3, "app.test", "/r");
        let is_over =
            |it: &RawH2<TcpStream>, stream| it.streams.get(&stream).is_some_and(|it| it.is_over());
        while !(is_over(&client, 1) && is_over(&client, 3)) && client.read().is_some() {}
        let status = client.streams.get(&1).map_or(0, |it| it.status());
        assert!(matches!(status, 0 | 400 | 421), "{status} for {fields:?}");
        let next = client.streams.get(&3).map_or(0, |it| it.status());
        assert!(matches!(next, 0 | 200), "{next} behind {fields:?}");
    }
    let all = upstream.received().concat();
    assert!(all.is_empty(), "{}", String::from_utf8_lossy(&all));
    // A body shorter or longer than it says never comes to its end.
    for (length, body) in [("5", "four"), ("3", "four")] {
        let mut client = raw(&gateway);
        let mut fields = with(&[("content-length", length)]);
        fields[0].1 = "POST";
        client.ask(1, &fields, false);
        client.send(kind::DATA, END_STREAM, 1, body.as_bytes());
        while client.streams.get(&1).is_none_or(|it| !it.is_over()) && client.read().is_some() {}
        let status = client.streams.get(&1).map_or(0, |it| it.status());
        assert!(matches!(status, 0 | 400), "{status}");
    }
    upstream.settle();
    assert!(upstream.take_seen().iter().all(|seen| !seen.complete));
    is_well(&gateway);
}
