//! The variables: which there are, which never, and how much of them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use fastcgi::environment::{
    Client, Environment, Request, Scheme, Script, Server, Trust, variable_name_ok,
};
use wire::{Fields, Version};

const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

fn fields(of: &[(&str, &str)]) -> Fields {
    let mut fields = Fields::default();
    for (name, value) in of {
        fields.push(name.as_bytes(), value.as_bytes());
    }
    fields
}

fn request(fields: &Fields) -> Request<'_> {
    Request {
        method: b"GET",
        sent_path_wire: b"/x.php/in%20fo",
        sent_query: Some(b"a=b&-dallow"),
        query: Some(b"a=b&-dallow"),
        version: Version::Http11,
        fields,
        authority: b"example.jp:8080",
        body_bytes: None,
        id: b"0123",
        peer: Trust::Untrusted,
        script: Script {
            prefix: b"",
            root: b"/srv/www",
            relative: b"x.php",
            path_info: b"/in fo",
        },
        server: Server {
            name: b"example.jp",
            address: Some(ADDRESS),
            port: 8080,
            scheme: Scheme::Http,
            software: b"nagaya",
        },
        client: Client {
            address: Some("2001:db8::1".parse().expect("address")),
            port: Some(4711),
            user: None,
        },
    }
}

fn map(environment: &Environment) -> BTreeMap<String, String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let pairs = environment.iter();
    let map: BTreeMap<_, _> = pairs
        .map(|(name, value)| (text(name), text(value)))
        .collect();
    assert_eq!(map.len(), environment.len(), "each name once");
    map
}

fn of(request: &Request<'_>) -> BTreeMap<String, String> {
    map(&Environment::of(request, 1 << 16).expect("variables"))
}

/// The variables made of fields.
fn made_of(sent: &[(&str, &str)]) -> Vec<String> {
    let fields = fields(sent);
    let map = of(&request(&fields));
    let ours = |name: &str| {
        name.starts_with("HTTP_") && name != "HTTP_HOST" && name != "HTTP_X_REQUEST_ID"
    };
    map.iter()
        .filter(|(name, _)| ours(name))
        .map(|(name, value)| format!("{name}={value}"))
        .collect()
}

#[test]
fn a_request_has_the_variables_of_rfc_3875_and_the_usual_ones() {
    let fields = fields(&[("Accept", "text/html")]);
    let expected = [
        ("DOCUMENT_ROOT", "/srv/www"),
        ("DOCUMENT_URI", "/x.php/in fo"),
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("HTTP_ACCEPT", "text/html"),
        ("HTTP_HOST", "example.jp:8080"),
        ("HTTP_X_REQUEST_ID", "0123"),
        ("CONTENT_LENGTH", ""),
        ("CONTENT_TYPE", ""),
        ("PATH_INFO", "/in fo"),
        ("PATH_TRANSLATED", "/srv/www/in fo"),
        ("QUERY_STRING", "a=b&-dallow"),
        ("REDIRECT_STATUS", "200"),
        ("REMOTE_ADDR", "2001:db8::1"),
        ("REMOTE_PORT", "4711"),
        ("REQUEST_METHOD", "GET"),
        ("REQUEST_SCHEME", "http"),
        ("REQUEST_URI", "/x.php/in%20fo?a=b&-dallow"),
        ("SCRIPT_FILENAME", "/srv/www/x.php"),
        ("SCRIPT_NAME", "/x.php"),
        ("SERVER_ADDR", "192.0.2.1"),
        ("SERVER_NAME", "example.jp"),
        ("SERVER_PORT", "8080"),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("SERVER_SOFTWARE", "nagaya"),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(of(&request(&fields)), BTreeMap::from(expected));
}

#[test]
fn variables_follow_the_request() {
    let fields = fields(&[
        ("Content-Type", "a/b"),
        ("Content-Length", "7"),
        ("Host", "forged"),
    ]);
    let mut request = request(&fields);
    request.body_bytes = Some(7);
    request.query = None;
    request.sent_query = None;
    request.version = Version::Http10;
    request.server.scheme = Scheme::Https;
    request.server.address = None;
    request.client = Client {
        address: None,
        port: None,
        user: Some(b"alice"),
    };
    request.script.path_info = b"";
    let map = of(&request);
    for (name, value) in [
        ("CONTENT_TYPE", Some("a/b")),
        ("CONTENT_LENGTH", Some("7")),
        ("HTTP_CONTENT_TYPE", None),
        ("HTTP_CONTENT_LENGTH", None),
        ("HTTP_HOST", Some("example.jp:8080")),
        ("QUERY_STRING", Some("")),
        ("REQUEST_URI", Some("/x.php/in%20fo")),
        ("SERVER_PROTOCOL", Some("HTTP/1.0")),
        ("REQUEST_SCHEME", Some("https")),
        ("HTTPS", Some("on")),
        ("SERVER_ADDR", None),
        ("REMOTE_ADDR", Some("unix:")),
        ("REMOTE_PORT", None),
        ("REMOTE_USER", Some("alice")),
        ("AUTH_TYPE", Some("Basic")),
        ("PATH_INFO", None),
        ("PATH_TRANSLATED", None),
    ] {
        assert_eq!(map.get(name).map(String::as_str), value, "{name}");
    }
}

#[test]
fn what_a_script_made_of_the_query_leaves_the_address_as_the_client_sent_it() {
    let fields = fields(&[]);
    let mut request = request(&fields);
    request.query = Some(b"page=1");
    let map = of(&request);
    assert_eq!(map["REQUEST_URI"], "/x.php/in%20fo?a=b&-dallow");
    assert_eq!(map["QUERY_STRING"], "page=1");
}

#[test]
fn fields_become_variables_but_for_those_that_would_deceive() {
    type Sent = &'static [(&'static str, &'static str)];
    let table: &[(Sent, &[&str])] = &[
        (&[("X-Own", "1")], &["HTTP_X_OWN=1"]),
        (&[("Proxy", "http://evil")], &[]),
        (&[("PROXY", "http://evil"), ("proxy", "b")], &[]),
        (&[("X_Own", "1"), ("X-Own", "2")], &["HTTP_X_OWN=2"]),
        (&[("X.Own", "1"), ("X!", "2")], &[]),
        (
            &[("x-OWN", "1"), ("A", "b"), ("X-Own", "2")],
            &["HTTP_A=b", "HTTP_X_OWN=1, 2"],
        ),
        (
            &[("Cookie", "a=1"), ("cookie", "b=2")],
            &["HTTP_COOKIE=a=1; b=2"],
        ),
        (
            &[
                ("X-Forwarded-For", "1.2.3.4"),
                ("Forwarded", "for=1"),
                ("X-Real-IP", "1"),
                ("Via", "1.1 elsewhere"),
            ],
            &[],
        ),
        (
            &[("X-Forwarded-Proto", "https"), ("X-Forwarded-Host", "a")],
            &[],
        ),
        (&[("X-Request-Id", "forged")], &[]),
        (
            &[("Authorization", "Basic eA==")],
            &["HTTP_AUTHORIZATION=Basic eA=="],
        ),
        (
            &[
                ("Connection", "close"),
                ("TE", "a"),
                ("Transfer-Encoding", "chunked"),
            ],
            &[],
        ),
        (
            &[
                ("Upgrade", "a"),
                ("Expect", "100-continue"),
                ("Proxy-Authorization", "x"),
            ],
            &[],
        ),
    ];
    for (sent, expected) in table {
        assert_eq!(made_of(sent), *expected, "{sent:?}");
    }
}

#[test]
fn a_trusted_proxy_may_say_who_the_client_is() {
    let fields = fields(&[("X-Forwarded-Proto", "https")]);
    let mut request = request(&fields);
    request.peer = Trust::Trusted;
    let value = of(&request).get("HTTP_X_FORWARDED_PROTO").cloned();
    assert_eq!(value.as_deref(), Some("https"));
}

#[test]
fn a_password_that_was_ours_to_check_stays_here() {
    let fields = fields(&[("Authorization", "Basic eA==")]);
    let mut request = request(&fields);
    request.client.user = Some(b"alice");
    assert_eq!(of(&request).get("HTTP_AUTHORIZATION"), None);
}

#[test]
fn no_value_of_a_request_holds_a_line_end() {
    let none = Fields::default();
    for bad in [&b"a\nb"[..], b"a\rb", b"a\0b", b"\n"] {
        let mut request = request(&none);
        request.script.path_info = bad;
        let refusal = Environment::of(&request, 1 << 16).expect_err("a line end");
        assert_eq!(
            (refusal.status, refusal.reason),
            (400, "control_in_variable")
        );
    }
}

#[test]
fn a_configured_value_may_have_several_lines_but_no_nul() {
    let mut environment = Environment::new(100);
    let settings = b"memory_limit=64M\nmax_execution_time=5";
    environment.set(b"PHP_VALUE", settings).expect("two lines");
    assert_eq!(environment.get(b"PHP_VALUE"), Some(&settings[..]));
    let refusal = environment.set(b"A", b"a\0b").expect_err("a NUL");
    assert_eq!(
        (refusal.status, refusal.reason),
        (400, "control_in_variable")
    );
    assert_eq!(environment.get(b"A"), None);
}

#[test]
fn what_is_too_long_is_refused_with_431() {
    let none = Fields::default();
    let request = request(&none);
    let exact: usize = Environment::of(&request, usize::MAX)
        .expect("variables")
        .iter()
        .map(|(name, value)| name.len() + value.len() + 2)
        .sum();
    Environment::of(&request, exact).expect("just fits");
    let refusal = Environment::of(&request, exact - 1).expect_err("one byte more than fits");
    assert_eq!(
        (refusal.status, refusal.reason),
        (431, "environment_too_long")
    );
    let mut many = Environment::new(usize::MAX);
    let refused =
        (0..10_000).find_map(|number| many.set(format!("A{number}").as_bytes(), b"").err());
    assert_eq!(refused.map(|refusal| refusal.status), Some(431));
}

#[test]
fn a_variable_is_set_once_and_room_is_given_back() {
    let mut environment = Environment::new(20);
    for value in [&b"1234567890"[..], b"abcdefghij", b""] {
        environment.set(b"NAME", value).expect("fits");
        assert_eq!(environment.get(b"NAME"), Some(value));
        assert_eq!(environment.len(), 1);
    }
    environment.set(b"B", b"12345678").expect("fits");
    environment.remove(b"NAME");
    assert_eq!(map(&environment).into_keys().collect::<Vec<_>>(), ["B"]);
    assert_eq!(environment.get(b"NAME"), None);
}

#[test]
fn names_are_letters_digits_and_underscores() {
    for good in ["A", "_", "HTTP_X", "a1", "HTTP_PROXY_X"] {
        assert!(variable_name_ok(good.as_bytes()), "{good}");
    }
    for bad in [
        "",
        "1A",
        "A=B",
        "A-B",
        "A B",
        "A\0",
        "é",
        "HTTP_PROXY",
        "http_proxy",
    ] {
        assert!(!variable_name_ok(bad.as_bytes()), "{bad}");
        let refused = Environment::new(100).set(bad.as_bytes(), b"");
        assert_eq!(
            refused.map_err(|refusal| refusal.reason),
            Err("variable_name")
        );
    }
}

#[test]
fn below_a_mount_names_in_urls_begin_with_its_path_and_names_of_files_do_not() {
    let fields = fields(&[]);
    let mut request = request(&fields);
    request.script.prefix = b"/wiki";
    let map = of(&request);
    for (name, value) in [
        ("DOCUMENT_ROOT", "/srv/www"),
        ("DOCUMENT_URI", "/wiki/x.php/in fo"),
        ("PATH_INFO", "/in fo"),
        ("PATH_TRANSLATED", "/srv/www/in fo"),
        ("SCRIPT_FILENAME", "/srv/www/x.php"),
        ("SCRIPT_NAME", "/wiki/x.php"),
    ] {
        assert_eq!(map.get(name).map(String::as_str), Some(value), "{name}");
    }
}
