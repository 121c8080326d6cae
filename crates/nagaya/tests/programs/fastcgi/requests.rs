//! What a responder is asked: variables, bodies, and what never reaches it.

use testkit::client::{Body, reply};
use testkit::eventually;
use testkit::fastcgi::{kind, printed};

use super::{CONFIG, PAGE, PATIENCE, assert_page, builder, builder_of, gateway, get, post, says};

#[test]
fn a_request_arrives_as_variables_and_a_body() {
    let responder = says(printed(PAGE));
    let gateway = gateway(&responder);
    let request = "POST /x.php/a%20b/../c?q=%41 HTTP/1.1\r\nHost: APP.test:80\r\nProxy: http://evil\r\n\
                   X-Own: 1\r\nX_Own: 2\r\nX-Forwarded-For: 1.2.3.4\r\nContent-Type: a/b\r\n\
                   Content-Length: 3\r\nConnection: close\r\n\r\nabc";
    assert_page(gateway.ask(request.as_bytes()));
    let call = responder.next_call();
    assert!(call.keep && call.stdin == b"abc");
    let root = gateway
        .directory()
        .path()
        .join("site")
        .display()
        .to_string();
    for (name, value) in [
        ("SCRIPT_FILENAME", Some(format!("{root}/x.php"))),
        ("DOCUMENT_ROOT", Some(root.clone())),
        ("PATH_TRANSLATED", Some(format!("{root}/c"))),
        ("SCRIPT_NAME", Some("/x.php".into())),
        ("PATH_INFO", Some("/c".into())),
        ("REQUEST_URI", Some("/x.php/c?q=%41".into())),
        ("QUERY_STRING", Some("q=%41".into())),
        ("REQUEST_METHOD", Some("POST".into())),
        ("CONTENT_TYPE", Some("a/b".into())),
        ("CONTENT_LENGTH", Some("3".into())),
        ("SERVER_NAME", Some("app.test".into())),
        ("SERVER_ADDR", Some("127.0.0.1".into())),
        ("SERVER_PORT", Some(gateway.address().port().to_string())),
        ("SERVER_PROTOCOL", Some("HTTP/1.1".into())),
        ("REMOTE_ADDR", Some("127.0.0.1".into())),
        ("REDIRECT_STATUS", Some("200".into())),
        ("HTTP_X_OWN", Some("1".into())),
        ("HTTP_PROXY", None),
        ("HTTP_X_FORWARDED_FOR", None),
        ("HTTP_CONNECTION", None),
        ("HTTP_CONTENT_LENGTH", None),
        ("HTTPS", None),
    ] {
        assert_eq!(call.param(name), value.as_deref(), "{name}");
    }
    let host = call.param("HTTP_HOST").unwrap_or_default();
    assert!(host.starts_with("app.test"), "{host}");
}

#[test]
fn variables_can_be_set_and_left_out_and_the_root_be_another() {
    let responder = says(printed(PAGE));
    let keys = r#"root = "/srv/php", params = { set = { PHP_VALUE = "a=1\nb=2", SERVER_NAME = "$method" }, remove = ["SERVER_SOFTWARE"] }"#;
    let gateway = builder(&responder, keys).start();
    assert_page(gateway.ask(&get("/x.php/info")));
    let call = responder.next_call();
    for (name, value) in [
        ("SCRIPT_FILENAME", Some("/srv/php/x.php")),
        ("DOCUMENT_ROOT", Some("/srv/php")),
        ("PATH_TRANSLATED", Some("/srv/php/info")),
        ("PHP_VALUE", Some("a=1\nb=2")),
        ("SERVER_NAME", Some("GET")),
        ("SERVER_SOFTWARE", None),
    ] {
        assert_eq!(call.param(name), value, "{name}");
    }
}

#[test]
fn an_internal_rewrite_leaves_request_uri_as_the_client_sent_it() {
    let ways = "encoded_slash = \"keep\"\ntry = [\"$path\", \"$path/\", \"/index.php\"]\n\
                scripts = { rewrite = { code = \"r = Nginx::Request.new; r.uri = '/x.php/new' + r.uri if r.uri.start_with? '/old'; r.args = 'n=1' if r.uri.end_with? 'query'\" }, \
                access = { code = \"r = Nginx::Request.new; Nginx.redirect '/x.php/inside?i=1' if r.uri == '/outside'\" } }\n  [[sites.rules]]";
    let config = CONFIG.replacen("  [[sites.rules]]", ways, 1);
    let responder = says(printed(PAGE));
    let gateway = builder_of(&config, &responder, "", 8).start();
    for (asked, uri, script, info, query) in [
        (
            "/old/%20a?q",
            "/old/%20a?q",
            "/x.php",
            Some("/new/old/ a"),
            "q",
        ),
        (
            "/old/a%2Fb",
            "/old/a%2Fb",
            "/x.php",
            Some("/new/old/a%2Fb"),
            "",
        ),
        (
            "/old/query?q=2",
            "/old/query?q=2",
            "/x.php",
            Some("/new/old/query"),
            "n=1",
        ),
        (
            "/outside?o=1",
            "/outside?o=1",
            "/x.php",
            Some("/inside"),
            "i=1",
        ),
        ("/a-post/?p=1", "/a-post/?p=1", "/index.php", None, "p=1"),
        ("/x.php/b", "/x.php/b", "/x.php", Some("/b"), ""),
    ] {
        assert_page(gateway.ask(&get(asked)));
        let call = responder.next_call();
        for (name, value) in [
            ("REQUEST_URI", Some(uri)),
            ("SCRIPT_NAME", Some(script)),
            ("PATH_INFO", info),
            ("QUERY_STRING", Some(query)),
        ] {
            assert_eq!(call.param(name), value, "{asked}: {name}");
        }
    }
}

/// `u:secret` by bcrypt at the lowest cost.
const PASSWORDS: &str = "u:$2y$04$kPr2tBuYEq3nTDBf8cWoxeqXq.WbFLgtfMtEc4T0SJru57lwjwrka\n";

#[test]
fn a_name_we_checked_is_told_and_its_password_is_not() {
    let responder = says(printed(PAGE));
    let auth = r#"auth = { realm = "Staff", file = "{dir}/htpasswd" }"#;
    let config = CONFIG.replace("  [[sites.rules]]", &format!("{auth}\n  [[sites.rules]]"));
    let builder = builder_of(&config, &responder, "", 8);
    builder.directory().write("htpasswd", PASSWORDS);
    let gateway = builder.start();
    assert_eq!(reply(gateway.ask(&get("/x.php"))).status, 401);
    let known =
        "GET /x.php HTTP/1.1\r\nHost: app.test\r\nAuthorization: Basic dTpzZWNyZXQ=\r\n\r\n";
    assert_page(gateway.ask(known.as_bytes()));
    let call = responder.next_call();
    assert_eq!(
        (call.param("REMOTE_USER"), call.param("AUTH_TYPE")),
        (Some("u"), Some("Basic"))
    );
    assert_eq!(call.param("HTTP_AUTHORIZATION"), None);
}

#[test]
fn a_trusted_proxy_says_who_the_client_is_and_how_it_speaks() {
    let responder = says(printed(PAGE));
    let config = format!("trusted_proxies = [\"127.0.0.1\"]\n{CONFIG}");
    let gateway = builder_of(&config, &responder, "", 8).start();
    let request = "GET /x.php HTTP/1.1\r\nHost: app.test\r\nX-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: https\r\n\r\n";
    assert_page(gateway.ask(request.as_bytes()));
    let call = responder.next_call();
    for (name, value) in [
        ("REMOTE_ADDR", Some("192.0.2.7")),
        ("REMOTE_PORT", None),
        ("HTTPS", Some("on")),
        ("REQUEST_SCHEME", Some("https")),
        ("HTTP_X_FORWARDED_FOR", Some("192.0.2.7")),
    ] {
        assert_eq!(call.param(name), value, "{name}");
    }
}

#[test]
fn a_body_that_streams_and_breaks_off_takes_the_connection_with_it() {
    let responder = says(printed(PAGE));
    let gateway = builder(&responder, "buffer_request = false").start();
    let mut client = gateway.client();
    let request = post("abcdef");
    client.send(&request[..request.len() - 3]);
    // Half a body is enough for a connection, and never for an answer.
    eventually(PATIENCE, "a connection", || {
        (responder.open_connections() == 1).then_some(())
    });
    drop(client);
    eventually(PATIENCE, "the connection to be closed", || {
        (responder.open_connections() == 0).then_some(())
    });
    assert_eq!(responder.take_calls(), []);
    assert_page(gateway.ask(&post("whole")));
}

#[test]
fn a_body_of_any_length_comes_in_records_that_can_hold_it() {
    let responder = says(printed(PAGE));
    let gateway = gateway(&responder);
    let mut client = gateway.client();
    for length in [1, 65_534, 65_535, 65_536, 131_070, 131_071, 300_000] {
        let body: String = ('a'..='z').cycle().take(length).collect();
        client.send(&post(&body));
        assert_page(client.read_reply(Body::Framed));
        let call = responder.next_call();
        assert!(call.stdin == body.as_bytes(), "{length}");
        assert_eq!(
            call.param("CONTENT_LENGTH"),
            Some(length.to_string().as_str())
        );
        let stdin = call.records.iter().filter(|(kind, _)| *kind == kind::STDIN);
        let lengths: Vec<usize> = stdin.map(|(_, length)| *length).collect();
        let (last, pieces) = lengths.split_last().unwrap();
        assert!(*last == 0 && pieces.iter().all(|piece| (1..=65_535).contains(piece)));
    }
}

#[test]
fn a_body_in_chunks_has_a_length_by_the_time_it_arrives() {
    for keys in ["", "buffer_request = false"] {
        let responder = says(printed(PAGE));
        let gateway = builder(&responder, keys).start();
        let request = "POST /x.php HTTP/1.1\r\nHost: app.test\r\nTransfer-Encoding: chunked\r\n\r\n\
                       3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        assert_page(gateway.ask(request.as_bytes()));
        let call = responder.next_call();
        assert_eq!(
            (call.param("CONTENT_LENGTH"), &call.stdin[..]),
            (Some("5"), &b"abcde"[..])
        );
        assert_eq!(call.param("HTTP_TRANSFER_ENCODING"), None);
    }
}

#[test]
fn the_responder_hears_of_a_request_when_its_body_is_here() {
    let responder = says(printed(PAGE));
    let gateway = gateway(&responder);
    let mut slow = gateway.client();
    let request = post("abcdef");
    let (now, later) = request.split_at(request.len() - 3);
    slow.send(now);
    // The other request overtakes the slow one, so the gateway has had its chance.
    assert_page(gateway.ask(&get("/x.php")));
    assert_eq!(responder.take_calls().len(), 1);
    slow.send(later);
    assert_page(slow.read_reply(Body::Framed));
    assert_eq!(responder.next_call().stdin, b"abcdef");
}

#[test]
fn a_body_too_large_never_reaches_the_responder() {
    let responder = says(printed(PAGE));
    let config = CONFIG.replace("[caps]", "[caps]\nbody_bytes = \"1KiB\"");
    for keys in ["", "buffer_request = false"] {
        let gateway = builder_of(&config, &responder, keys, 8).start();
        let long = "x".repeat(2_000);
        let head = "POST /x.php HTTP/1.1\r\nHost: app.test\r\n";
        for request in [
            format!("{head}Content-Length: 2000\r\n\r\n{long}"),
            format!("{head}Expect: 100-continue\r\nContent-Length: 2000\r\n\r\n"),
            format!("{head}Transfer-Encoding: chunked\r\n\r\n7d0\r\n{long}\r\n0\r\n\r\n"),
        ] {
            let refused = reply(gateway.ask(request.as_bytes()));
            assert_eq!((refused.status, refused.interim.len()), (413, 0));
        }
        assert_page(gateway.ask(&post("short")));
        assert_eq!(responder.next_call().stdin, b"short", "{keys}");
    }
}

#[test]
fn a_client_that_expects_100_gets_it() {
    let responder = says(printed(PAGE));
    let gateway = gateway(&responder);
    let mut client = gateway.client();
    client.send(b"POST /x.php HTTP/1.1\r\nHost: app.test\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    client.send(b"abc");
    assert_page(client.read_reply(Body::Framed));
    assert_eq!(responder.next_call().stdin, b"abc");
}

#[test]
fn what_is_no_file_never_reaches_the_responder() {
    let responder = says(printed(PAGE));
    let gateway = gateway(&responder);
    gateway.directory().write("site/x.php.bak", "secret");
    gateway.directory().write("site/.hidden.php", "secret");
    gateway.directory().write("site/y.jpg", "image");
    for path in [
        "/none.php",
        "/none.php/x",
        "/x.php.bak",
        "/.hidden.php",
        "/y.jpg/x.php",
        "/X.PHP",
        "/x.php%00.jpg",
    ] {
        let status = reply(gateway.ask(&get(path))).status;
        assert!([400, 404].contains(&status), "{path}: {status}");
    }
    assert_eq!(reply(gateway.ask(&get("/x.php/"))).status, 200);
    let call = responder.next_call();
    assert_eq!(call.param("PATH_INFO"), Some("/"));
    assert_eq!(responder.take_calls(), []);
}

#[test]
fn more_variables_than_fit_are_431() {
    let responder = says(printed(PAGE));
    let gateway = gateway(&responder);
    let long = format!(
        "GET /x.php HTTP/1.1\r\nHost: app.test\r\nX-Long: {}\r\n\r\n",
        "x".repeat(9_000)
    );
    assert_eq!(reply(gateway.ask(long.as_bytes())).status, 431);
    assert_eq!(responder.connections(), 0);
}
