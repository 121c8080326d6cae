//! Random servers of nginx beside what is imported of them: what nginx closes is closed, and who
//! answers is the same one.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use import::{ImportOptions, Listening, nginx};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use testkit::client::{Body, reply};
use testkit::fastcgi::printed;
use testkit::{FastCgiResponder, Gateway, Peer, RawClient, ScriptedUpstream, Step, TempDir};

use crate::readme::NAGAYA;

/// Servers that are asked.
const SERVERS: usize = 300;

/// Locations beside each other, and such as stand in `/a/`; expressions may stand in any prefix.
const PREFIXES: [&str; 7] = ["/", "/a/", "^~ /a/", "/a/b/", "/d/", "^~ /d/", "/x"];
const WITHIN: [&str; 3] = ["/a/b/", "^~ /a/b/", "= /a/x.txt"];
const EXACTS: [&str; 7] = [
    "= /",
    "= /x.php",
    "= /index.php",
    "= /a/x.txt",
    "= /a/",
    "= /a/index.html",
    "= /d/x.txt",
];
const REGEXES: [&str; 10] = [
    "~ \\.php$",
    "~ [^/]\\.php(/|$)",
    "~* \\.(txt|css)$",
    "~ ^/a/",
    "~ /b/",
    "~ ^/(a|d)/.*\\.php$",
    "~ \\.html$",
    "~ /\\.",
    "~ ^/x",
    "~ ^/d/.+",
];

/// What locations say; `ID` is another text in each.
const BODIES: [&str; 31] = [
    "",
    "",
    "deny all;",
    "deny all;",
    "deny all; return 404;",
    "allow 127.0.0.1; deny all;",
    "allow 192.0.2.1; deny all;",
    "allow all;",
    "deny 127.0.0.1;",
    "auth_basic x; auth_basic_user_file DIR/pw;",
    "auth_basic x; auth_basic_user_file DIR/pw;",
    "auth_basic off;",
    "auth_basic x; auth_basic_user_file DIR/pw; BACK",
    "return 200 ID;",
    "return 403;",
    "internal;",
    "internal; PHP",
    "BACK",
    "BACK",
    "allow 192.0.2.1; deny all; BACK",
    "PHP",
    "PHP",
    "PHP",
    "auth_basic x; auth_basic_user_file DIR/pw; PHP",
    "root DIR/other;",
    "alias DIR/other/;",
    "try_files $uri $uri/ =404;",
    "try_files $uri $uri/ /index.php?q=$uri&$args;",
    "try_files $uri $uri/ /a/x.txt;",
    "try_files $uri @app;",
    "rewrite ^/a/(.*)$ /d/$1 last;",
];

/// What a server says.
const WHOLE: [&str; 8] = [
    "",
    "",
    "index index.php index.html;",
    "index index.php index.html;",
    "index index.php index.html; auth_basic x; auth_basic_user_file DIR/pw;",
    "index index.php; allow 192.0.2.1; deny all;",
    "autoindex on;",
    "index index.html; location @app { auth_basic x; auth_basic_user_file DIR/pw; BACK }",
];

const ASKED: [&str; 26] = [
    "/",
    "/index.php",
    "/index.html",
    "/x.php",
    "/x.php/info",
    "/x.txt",
    "/xyz",
    "/missing",
    "/missing.php",
    "/missing.txt",
    "/a/",
    "/a/x.txt",
    "/a/x.php",
    "/a/x.php/info",
    "/a/index.html",
    "/a/missing",
    "/a/missing.php",
    "/a/b/",
    "/a/b/x.txt",
    "/a/b/x.php",
    "/a/b/index.php",
    "/a/b/missing.txt",
    "/d/",
    "/d/x.txt",
    "/d/x.php",
    "/d/missing.css",
];

fn location(name: &str, body: &str, inner: &str) -> String {
    format!("location {name} {{ {body} add_header X-Place ID always;\n{inner} }}\n")
}

/// One of each name, in the order they were chosen in.
fn distinct(locations: Vec<(&str, String)>) -> String {
    let mut seen = Vec::new();
    let path = |name: &str| name.trim_start_matches("^~ ").to_owned();
    let mut all = locations;
    all.retain(|(name, _)| {
        let is_new = !seen.contains(&path(name));
        seen.push(path(name));
        is_new
    });
    all.into_iter().map(|(_, text)| text).collect()
}

fn plain(names: &'static [&'static str]) -> impl Strategy<Value = (&'static str, String)> {
    let parts = (select(names), select(&BODIES[..]));
    parts.prop_map(|(name, body)| {
        // An alias of an exact path or an expression is one file, and of an index only the directory is
        // rewritten here.
        let is_other = body.starts_with("alias") || body.starts_with("rewrite");
        let body = match name.starts_with(['=', '~']) && is_other {
            true => "",
            false => body,
        };
        (name, location(name, body, ""))
    })
}

fn prefix() -> impl Strategy<Value = (&'static str, String)> {
    let inner = proptest::collection::vec(prop_oneof![plain(&REGEXES), plain(&WITHIN)], 0..3);
    let parts = (select(&PREFIXES[..]), select(&BODIES[..]), inner);
    parts.prop_map(|(name, body, inner)| {
        let is_outer = name.ends_with("/a/");
        let fits = |(inner, _): &(&str, String)| inner.starts_with('~') || is_outer;
        let inner = inner.into_iter().filter(fits).collect();
        // nginx takes no location beside an alias for one within it.
        let body = if name == "/" && body.starts_with("alias") {
            ""
        } else {
            body
        };
        (name, location(name, body, &distinct(inner)))
    })
}

/// The body of a server.
fn server() -> impl Strategy<Value = String> {
    let one = prop_oneof![3 => prefix(), 1 => plain(&EXACTS), 3 => plain(&REGEXES)];
    let parts = (select(&WHOLE[..]), proptest::collection::vec(one, 1..7));
    parts.prop_map(|(whole, locations)| {
        let named = match whole.contains("@app") {
            true => "",
            false => "location @app { BACK }",
        };
        format!("root DIR/site; {whole} {named}\n{}", distinct(locations))
    })
}

/// The text with its addresses, and a number for each location.
fn filled(text: &str, directory: &TempDir, back: &str, php: &str) -> String {
    let back = format!("proxy_set_header X-Place ID; proxy_pass http://{back};");
    let php = format!(
        "fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name; fastcgi_param PLACE ID; \
         fastcgi_param QUERY_STRING $query_string; \
         fastcgi_pass {php};"
    );
    let text = text
        .replace("BACK", &back)
        .replace("PHP", &php)
        .replace("DIR", &directory.path().display().to_string());
    let mut out = String::new();
    for (number, piece) in text.split("location ").enumerate() {
        let begin = if number == 0 { "" } else { "location " };
        let _ = write!(out, "{begin}{}", piece.replace("ID", &format!("p{number}")));
    }
    out
}

fn files() -> TempDir {
    let directory = TempDir::new();
    for (root, names) in [
        (
            "site",
            &[
                "index.php",
                "index.html",
                "x.php",
                "x.txt",
                "a/index.html",
                "a/x.txt",
                "a/x.php",
                "a/b/index.php",
                "a/b/x.txt",
                "a/b/x.php",
                "d/index.html",
                "d/x.txt",
                "d/x.php",
            ][..],
        ),
        (
            "other",
            &[
                "x.txt",
                "x.php",
                "a/x.txt",
                "b/x.txt",
                "d/x.txt",
                "a/b/x.txt",
                "d/x.php",
            ],
        ),
    ] {
        for name in names {
            let begin = if name.ends_with(".php") { "<?php " } else { "" };
            directory.write(&format!("{root}/{name}"), format!("{begin}{root} {name}"));
        }
    }
    directory.write("pw", "alice:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\n");
    directory
}

/// Status, body, and the location that has answered.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Answer(u16, String, String);

fn ask(client: &mut RawClient, host: &str, path: &str, fields: &str) -> Answer {
    let head = format!("GET {path}?q HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n");
    client.send(head.as_bytes());
    let reply = reply(client.read_reply(Body::Framed));
    let place = reply.head.field("x-place").unwrap_or_default();
    let body = if reply.status == 200 {
        reply.text()
    } else {
        String::new()
    };
    Answer(reply.status, body, place.to_owned())
}

/// Whether a program was told to run what is no program, or not there: nothing of that is run here.
fn is_no_program(nginx: &Answer) -> bool {
    let file = nginx
        .1
        .strip_prefix("php ")
        .and_then(|it| it.split(' ').nth(1));
    let runs = |file: &str| file.ends_with(".php") && !file.contains("//");
    file.is_some_and(|file| !runs(file) || !Path::new(file).is_file())
}

/// Whether the same location's back end was asked.
fn is_of_same_back(nginx: &Answer, ours: &Answer) -> bool {
    let [nginx, ours] = [nginx, ours].map(|it| it.1.rsplit_once(' '));
    nginx.is_some_and(|(begin, _)| begin.starts_with("back ") && Some(begin) == ours.map(|it| it.0))
}

/// What is wrong with our answer beside nginx's.
fn wrong(nginx: &Answer, ours: &Answer, path: &str) -> Option<&'static str> {
    match nginx.0 {
        200 if is_no_program(nginx) => None,
        401 | 403 if ours.0 < 400 => Some("opened"),
        401 | 403 => None,
        // A loop of its own.
        500.. => None,
        // A mount is asked for what nginx looks for in the root of an expression.
        404 if ours.0 < 400 && !ours.1.starts_with("other ") => Some("answered what was not there"),
        404 => None,
        // Sources of programs are never shown.
        200 if nginx.1.contains("Index of") && ours.1.contains("<ul>") => None,
        200 if nginx.1.starts_with("site ") && ours.1.starts_with("other ") => None,
        // A later expression may be for an index, too, and `return` is asked what its server asks.
        200 if (path.ends_with('/') || nginx.1 == nginx.2) && [401, 403].contains(&ours.0) => None,
        200 if nginx.1.starts_with("<?") => ours.1.starts_with("<?").then_some("a source shown"),
        200 if ours.0 != 200 => Some("closed or lost"),
        // An index is asked of a back end by its directory.
        200 if nginx.1 != ours.1 && !(path.ends_with('/') && is_of_same_back(nginx, ours)) => {
            Some("answered by another")
        }
        200 if nginx.2 != ours.2 && !path.ends_with('/') => Some("answered at another location"),
        200 => None,
        status if ours.0 != status => Some("another status"),
        _ => None,
    }
}

/// Whether a site's file says why something is closed or lost: behind a program's name is nothing where
/// there are no programs, and below a mount files are the mount's.
fn is_told(what: &str, ours: &Answer, path: &str, site: &str) -> bool {
    what == "closed or lost"
        && (site.contains("# closed")
            || (path.contains(".php/") && !site.contains("fastcgi"))
            || (ours.0 == 404 && site.contains("[[sites.mounts]]")))
}

/// Both say what they were asked for, and by which location.
fn back_ends() -> (ScriptedUpstream, FastCgiResponder) {
    let back = ScriptedUpstream::start(|seen| {
        let place = seen.head.field("x-place").unwrap_or_default();
        let path = seen.head.line.split(' ').nth(1).unwrap_or_default();
        vec![Step::reply(200, format!("back {place} {path}"))]
    });
    let php = FastCgiResponder::start(|call| {
        let param = |name| call.param(name).unwrap_or_default();
        let told = [
            param("PLACE"),
            param("SCRIPT_FILENAME"),
            param("QUERY_STRING"),
        ]
        .join(" ");
        let text = format!("Content-Type: text/plain\r\n\r\nphp {told}");
        let mut steps = vec![Step::Send(printed(text))];
        if !call.keep {
            steps.push(Step::Close);
        }
        steps
    });
    (back, php)
}

#[test]
fn what_nginx_closes_is_closed_and_who_answers_is_the_same_one() {
    let directory = files();
    let (back, php) = back_ends();
    let addresses = [back.address().to_string(), php.address().to_string()];
    let mut runner = TestRunner::deterministic();
    let bodies: Vec<String> = (0..SERVERS)
        .map(|_| {
            let text = server().new_tree(&mut runner).unwrap().current();
            filled(&text, &directory, &addresses[0], &addresses[1])
        })
        .collect();
    let host = |number: usize| format!("s{number}.example");
    let servers: String = bodies
        .iter()
        .enumerate()
        .map(|(number, body)| {
            format!(
                "server {{ listen 127.0.0.1:{{port}}; server_name {};\n{body}}}\n",
                host(number)
            )
        })
        .collect();
    let http = format!("keepalive_requests 1000000; server_names_hash_bucket_size 64;\n{servers}");
    let Some(peer) = Peer::nginx(&http) else {
        return;
    };
    let options = ImportOptions {
        listening: Listening::Unsaid,
        ..ImportOptions::default()
    };
    let text = format!("http {{ {} }}", http.replace("{port}", "80"));
    let imported = nginx(text.as_bytes(), &options).unwrap();
    let mut config = "[[listen]]\naddress = \"127.0.0.1:{port}\"\n".to_owned();
    imported
        .files
        .iter()
        .for_each(|file| config.push_str(&file.text));
    let gateway = Gateway::with_config(NAGAYA, &config).start();
    let mut clients = [peer.address(), gateway.address()].map(RawClient::connect);
    let (mut found, mut count) = (BTreeMap::<&str, Vec<String>>::new(), 0);
    for (number, body) in bodies.iter().enumerate() {
        let site = imported.files.iter().find(|file| file.name == host(number));
        let site = site.map_or("", |file| &file.text);
        for path in ASKED {
            for fields in ["", "Authorization: Basic YWxpY2U6cGFzc3dvcmQ=\r\n"] {
                let [theirs, ours] = clients
                    .each_mut()
                    .map(|it| ask(it, &host(number), path, fields));
                count += 1;
                let what = wrong(&theirs, &ours, path);
                if let Some(what) = what.filter(|what| !is_told(what, &ours, path, site)) {
                    found.entry(what).or_default().push(format!(
                        "{what}: {path} {fields:?}\n nginx {theirs:?}\n ours  {ours:?}\n{body}\n{site}"
                    ));
                }
            }
        }
    }
    let shown = found.into_iter().map(|(what, mut all)| {
        all.sort_by_key(String::len);
        format!("{} × {what}, such as {}", all.len(), all[0])
    });
    let shown: Vec<String> = shown.collect();
    assert!(
        shown.is_empty(),
        "of {count} answers:\n{}",
        shown.join("\n\n")
    );
}
