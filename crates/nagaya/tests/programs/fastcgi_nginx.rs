//! The same requests through nginx and through the gateway, to the same php-fpm and the same files.
//!
//! Status, the file that runs and what it is told must agree but where [`DIFFERENT`] says why not.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::fixtures::php::{SHOW, Wish, bed, bed_of, shown};
use testkit::client::{Body, reply};
use testkit::{PATIENCE, Peer, RawClient, Reply};

/// As nginx's documentation has it for PHP with a front controller.
const NGINX: &str = r#"
types { text/plain txt; image/png png; text/css css; }
server {
  listen 127.0.0.1:{port};
  server_name app.test;
  root {site};
  index index.php index.html;
  location / { try_files $uri $uri/ /index.php?$args; }
  location ~ [^/]\.php(/|$) {
    fastcgi_split_path_info ^(.+?\.php)(/.*)$;
    if (!-f $document_root$fastcgi_script_name) { return 404; }
    fastcgi_pass {php};
    fastcgi_param QUERY_STRING $query_string;
    fastcgi_param REQUEST_METHOD $request_method;
    fastcgi_param CONTENT_TYPE $content_type;
    fastcgi_param CONTENT_LENGTH $content_length;
    fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
    fastcgi_param SCRIPT_NAME $fastcgi_script_name;
    fastcgi_param PATH_INFO $fastcgi_path_info;
    fastcgi_param REQUEST_URI $request_uri;
    fastcgi_param DOCUMENT_URI $document_uri;
    fastcgi_param DOCUMENT_ROOT $document_root;
    fastcgi_param SERVER_PROTOCOL $server_protocol;
    fastcgi_param REQUEST_SCHEME $scheme;
    fastcgi_param HTTPS $https if_not_empty;
    fastcgi_param GATEWAY_INTERFACE CGI/1.1;
    fastcgi_param SERVER_SOFTWARE nginx/$nginx_version;
    fastcgi_param REMOTE_ADDR $remote_addr;
    fastcgi_param REMOTE_PORT $remote_port;
    fastcgi_param SERVER_ADDR $server_addr;
    fastcgi_param SERVER_PORT $server_port;
    fastcgi_param SERVER_NAME $server_name;
    fastcgi_param REDIRECT_STATUS 200;
  }
}
"#;

/// Variables that differ on purpose, and why. The other difference: a program that is missing is
/// the front controller's, as with Apache's usual rewrite; the pattern that nginx's configurations
/// have for programs takes it away from `try_files` and answers 404.
const DIFFERENT: &[(&str, &str)] = &[
    ("SERVER_SOFTWARE", "each has its name"),
    ("SERVER_PORT", "each has its port here"),
    ("REMOTE_PORT", "each request has its connection"),
    ("REQUEST_TIME", "the clock goes on"),
    ("REQUEST_TIME_FLOAT", "the clock goes on"),
    ("HTTP_X_REQUEST_ID", "ours, as in our log"),
    (
        "PATH_TRANSLATED",
        "RFC 3875 asks for it, nginx leaves it out",
    ),
    ("HTTP_CONNECTION", "concerns one connection, ours"),
    ("HTTP_CONTENT_LENGTH", "CONTENT_LENGTH says it"),
    ("HTTP_CONTENT_TYPE", "CONTENT_TYPE says it"),
    ("HTTP_TRANSFER_ENCODING", "the body has a length by then"),
    ("HTTP_EXPECT", "we have answered it"),
    ("HTTP_PROXY", "httpoxy: never passed on"),
    ("HTTP_X_FORWARDED_FOR", "believed from trusted proxies only"),
    (
        "HTTP_X_FORWARDED_PROTO",
        "believed from trusted proxies only",
    ),
];

const FILES: &[(&str, &str)] = &[
    ("index.php", SHOW),
    ("x.php", SHOW),
    ("dir/index.php", SHOW),
    ("a b.php", SHOW),
    ("plain/index.html", "plain"),
    ("empty/readme.txt", "text"),
    ("image.png", "png"),
];

/// Method, path, fields and body of a request.
type Asked<'a> = (&'a str, &'a str, &'a str, &'a str);

const ASKED: &[Asked<'_>] = &[
    ("GET", "/", "", ""),
    ("GET", "/?a=b&c=%20d", "", ""),
    ("GET", "/?", "", ""),
    ("GET", "/x.php", "", ""),
    ("GET", "/x.php?", "", ""),
    ("GET", "/x.php?-dallow_url_include=1", "", ""),
    ("GET", "/x.php/info", "", ""),
    ("GET", "/x.php/info/more?q", "", ""),
    ("GET", "/x.php/in%20fo", "", ""),
    ("GET", "/x.php/", "", ""),
    ("GET", "/x.php/y.jpg", "", ""),
    ("GET", "/x.php/y.php/z", "", ""),
    ("GET", "/a%20b.php", "", ""),
    ("GET", "/dir/", "", ""),
    ("GET", "/dir/?q=1", "", ""),
    ("GET", "/dir/index.php", "", ""),
    ("GET", "/a/pretty/permalink", "", ""),
    ("GET", "/a/pretty/permalink/?p=1", "", ""),
    ("GET", "/2024/05/%E6%97%A5%E6%9C%AC", "", ""),
    ("GET", "/missing.png", "", ""),
    ("GET", "/empty/missing.png?v=2", "", ""),
    ("GET", "/image.png", "", ""),
    ("GET", "/plain/", "", ""),
    ("GET", "/index.php", "", ""),
    ("GET", "/index.php/2024/post", "", ""),
    ("HEAD", "/x.php", "", ""),
    ("OPTIONS", "/x.php", "", ""),
    ("DELETE", "/x.php/item/7", "", ""),
    (
        "POST",
        "/x.php",
        "Content-Length: 7\r\nContent-Type: text/plain\r\n",
        "content",
    ),
    ("POST", "/x.php", "Content-Length: 0\r\n", ""),
    (
        "POST",
        "/a/pretty/permalink?p=1",
        "Content-Length: 3\r\nContent-Type: application/x-www-form-urlencoded\r\n",
        "a=b",
    ),
    (
        "PUT",
        "/x.php/item",
        "Content-Length: 2\r\nContent-Type: application/json\r\n",
        "{}",
    ),
    ("PATCH", "/x.php", "Content-Length: 2\r\n", "{}"),
    (
        "POST",
        "/x.php",
        "Transfer-Encoding: chunked\r\nContent-Type: a/b\r\n",
        "3\r\nabc\r\n0\r\n\r\n",
    ),
    (
        "GET",
        "/x.php",
        "Cookie: a=1; b=2\r\nReferer: http://a/\r\nUser-Agent: t\r\nAccept: */*\r\nAccept-Language: ja\r\n",
        "",
    ),
    ("GET", "/x.php", "Authorization: Basic YTpi\r\n", ""),
    (
        "GET",
        "/x.php",
        "X-Own: 1\r\nx-OTHER-one: 2\r\nIf-None-Match: \"x\"\r\nRange: bytes=0-1\r\n",
        "",
    ),
    (
        "GET",
        "/x.php",
        "X_Own: 1\r\nProxy: http://evil\r\nX-Forwarded-For: 1.2.3.4\r\nX-Forwarded-Proto: https\r\n",
        "",
    ),
];

fn ask(address: SocketAddr, (method, path, fields, body): Asked<'_>) -> Reply {
    let mut client = RawClient::connect(address).with_deadline(PATIENCE);
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: app.test\r\nConnection: close\r\n{fields}\r\n{body}"
    );
    client.send(request.as_bytes());
    let framed = if method == "HEAD" {
        Body::Never
    } else {
        Body::Framed
    };
    reply(client.read_reply(framed))
}

/// The variables that must agree; one that is empty is as good as none.
fn comparable(reply: &Reply) -> BTreeMap<String, String> {
    let mut shown = shown(reply);
    shown.retain(|name, value| {
        !value.is_empty() && DIFFERENT.iter().all(|(different, _)| different != name)
    });
    shown
}

#[test]
fn php_sees_the_same_through_nginx_and_through_the_gateway() {
    let wish = Wish {
        processes: 3,
        files: FILES,
        ..Wish::default()
    };
    let Some(bed) = bed(&wish) else { return };
    let config = NGINX
        .replace("{site}", &bed.site.path().display().to_string())
        .replace("{php}", bed.php.address());
    let Some(nginx) = Peer::nginx(&config) else {
        return;
    };
    let mut wrong = Vec::new();
    for asked in ASKED {
        let theirs = ask(nginx.address(), *asked);
        let ours = ask(bed.gateway.address(), *asked);
        let is_page = theirs.status == 200;
        if theirs.status != ours.status {
            wrong.push(format!(
                "{asked:?}: status {} and {}",
                theirs.status, ours.status
            ));
        } else if is_page && comparable(&theirs) != comparable(&ours) {
            let (theirs, ours) = (comparable(&theirs), comparable(&ours));
            let names = theirs.keys().chain(ours.keys());
            let mut names: Vec<_> = names
                .filter(|name| theirs.get(*name) != ours.get(*name))
                .collect();
            names.dedup();
            let differ = names
                .iter()
                .map(|name| format!("{name}: {:?} and {:?}", theirs.get(*name), ours.get(*name)));
            wrong.push(format!(
                "{asked:?}: {}",
                differ.collect::<Vec<_>>().join(", ")
            ));
        } else if is_page && shown(&theirs).is_empty() && theirs.text() != ours.text() {
            wrong.push(format!("{asked:?}: another body"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_missing_program_is_the_front_controllers() {
    let Some(bed) = bed_of(FILES) else { return };
    for path in ["/missing.php", "/missing.php/info", "/dir/missing.php"] {
        let shown = shown(&bed.get(path));
        assert_eq!(shown.get("SCRIPT_NAME").unwrap(), "%2Findex.php", "{path}");
        assert_eq!(shown.get("REQUEST_URI").unwrap(), &path.replace('/', "%2F"));
    }
}

#[test]
fn a_spelling_with_two_meanings_reaches_php_with_one() {
    let Some(bed) = bed_of(FILES) else { return };
    // nginx tells PHP the target as it was sent; here PHP sees the path that the rules saw.
    for (sent, told) in [
        ("/dir/../x.php", "/x.php"),
        ("//x.php", "/x.php"),
        ("/%78.php", "/x.php"),
        ("/x.php/a/./b//c?d=//e/../f", "/x.php/a/b/c?d=//e/../f"),
        ("/private/..%2fx", ""),
    ] {
        let answer = ask(bed.gateway.address(), ("GET", sent, "", ""));
        if told.is_empty() {
            assert_eq!(answer.status, 400, "{sent}");
            continue;
        }
        let encoded: String = told
            .bytes()
            .map(|byte| match byte {
                b'a'..=b'z' | b'.' | b'-' | b'_' => char::from(byte).to_string(),
                other => format!("%{other:02X}"),
            })
            .collect();
        assert_eq!(shown(&answer).get("REQUEST_URI"), Some(&encoded), "{sent}");
    }
}
