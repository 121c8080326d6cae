//! Files as clients get them: types, conditions, ranges, codings, directories and what is hidden.
//!
//! Every test speaks to the real gateway over a socket and knows the bytes on disk.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::fixtures::files::{ask, field, gateway, get, text};
use testkit::{Gateway, Outcome, eventually};

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_file_comes_with_its_type_time_and_tag() {
    let gateway = gateway(&[("a.css", b"p{}"), ("b.unknown", b"?"), ("empty", b"")]);
    let reply = get(&gateway, "plain.test", "/hello.txt");
    assert_eq!(
        (reply.status, text(&reply).as_str()),
        (200, "hello, world!\n")
    );
    assert_eq!(field(&reply, "content-type"), "text/plain; charset=utf-8");
    assert_eq!(field(&reply, "content-length"), "14");
    assert_eq!(field(&reply, "accept-ranges"), "bytes");
    assert!(field(&reply, "last-modified").ends_with(" GMT"));
    let tag = field(&reply, "etag");
    assert!(
        tag.starts_with('"') && tag.ends_with('"') && tag.len() > 4,
        "{tag}"
    );
    let css = get(&gateway, "plain.test", "/a.css");
    assert_eq!(field(&css, "content-type"), "text/css; charset=utf-8");
    let unknown = get(&gateway, "plain.test", "/b.unknown");
    assert_eq!(field(&unknown, "content-type"), "application/octet-stream");
    let empty = get(&gateway, "plain.test", "/empty");
    assert_eq!((empty.status, empty.body.len()), (200, 0));
}

#[test]
fn head_says_what_get_would() {
    let gateway = gateway(&[("big.bin", &[7; 200_000])]);
    for path in ["/hello.txt", "/big.bin"] {
        let head = ask(&gateway, "plain.test", &format!("HEAD {path}"), "");
        let get = get(&gateway, "plain.test", path);
        for name in ["content-length", "etag", "last-modified", "content-type"] {
            assert_eq!(field(&head, name), field(&get, name), "{name} of {path}");
        }
        assert_eq!(field(&get, "content-length"), get.body.len().to_string());
    }
}

#[test]
fn other_methods_are_told_what_is_allowed() {
    let gateway = gateway(&[]);
    for method in ["POST", "PUT", "DELETE", "PATCH", "PROPFIND"] {
        let fields = "Content-Length: 0\r\n";
        let reply = ask(
            &gateway,
            "plain.test",
            &format!("{method} /hello.txt"),
            fields,
        );
        assert_eq!(reply.status, 405, "{method}");
        assert_eq!(field(&reply, "allow"), "GET, HEAD, OPTIONS");
    }
    let reply = ask(&gateway, "plain.test", "OPTIONS /hello.txt", "");
    assert_eq!(reply.status, 204);
    assert_eq!(field(&reply, "allow"), "GET, HEAD, OPTIONS");
}

#[test]
fn conditions_are_judged_in_order() {
    let gateway = gateway(&[]);
    let first = get(&gateway, "plain.test", "/hello.txt");
    let (tag, time) = (field(&first, "etag"), field(&first, "last-modified"));
    let old = "Thu, 01 Jan 1970 00:00:10 GMT";
    let table = [
        (format!("If-None-Match: {tag}\r\n"), 304),
        (format!("If-None-Match: \"x\", W/{tag}\r\n"), 304),
        ("If-None-Match: *\r\n".to_owned(), 304),
        ("If-None-Match: \"x\"\r\n".to_owned(), 200),
        (format!("If-Modified-Since: {time}\r\n"), 304),
        (format!("If-Modified-Since: {old}\r\n"), 200),
        (
            format!("If-None-Match: \"x\"\r\nIf-Modified-Since: {time}\r\n"),
            200,
        ),
        (format!("If-Match: {tag}\r\n"), 200),
        ("If-Match: \"x\"\r\n".to_owned(), 412),
        (format!("If-Match: {tag}\r\nIf-None-Match: {tag}\r\n"), 304),
        (format!("If-Unmodified-Since: {old}\r\n"), 412),
        (format!("If-Match: \"x\"\r\nIf-None-Match: {tag}\r\n"), 412),
    ];
    for (fields, expected) in table {
        for method in ["GET", "HEAD"] {
            let start = format!("{method} /hello.txt");
            let reply = ask(&gateway, "plain.test", &start, &fields);
            assert_eq!(reply.status, expected, "{method} with {fields}");
            if expected == 304 {
                assert_eq!((field(&reply, "etag"), reply.body.len()), (tag.clone(), 0));
            }
        }
    }
}

#[test]
fn one_range_is_cut_out_and_others_are_the_whole() {
    let gateway = gateway(&[("digits", b"0123456789")]);
    let tag = field(&get(&gateway, "plain.test", "/digits"), "etag");
    let whole = (200, "0123456789", "");
    for (range, more, expected) in [
        ("bytes=2-4", "", (206, "234", "bytes 2-4/10")),
        ("bytes=7-", "", (206, "789", "bytes 7-9/10")),
        ("bytes=-1", "", (206, "9", "bytes 9-9/10")),
        ("bytes=0-99", "", (206, "0123456789", "bytes 0-9/10")),
        ("bytes=0-1,4-5", "", whole),
        ("bytes=5-2", "", whole),
        ("lines=1-2", "", whole),
        ("bytes=0-0", "If-Range: TAG\r\n", (206, "0", "bytes 0-0/10")),
        ("bytes=0-0", "If-Range: \"x\"\r\n", whole),
        ("bytes=0-0", "If-None-Match: TAG\r\n", (304, "", "")),
    ] {
        let fields = format!("Range: {range}\r\n{}", more.replace("TAG", &tag));
        let reply = ask(&gateway, "plain.test", "GET /digits", &fields);
        let (body, content_range) = (text(&reply), field(&reply, "content-range"));
        assert_eq!(
            (reply.status, &*body, &*content_range),
            expected,
            "{fields}"
        );
    }
    let reply = ask(
        &gateway,
        "plain.test",
        "GET /digits",
        "Range: bytes=10-\r\n",
    );
    assert_eq!(reply.status, 416);
    assert_eq!(field(&reply, "content-range"), "bytes */10");
}

#[test]
fn a_range_of_a_large_file_is_cut_out_too() {
    let long: Vec<u8> = (0..200_000_u32)
        .map(|number| (number % 251) as u8)
        .collect();
    let gateway = gateway(&[("long", &long)]);
    let fields = "Range: bytes=99999-150000\r\n";
    let reply = ask(&gateway, "plain.test", "GET /long", fields);
    assert_eq!((reply.status, &*reply.body), (206, &long[99_999..=150_000]));
}

#[test]
fn large_files_arrive_whole_and_the_connection_goes_on() {
    let large: Vec<u8> = (0..3_000_000_u32)
        .map(|number| (number % 249) as u8)
        .collect();
    let gateway = gateway(&[
        ("large", &large),
        ("edge", &large[..65_536]),
        ("more", &large[..65_537]),
    ]);
    let mut client = gateway.client();
    for (path, size) in [
        ("large", 3_000_000),
        ("edge", 65_536),
        ("more", 65_537),
        ("large", 3_000_000),
    ] {
        let asked = format!("GET /{path} HTTP/1.1\r\nHost: plain.test\r\n\r\n");
        let Outcome::Reply(reply) = client.ask(asked.as_bytes()) else {
            panic!("no reply for {path}");
        };
        assert!(reply.complete && reply.body == large[..size], "{path}");
    }
}

#[test]
fn what_begins_with_a_dot_is_hidden() {
    let gateway = gateway(&[
        (".htaccess", b"secret"),
        (".git/config", b"secret"),
        ("a/.env", b"secret"),
        (".well-known/acme", b"token"),
        (".well-known/.hidden", b"secret"),
    ]);
    for path in [
        "/.htaccess",
        "/.git/config",
        "/a/.env",
        "/.well-known/.hidden",
        "/.git/",
        "/%2egit/config",
    ] {
        assert_eq!(get(&gateway, "plain.test", path).status, 404, "{path}");
        assert_eq!(get(&gateway, "list.test", path).status, 404, "{path}");
    }
    assert_eq!(
        text(&get(&gateway, "plain.test", "/.well-known/acme")),
        "token"
    );
}

#[test]
fn sources_are_never_shown() {
    let gateway = gateway(&[
        ("a.php", b"<?php secret"),
        ("b.phtml", b"secret"),
        ("c.cgi", b"secret"),
        ("d.rb", b"secret"),
        ("dir/index.php", b"secret"),
    ]);
    for path in [
        "/a.php",
        "/b.phtml",
        "/c.cgi",
        "/d.rb",
        "/a.php/",
        "/a.php/info",
    ] {
        for host in ["plain.test", "list.test"] {
            let reply = get(&gateway, host, path);
            assert_eq!(reply.status, 404, "{path}");
            assert!(!text(&reply).contains("secret"), "{path}");
        }
    }
    assert!(!text(&get(&gateway, "list.test", "/")).contains("a.php"));
}

#[test]
fn a_copy_of_a_source_is_not_shown_either() {
    let gateway = gateway(&[
        ("page.html", b"page"),
        ("a.php", b"<?php secret"),
        ("a.php.gz", b"secret"),
        ("a.PHP.Gz", b"secret"),
        ("b.phtml.br", b"secret"),
        ("c.cgi.zst", b"secret"),
        ("d.rb.gz.br", b"secret"),
        ("a.php.bak", b"secret"),
        ("a.PHP~", b"secret"),
        ("a.php.old.gz", b"secret"),
        ("notes.txt.gz", b"notes"),
    ]);
    let www = gateway.directory().path().join("www");
    // By a link, a copy of a source stands beside a page as if it were the page's.
    symlink("a.php.gz", www.join("page.html.gz")).expect("make a link");
    for path in [
        "a.php.gz",
        "a.PHP.Gz",
        "b.phtml.br",
        "c.cgi.zst",
        "d.rb.gz.br",
        "a.php.bak",
        "a.PHP~",
        "a.php.old.gz",
        "page.html.gz",
    ] {
        let reply = get(&gateway, "plain.test", &format!("/{path}"));
        assert_eq!(reply.status, 404, "{path}");
        assert!(!text(&reply).contains("secret"), "{path}");
        let listed = text(&get(&gateway, "list.test", "/")).contains(&format!(">{path}<"));
        assert!(!listed || path == "page.html.gz", "{path} is listed");
    }
    for (path, body) in [("/page.html", "page"), ("/notes.txt.gz", "notes")] {
        let reply = ask(
            &gateway,
            "plain.test",
            &format!("GET {path}"),
            "Accept-Encoding: gzip\r\n",
        );
        assert_eq!((reply.status, text(&reply).as_str()), (200, body), "{path}");
    }
}

#[test]
fn a_source_is_not_shown_under_a_name_that_packages_and_people_give_it() {
    let hidden = [
        "a.php.dpkg-old",
        "a.php.dpkg-dist",
        "a.PHP.UCF-Dist",
        "b.cgi.dpkg-new",
        "b.pl.ucf-old",
        "a.php.save",
        "a.php.save.1",
        "a.php.txt",
        "a.php.1",
        "a.Php.Html",
        "a.phtml.inc",
        "c.phps",
        "c.php7",
        "c.php5.bak",
        "a.php,v",
        "d.py.rej",
        "d.rb.tmp",
        "x.php.txt.dpkg-old.gz",
        "settings.ini.dpkg-dist",
        "settings.ini.ucf-old~",
    ];
    let shown = [
        "datepicker.pl.js",
        "notes.dpkg",
        "a.phpinfo.txt",
        "dir.php.d/style.css",
    ];
    let files: Vec<_> = hidden.iter().chain(&shown).collect();
    let files: Vec<(&str, &[u8])> = files.iter().map(|name| (**name, &b"text"[..])).collect();
    let gateway = gateway(&files);
    for name in hidden {
        let path = format!("/{name}");
        assert_eq!(get(&gateway, "plain.test", &path).status, 404, "{name}");
        assert_eq!(get(&gateway, "more.test", &path).status, 404, "{name}");
        let listing = text(&get(&gateway, "list.test", "/"));
        assert!(!listing.contains(&format!(">{name}<")), "{name}");
    }
    for name in shown {
        let reply = get(&gateway, "plain.test", &format!("/{name}"));
        assert_eq!(
            (reply.status, text(&reply).as_str()),
            (200, "text"),
            "{name}"
        );
    }
}

#[test]
fn sources_may_be_added_to_the_defaults_or_take_their_place() {
    let gateway = gateway(&[
        ("a.php", b"x"),
        ("a.php.txt", b"x"),
        ("b.inc", b"x"),
        ("b.inc.bak", b"x"),
        ("c.tpl", b"x"),
    ]);
    for (host, statuses) in [
        ("plain.test", [404, 404, 200, 200, 200]),
        ("more.test", [404, 404, 404, 404, 200]),
        ("other.test", [200, 200, 404, 404, 404]),
    ] {
        let names = ["a.php", "a.php.txt", "b.inc", "b.inc.bak", "c.tpl"];
        for (name, status) in names.into_iter().zip(statuses) {
            let reply = get(&gateway, host, &format!("/{name}"));
            assert_eq!(reply.status, status, "{host} {name}");
        }
    }
}

#[test]
fn only_regular_files_are_served() {
    let gateway = gateway(&[]);
    let fifo = gateway.directory().path().join("www/fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o666),
        0,
    )
    .expect("make a FIFO");
    let socket = gateway.directory().path().join("www/socket");
    let _listener = std::os::unix::net::UnixListener::bind(socket).expect("make a socket");
    for path in ["/fifo", "/socket"] {
        assert_eq!(get(&gateway, "allow.test", path).status, 404, "{path}");
    }
}

#[test]
fn links_are_followed_as_the_policy_says() {
    let gateway = gateway(&[("dir/file", b"inside")]);
    let directory = gateway.directory();
    directory.write("outside", "outside");
    let www = directory.path().join("www");
    let link = |to: &str, at: &str| symlink(to, www.join(at)).expect("make a link");
    link("dir/file", "to_file");
    link("dir", "to_dir");
    link("../outside", "to_outside");
    link("/etc/hostname", "to_absolute");
    let place = |name: &str| directory.path().join(name).display().to_string();
    link(&place("www/dir/file"), "to_itself");
    link(&place("www/dir"), "to_directory");
    link(&place("www/to_itself"), "to_chain");
    link(&place("outside"), "to_its_neighbour");
    link(
        &format!("/proc/self/root{}", place("www/dir/file")),
        "to_magic",
    );
    link("www", "../current");
    link(&place("current/dir/file"), "to_current");
    link("to_loop", "to_loop");
    // plain.test has the default policy: owner.
    for (host, path, status) in [
        ("plain.test", "/to_file", 200),
        ("plain.test", "/to_dir/file", 200),
        ("plain.test", "/to_outside", 404),
        ("plain.test", "/to_absolute", 404),
        ("plain.test", "/to_loop", 404),
        ("deny.test", "/to_file", 404),
        ("deny.test", "/to_dir/file", 404),
        ("deny.test", "/dir/file", 200),
        ("allow.test", "/to_file", 200),
        ("allow.test", "/to_outside", 404),
        ("allow.test", "/to_absolute", 404),
        ("within.test", "/to_outside", 200),
        ("within.test", "/to_absolute", 404),
        ("plain.test", "/to_itself", 200),
        ("plain.test", "/to_directory/file", 200),
        ("plain.test", "/to_chain", 200),
        ("plain.test", "/to_current", 200),
        ("plain.test", "/to_magic", 404),
        ("plain.test", "/to_its_neighbour", 404),
        ("deny.test", "/to_itself", 404),
        ("allow.test", "/to_itself", 200),
        ("allow.test", "/to_directory/file", 200),
        ("allow.test", "/to_chain", 200),
        ("allow.test", "/to_current", 200),
        ("allow.test", "/to_magic", 404),
        ("allow.test", "/to_its_neighbour", 404),
        ("within.test", "/to_its_neighbour", 200),
    ] {
        assert_eq!(get(&gateway, host, path).status, status, "{host} {path}");
    }
    // A link of one user to another's file: only root can make one.
    if rustix::process::getuid().is_root() {
        link("dir/file", "foreign");
        std::os::unix::fs::lchown(www.join("foreign"), Some(12345), None).expect("give away");
        link(&place("www/dir/file"), "foreign_absolute");
        let foreign = www.join("foreign_absolute");
        std::os::unix::fs::lchown(foreign, Some(12345), None).expect("give away");
        assert_eq!(get(&gateway, "plain.test", "/foreign_absolute").status, 404);
        assert_eq!(get(&gateway, "plain.test", "/foreign").status, 404);
        assert_eq!(get(&gateway, "allow.test", "/foreign").status, 200);
    }
}

#[test]
fn a_root_that_is_an_absolute_link_to_a_release_is_served() {
    let releases = r#"
workers = 1
[[listen]]
address = "127.0.0.1:{port}"
[log]
access = ""
[[sites]]
hosts = ["owner.test"]
root = "{dir}/app/current"
within = "{dir}/app"
[[sites]]
hosts = ["allow.test"]
root = "{dir}/app/current"
within = "{dir}/app"
symlinks = "allow"
"#;
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), releases);
    let directory = builder.directory();
    let shared = "app/shared/.well-known";
    for (name, content) in [
        ("app/releases/7/index.html", "seven"),
        ("app/releases/7/.env", "secret"),
        ("app/releases/8/index.html", "eight"),
        ("app/shared/logo.txt", "logo"),
        (&format!("{shared}/acme"), "token"),
        ("outside/index.html", "secret"),
    ] {
        directory.write(name, content);
    }
    let at = |name: &str| directory.path().join(name);
    for release in ["7", "8"] {
        let release = at("app/releases").join(release);
        symlink(at("app/shared/logo.txt"), release.join("logo.txt")).expect("link");
        symlink(at(shared), release.join(".well-known")).expect("link");
    }
    symlink(at("app/releases/7"), at("app/current")).expect("link");
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).expect("chmod");
    let gateway = builder.start();
    let app = gateway.directory().path().join("app");
    for host in ["owner.test", "allow.test"] {
        for (path, body) in [
            ("/", "seven"),
            ("/index.html", "seven"),
            ("/logo.txt", "logo"),
            ("/.well-known/acme", "token"),
        ] {
            let reply = get(&gateway, host, path);
            assert_eq!(
                (reply.status, text(&reply).as_str()),
                (200, body),
                "{host} {path}"
            );
        }
        assert_eq!(get(&gateway, host, "/.env").status, 404);
    }
    let deploy = |to: &str| {
        symlink(app.join(to), app.join("next")).expect("link");
        std::fs::rename(app.join("next"), app.join("current")).expect("rename");
    };
    deploy("releases/8");
    eventually(PATIENCE, "the next release", || {
        (text(&get(&gateway, "allow.test", "/")) == "eight").then_some(())
    });
    deploy("../outside");
    eventually(PATIENCE, "a release outside to be refused", || {
        let reply = get(&gateway, "allow.test", "/");
        assert!(!text(&reply).contains("secret"));
        (reply.status == 404).then_some(())
    });
}

#[test]
fn a_link_dresses_no_source_and_no_hidden_file_as_something_else() {
    let gateway = gateway(&[
        ("secret.php", b"<?php secret"),
        (".env", b"secret"),
        (".git/config", b"secret"),
    ]);
    let www = gateway.directory().path().join("www");
    for (to, at) in [
        ("secret.php", "alias.txt"),
        ("alias.txt", "twice.txt"),
        (".env", "settings.txt"),
        (".git", "repository"),
    ] {
        symlink(to, www.join(at)).expect("make a link");
    }
    std::fs::copy(www.join("secret.php"), www.join("SHOUT.PHP")).expect("copy");
    let paths = [
        "/alias.txt",
        "/twice.txt",
        "/settings.txt",
        "/repository/config",
        "/SHOUT.PHP",
    ];
    for host in ["plain.test", "allow.test"] {
        for path in paths {
            let reply = get(&gateway, host, path);
            assert_eq!(reply.status, 404, "{host} {path}");
            assert!(!text(&reply).contains("secret"), "{host} {path}");
        }
    }
}

#[test]
fn a_path_goes_on_behind_a_program_only() {
    let gateway = gateway(&[("app.php", b"x"), ("sub/tool.php", b"x")]);
    for (path, body) in [
        ("/app.php", "run /app.php"),
        ("/app.php/more/info", "run /app.php/more/info"),
        ("/sub/tool.php/x", "run /sub/tool.php/x"),
        ("/no/such/thing", "run /no/such/thing"),
        ("/.hidden", "run /.hidden"),
    ] {
        let reply = get(&gateway, "front.test", path);
        assert_eq!((reply.status, text(&reply).as_str()), (200, body), "{path}");
    }
    for path in ["/hello.txt/", "/hello.txt/more"] {
        assert_eq!(get(&gateway, "plain.test", path).status, 404, "{path}");
    }
}

#[test]
fn try_entries_are_tried_in_order() {
    let gateway = gateway(&[
        ("page.html", b"page"),
        ("dir/index.html", b"index"),
        ("bare/x", b"x"),
        ("app.php", b"x"),
    ]);
    for (host, path, status, body) in [
        ("front.test", "/page", 200, "page"),
        ("front.test", "/dir/", 200, "index"),
        ("front.test", "/bare/", 200, "run /bare/"),
        ("front.test", "/hello.txt", 200, "hello, world!\n"),
        ("plain.test", "/page", 404, ""),
        ("plain.test", "/bare/", 404, ""),
        ("status.test", "/nothing", 410, ""),
        ("status.test", "/hello.txt", 200, "hello, world!\n"),
    ] {
        let reply = get(&gateway, host, path);
        assert_eq!(reply.status, status, "{host} {path}");
        if status == 200 {
            assert_eq!(text(&reply), body, "{host} {path}");
        }
    }
}

#[test]
fn a_directory_is_entered_by_its_slash() {
    let gateway = gateway(&[
        ("dir/start.html", b"second choice"),
        ("evil.test/index.html", b"x"),
        ("a b/index.html", b"x"),
    ]);
    for (path, location) in [
        ("/dir", "/dir/"),
        ("/dir?a=b&c", "/dir/?a=b&c"),
        ("//evil.test", "/evil.test/"),
        ("///evil.test?q", "/evil.test/?q"),
        ("/a%20b", "/a%20b/"),
    ] {
        let reply = get(&gateway, "plain.test", path);
        assert_eq!(reply.status, 301, "{path}");
        assert_eq!(field(&reply, "location"), location, "{path}");
    }
    assert_eq!(text(&get(&gateway, "plain.test", "/dir/")), "second choice");
}

#[test]
fn a_listing_shows_names_as_text() {
    let gateway = gateway(&[
        ("list/<img src=x onerror=alert(1)>", b"x"),
        ("list/plain.txt", b"x"),
        ("list/.hidden", b"x"),
        ("list/deep/file", b"x"),
    ]);
    let reply = get(&gateway, "list.test", "/list/");
    assert_eq!(reply.status, 200);
    assert_eq!(field(&reply, "content-type"), "text/html; charset=utf-8");
    let page = text(&reply);
    assert!(
        !page.contains("<img") && page.contains("&lt;img src=x"),
        "{page}"
    );
    assert!(
        page.contains("href=\"./plain.txt\"") && page.contains("href=\"./deep/\""),
        "{page}"
    );
    assert!(!page.contains("hidden"), "{page}");
    assert_eq!(get(&gateway, "list.test", "/list").status, 301);
    assert_eq!(get(&gateway, "plain.test", "/list/").status, 404);
}

#[test]
fn a_sibling_in_the_coding_a_client_wants_is_sent() {
    let gateway = gateway(&[
        ("s.js", b"plain"),
        ("s.js.gz", b"gzipped"),
        ("s.js.br", b"brotli"),
        ("s.js.zst", b"zst"),
    ]);
    let ask = |accept: &str| {
        let fields = format!("Accept-Encoding: {accept}\r\n");
        ask(&gateway, "plain.test", "GET /s.js", &fields)
    };
    let mut tags = Vec::new();
    for (accept, coding, body) in [
        ("br, gzip, zstd", "br", "brotli"),
        ("gzip, zstd", "zstd", "zst"),
        ("gzip", "gzip", "gzipped"),
        ("identity", "", "plain"),
    ] {
        let reply = ask(accept);
        assert_eq!(text(&reply), body, "{accept}");
        assert_eq!(field(&reply, "content-encoding"), coding);
        assert_eq!(
            field(&reply, "content-type"),
            "text/javascript; charset=utf-8"
        );
        assert_eq!(field(&reply, "vary"), "Accept-Encoding");
        tags.push(field(&reply, "etag"));
    }
    tags.sort();
    tags.dedup();
    assert_eq!(tags.len(), 4, "each coding has a tag of its own");
    // A sibling older than its file holds something else.
    let file = std::fs::File::options()
        .write(true)
        .open(gateway.directory().path().join("www/s.js.gz"))
        .expect("open the sibling");
    let hour_ago = std::time::SystemTime::now() - Duration::from_secs(3600);
    file.set_modified(hour_ago).expect("make it older");
    eventually(PATIENCE, "the old sibling to be left out", || {
        (text(&ask("gzip")) != "gzipped").then_some(())
    });
}

#[test]
fn text_is_compressed_and_parts_of_it_are_not() {
    let story = "thick walls, thin walls. ".repeat(400);
    let long = story.repeat(50);
    let gateway = gateway(&[
        ("story.txt", story.as_bytes()),
        ("long.txt", long.as_bytes()),
        ("story.png", story.as_bytes()),
    ]);
    let wants = "Accept-Encoding: gzip\r\n";
    for (path, length) in [("/story.txt", story.len()), ("/long.txt", long.len())] {
        let reply = ask(&gateway, "plain.test", &format!("GET {path}"), wants);
        assert_eq!(field(&reply, "content-encoding"), "gzip", "{path}");
        assert_eq!(field(&reply, "vary"), "Accept-Encoding");
        assert!(reply.body.len() < length / 10 && reply.body.starts_with(b"\x1f\x8b"));
        let plain = get(&gateway, "plain.test", path);
        assert_ne!(field(&plain, "etag"), field(&reply, "etag"));
        assert_eq!(plain.body.len(), length);
        let tag = field(&reply, "etag");
        let fields = format!("{wants}If-None-Match: {tag}\r\n");
        let again = ask(&gateway, "plain.test", &format!("GET {path}"), &fields);
        assert_eq!(again.status, 304, "{path}");
    }
    let zstd = ask(
        &gateway,
        "plain.test",
        "GET /story.txt",
        "Accept-Encoding: gzip, zstd\r\n",
    );
    assert_eq!(field(&zstd, "content-encoding"), "zstd");
    assert!(zstd.body.starts_with(b"\x28\xb5\x2f\xfd"));
    let part = format!("{wants}Range: bytes=0-4\r\n");
    let part = ask(&gateway, "plain.test", "GET /story.txt", &part);
    assert_eq!((part.status, text(&part).as_str()), (206, "thick"));
    for path in ["/story.png", "/hello.txt"] {
        let reply = ask(&gateway, "plain.test", &format!("GET {path}"), wants);
        assert_eq!(field(&reply, "content-encoding"), "", "{path}");
    }
}

/// Text of so many bytes, each one of `letters`: no coding but that of letters
/// makes it smaller.
fn noise(bytes: usize, letters: u8) -> Vec<u8> {
    let mut state = 1_u64;
    let mut letter = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        b'0'.wrapping_add((state >> 40) as u8 % letters)
    };
    (0..bytes).map(|_| letter()).collect()
}

#[test]
fn text_is_compressed_where_that_saves_a_tenth_and_no_less() {
    // Five bits of each eight are left of the first, and all but a part of the others.
    let (saves, hardly) = (noise(59_000, 32), noise(59_000, 240));
    let large = noise(200_000, 32);
    let gateway = gateway(&[
        ("saves.css", &saves),
        ("small.css", &saves[..3_000]),
        ("large.css", &large),
        ("hardly.css", &hardly),
    ]);
    for coding in ["gzip", "zstd"] {
        for (path, length, expected) in [
            ("/saves.css", 59_000, coding),
            ("/small.css", 3_000, coding),
            ("/large.css", 200_000, coding),
            ("/hardly.css", 59_000, ""),
        ] {
            let wants = format!("Accept-Encoding: {coding}\r\n");
            let whole = format!("{path} by {coding}");
            let reply = eventually(PATIENCE, &whole, || {
                let reply = ask(&gateway, "plain.test", &format!("GET {path}"), &wants);
                // A thread that was busy makes one go out as it is.
                (field(&reply, "content-encoding") == expected).then_some(reply)
            });
            let is_smaller = reply.body.len() < length * 7 / 10;
            assert_eq!(is_smaller, !expected.is_empty(), "{whole}");
            assert_eq!(field(&reply, "vary"), "Accept-Encoding", "{whole}");
        }
    }
}

#[test]
fn what_may_not_be_read_is_forbidden() {
    let gateway = gateway(&[("locked", b"x")]);
    let path = gateway.directory().path().join("www/locked");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).expect("lock");
    // Started by root, the server is somebody else by now.
    assert_eq!(get(&gateway, "plain.test", "/locked").status, 403);
}

#[test]
fn a_directory_that_keeps_the_server_out_of_a_root_is_named_in_the_error_log() {
    let gateway = gateway(&[("locked", b"x")]);
    let above = gateway.directory().path();
    let root = above.join("www");
    let close = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("chmod");
    };
    close(&root.join("locked"), 0o000);
    assert_eq!(get(&gateway, "plain.test", "/locked").status, 403);
    assert!(
        !gateway.stderr().contains("root_denied"),
        "the root is fine"
    );
    // May be entered, but not read: a file in it is its own business.
    close(&root, 0o711);
    assert_eq!(get(&gateway, "plain.test", "/hello.txt").status, 200);
    let mut table = vec![
        (root.as_path(), 0o011, "/", "read", "o+rx"),
        (root.as_path(), 0o000, "/hello.txt", "enter", "o+x"),
    ];
    if os::process::is_root() {
        // The test itself must still come by.
        table.push((above, 0o700, "/", "enter", "o+x"));
    }
    for (closed, mode, path, verb, change) in table {
        let place = closed.display();
        let advice = format!("may not {verb} {place}: try chmod {change} {place}");
        let said = || gateway.stderr().matches(&advice).count();
        let before = said();
        close(closed, mode);
        // What was found before is used for a while.
        eventually(PATIENCE, &advice, || {
            let status = get(&gateway, "plain.test", path).status;
            (status == 403 && said() > before).then_some(())
        });
        assert!(
            gateway
                .stderr()
                .contains("warn server: the site's root cannot be opened")
        );
        close(closed, 0o755);
        eventually(PATIENCE, "an open root", || {
            (get(&gateway, "plain.test", path).status != 403).then_some(())
        });
    }
}

#[test]
fn the_advice_for_somebodys_own_directory_opens_it_to_the_server_alone() {
    let gateway = gateway(&[]);
    let root = gateway.directory().path().join("www");
    if os::process::is_root() {
        std::os::unix::fs::chown(&root, Some(12_345), Some(12_345)).expect("give away");
    }
    std::fs::set_permissions(&root, PermissionsExt::from_mode(0o600)).expect("chmod");
    let place = root.display();
    let advice = format!("&& chmod 750 {place}, or another `user`");
    eventually(PATIENCE, &advice, || {
        assert_ne!(get(&gateway, "plain.test", "/hello.txt").status, 500);
        gateway.stderr().contains(&advice).then_some(())
    });
    assert!(gateway.stderr().contains(": try chgrp "));
    assert!(!gateway.stderr().contains("o+x"));
    std::fs::set_permissions(&root, PermissionsExt::from_mode(0o755)).expect("chmod");
}

#[test]
fn a_flood_of_refusals_is_not_one_of_lines_in_the_error_log() {
    let gateway = gateway(&[]);
    let root = gateway.directory().path().join("www");
    std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o011)).expect("chmod");
    let ask = |path: &str| get(&gateway, "plain.test", path).status;
    eventually(PATIENCE, "a closed root", || {
        (ask("/") == 403).then_some(())
    });
    let (before, since) = (
        gateway.stderr().matches("root_denied").count(),
        Instant::now(),
    );
    for _ in 0..300 {
        assert_eq!(ask("/"), 403);
    }
    let seconds = 2 + usize::try_from(since.elapsed().as_secs()).expect("a few");
    gateway.wait_for_message("root_denied");
    let lines = gateway.stderr().matches("root_denied").count() - before;
    // One a second, from each worker.
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    assert!(lines <= workers * seconds, "{lines} in {seconds} s");
    std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o755)).expect("chmod");
}

#[test]
fn a_root_that_cannot_be_opened_is_named_in_the_error_log() {
    let gateway = gateway(&[]);
    let root = gateway.directory().path().join("www");
    std::fs::rename(&root, root.with_extension("away")).expect("move the root away");
    let said = format!("reason=root_missing root={}", root.display());
    // One opened before is used for a while.
    eventually(PATIENCE, &said, || {
        get(&gateway, "plain.test", "/hello.txt");
        gateway.stderr().contains(&said).then_some(())
    });
    assert_eq!(get(&gateway, "plain.test", "/hello.txt").status, 404);
}
