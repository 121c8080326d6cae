//! What of a back end's reply would lead past the gateway, as its clients see it.

use std::net::SocketAddr;

use testkit::client::reply;
use testkit::{Gateway, Peer, RawClient, Reply, ScriptedUpstream, Step};

const CONFIG: &str = r#"
workers = 1
[log]
level = "warn"
[[sites]]
hosts = ["app.test"]

  [[sites.rules]]
  match = { path = "/one/*" }
  handler = { proxy = { upstream = "http://{upstream}/two", strip_prefix = "/one" } }

  [[sites.rules]]
  match = { path = "/told/*" }
  handler = { proxy = { upstream = "http://{upstream}", strip_prefix = "/told", host = "inner.test:81" } }

  [[sites.rules]]
  match = { path = "/off/*" }
  handler = { proxy = { upstream = "http://{upstream}", proxy_redirect = false } }

  [[sites.rules]]
  match = { path = "/said/*" }
    [sites.rules.handler.proxy]
    upstream = "http://{upstream}"
    [sites.rules.handler.proxy.proxy_redirect.location]
    "http://app.internal/" = "https://$host/"
    "http://app.internal/deep/" = "/shallow/"
    "https://app.internal" = "/tls"
    "/two" = "/said"
    [sites.rules.handler.proxy.proxy_redirect.cookie_domain]
    "app.internal" = "$host"
    "gone.internal" = ""
    [sites.rules.handler.proxy.proxy_redirect.cookie_path]
    "/two" = "/said"
    "/two/deep" = "/"

  [[sites.rules]]
  handler = { proxy = "http://{upstream}" }
"#;

const NGINX: &str = r#"
absolute_redirect off;
server {
  listen 127.0.0.1:{port};
  proxy_http_version 1.1;
  location /one/ { proxy_pass http://UPSTREAM/two/; }
  location /off/ { proxy_pass http://UPSTREAM; proxy_redirect off; }
  location /said/ {
    proxy_pass http://UPSTREAM;
    proxy_redirect http://app.internal/deep/ /shallow/;
    proxy_redirect http://app.internal/ https://$host/;
    proxy_redirect /two /said;
    proxy_cookie_domain app.internal $host;
    proxy_cookie_path /two/deep/ /;
    proxy_cookie_path /two /said;
  }
  location / { proxy_pass http://UPSTREAM; }
}
"#;

/// A back end that answers with the field the request asks for.
fn upstream() -> ScriptedUpstream {
    ScriptedUpstream::start(|seen| {
        let field = seen.head.field("x-say").unwrap_or_default();
        let head = format!("HTTP/1.1 302 Found\r\nContent-Length: 0\r\n{field}\r\n\r\n");
        vec![Step::ReadBody, Step::Send(head.into_bytes())]
    })
}

fn gateway(upstream: &ScriptedUpstream) -> Gateway {
    Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG)
        .with("upstream", upstream.address())
        .start()
}

/// What comes of a field that the back end says, which has `UP` for the back end's own address.
fn said(to: SocketAddr, up: SocketAddr, path: &str, field: &str) -> String {
    let field = field.replace("UP", &up.to_string());
    let request = format!("GET {path} HTTP/1.1\r\nHost: app.test\r\nX-Say: {field}\r\n\r\n");
    let answer: Reply = reply(RawClient::connect(to).ask(request.as_bytes()));
    assert_eq!(answer.status, 302, "{field}");
    let name = field.split(':').next().unwrap_or_default();
    let value = answer.head.field(name).unwrap_or_default();
    value.replace(&up.to_string(), "UP")
}

fn check(table: &[(&str, &str, &str)]) {
    let upstream = upstream();
    let gateway = gateway(&upstream);
    for (path, field, expected) in table {
        let value = said(gateway.address(), upstream.address(), path, field);
        assert_eq!(value, *expected, "{path}: {field}");
    }
}

#[test]
fn a_server_that_names_itself_means_a_path_of_its_rule() {
    check(&[
        ("/one/a", "Location: http://UP/two/x?y#z", "/one/x?y#z"),
        ("/one/a", "Location: HTTP://UP/two", "/one"),
        ("/one/a", "Content-Location: http://UP/two/x", "/one/x"),
        ("/one/a", "Refresh: 5; url=http://UP/two/x", "5; url=/one/x"),
        (
            "/one/a",
            "Refresh: 5; URL='http://UP/two/'",
            "5; URL='/one/'",
        ),
        ("/one/a", "Location: http://UP/twofold", "http://UP/twofold"),
        ("/one/a", "Location: https://UP/two/x", "https://UP/two/x"),
        ("/one/a", "Location: /two/x", "/two/x"),
        (
            "/one/a",
            "Location: http://app.test/two/x",
            "http://app.test/two/x",
        ),
        (
            "/one/a",
            "Location: http://b.test/two/x",
            "http://b.test/two/x",
        ),
        ("/one/a", "Set-Cookie: s=1; Path=/two", "s=1; Path=/two"),
        ("/told/a", "Location: http://inner.test:81/x", "/told/x"),
        ("/told/a", "Location: http://UP/x", "/told/x"),
        (
            "/told/a",
            "Location: http://inner.test/x",
            "http://inner.test/x",
        ),
        ("/a", "Location: http://UP/x", "/x"),
        ("/a", "Location: http://UP", "/"),
        ("/off/a", "Location: http://UP/x", "http://UP/x"),
    ]);
}

#[test]
fn no_redirect_is_made_one_to_somebody_else() {
    check(&[
        ("/a", "Location: http://UP//b.test/", "/b.test/"),
        ("/a", "Location: http://UP/\\b.test/", "http://UP/\\b.test/"),
        ("/a", "Location: http://UP\\@b.test/", "http://UP\\@b.test/"),
        ("/a", "Location: http://UP@b.test/", "http://UP@b.test/"),
        (
            "/one/a",
            "Location: http://UP/two//b.test/",
            "/one//b.test/",
        ),
        (
            "/said/a",
            "Location: http://app.internal/deep//b",
            "/shallow//b",
        ),
        (
            "/said/a",
            "Location: http://app.internal.b.test/",
            "http://app.internal.b.test/",
        ),
        (
            "/said/a",
            "Set-Cookie: s=1; Path=/two/deep//b",
            "s=1; Path=/b",
        ),
    ]);
}

#[test]
fn what_is_said_stands_instead() {
    check(&[
        (
            "/said/a",
            "Location: http://app.internal:80/x",
            "https://app.test/x",
        ),
        (
            "/said/a",
            "Location: http://APP.internal",
            "https://app.test",
        ),
        (
            "/said/a",
            "Location: http://app.internal/deep/x",
            "/shallow/x",
        ),
        ("/said/a", "Location: https://app.internal/x", "/tls/x"),
        ("/said/a", "Location: /two/x?y", "/said/x?y"),
        ("/said/a", "Location: /two", "/said"),
        ("/said/a", "Location: /twofold", "/twofold"),
        (
            "/said/a",
            "Location: https://app.test/two/x",
            "https://app.test/said/x",
        ),
        (
            "/said/a",
            "Location: https://app.test:8443/two/x",
            "https://app.test:8443/two/x",
        ),
        ("/said/a", "Location: http://UP/x", "/x"),
        ("/said/a", "Refresh: 0;url=/two/x", "0;url=/said/x"),
        ("/said/a", "Refresh: 10", "10"),
        (
            "/said/a",
            "Set-Cookie: s=\"1\"; Domain=.APP.internal; Path=/two/; HttpOnly",
            "s=\"1\"; Domain=app.test; Path=/said/; HttpOnly",
        ),
        (
            "/said/a",
            "Set-Cookie: s=1; domain=gone.internal; Secure",
            "s=1; Secure",
        ),
        (
            "/said/a",
            "Set-Cookie: s=1; Domain=a.app.internal",
            "s=1; Domain=a.app.internal",
        ),
        (
            "/said/a",
            "Set-Cookie: s=1; Path=/two/deep/x",
            "s=1; Path=/x",
        ),
        ("/said/a", "Set-Cookie: s; Path=/two", "s; Path=/two"),
        (
            "/said/a",
            "Set-Cookie: __Host-s=1; Path=/two",
            "__Host-s=1; Path=/two",
        ),
    ]);
}

#[test]
fn all_cookies_of_a_reply_are_rewritten_in_their_places() {
    let field = "Set-Cookie: a=1; Path=/two\r\nSet-Cookie: b=2\r\nset-cookie: c=3; Path=/two/x";
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{field}\r\n\r\n");
    let upstream = ScriptedUpstream::start(move |_| vec![Step::Send(head.clone().into_bytes())]);
    let gateway = gateway(&upstream);
    let answer = reply(gateway.ask(b"GET /said/ HTTP/1.1\r\nHost: app.test\r\n\r\n"));
    let fields = answer.head.fields.iter();
    let cookies = fields.filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"));
    let cookies: Vec<_> = cookies.map(|(_, value)| value.as_str()).collect();
    assert_eq!(cookies, ["a=1; Path=/said", "b=2", "c=3; Path=/said/x"]);
}

#[test]
fn the_same_is_made_of_a_reply_as_by_nginx() {
    let upstream = upstream();
    let up = upstream.address();
    let Some(nginx) = Peer::nginx(&NGINX.replace("UPSTREAM", &up.to_string())) else {
        return;
    };
    let gateway = gateway(&upstream);
    for (path, field) in [
        ("/one/a", "Location: http://UP/two/x?y#z"),
        ("/one/a", "Location: http://UP/other"),
        ("/one/a", "Location: /two/x"),
        ("/one/a", "Location: https://UP/two/x"),
        ("/one/a", "Location: http://b.test/two/x"),
        ("/one/a", "Refresh: 5; url=http://UP/two/x"),
        ("/one/a", "Set-Cookie: s=1; Path=/two; Domain=app.internal"),
        ("/a", "Location: http://UP/x"),
        ("/off/a", "Location: http://UP/x"),
        ("/said/a", "Location: http://app.internal/x"),
        ("/said/a", "Location: http://app.internal/deep/x"),
        ("/said/a", "Location: /two/x"),
        (
            "/said/a",
            "Set-Cookie: s=1; Path=/two/x; Domain=app.internal; Secure",
        ),
        ("/said/a", "Set-Cookie: s=1; Path=/other; Domain=b.test"),
        ("/said/a", "Set-Cookie: s=1; Path=/two/deep/x"),
    ] {
        let [ours, theirs] =
            [gateway.address(), nginx.address()].map(|to| said(to, up, path, field));
        assert_eq!(ours, theirs, "{path}: {field}");
    }
}
