//! Rewriting by files that are there, and what a rule's groups tell back ends, seen from outside.

use std::time::Duration;

use testkit::client::reply;
use testkit::{Gateway, ScriptedUpstream, Step, eventually};

const CONFIG: &str = r#"
workers = 1
[log]
access = "{dir}/access.log"
format = "json"

[[sites]]
hosts = ["files.test"]
root = "{dir}/www"
rewrite = [
  { from = '^/index\.php$', to = "$0", last = true },
  { from = '^/(.*)$', to = "/index.php?route=$1", unless = ["file", "directory"], query = "append" },
]
  [[sites.rules]]
  match = { file = "*.php" }
  handler = { respond = { body = "index $query" } }

[[sites]]
hosts = ["both.test"]
root = "{dir}/www"
try = ["$path", "$path.html", "$path/", "/index.php"]
rewrite = [{ from = '^/(.*)$', to = "/index.php?route=$1", unless = "directory" }]
  [[sites.rules]]
  match = { file = "*.php" }
  handler = { respond = { body = "index $query" } }

[[sites]]
hosts = ["guarded.test"]
root = "{dir}/www"
  [[sites.rules]]
  match = { path = "/admin/*" }
  deny = "all"
  [[sites.rules]]
  match = { file = "*.php" }
  handler = { respond = { body = "index $query" } }
  [[sites.rules]]
  rewrite = [{ from = '^/(.*)$', to = "/index.php?route=$1", unless = ["file", "directory"], query = "append" }]

[[sites]]
hosts = ["asking.test"]
root = "{dir}/www"
  [[sites.rules]]
  match = { path = "/index.php" }
  auth = { realm = "Members", file = "{dir}/members.txt" }
  [[sites.rules]]
  match = { path = "/admin/*" }
  auth = { realm = "Admins", file = "{dir}/admins.txt" }
  rewrite = [{ from = '^/admin/(.*)$', to = "/index.php?admin=$1" }]
  [[sites.rules]]
  match = { file = "*.php" }
  handler = { respond = { body = "index $query" } }

[[sites]]
hosts = ["app.test"]
  [[sites.rules]]
  match = { path_regex = '^/api/v([0-9]+)/(.*)$' }
  request_headers = { set = { X-Version = "$1" } }
  handler = { proxy = { upstream = "http://{upstream}", path = "/version$1/$2" } }
  [[sites.rules]]
  match = { path_regex = '^/find/(.*)$' }
  handler = { proxy = { upstream = "http://{upstream}", path = "/search?q=$1" } }
"#;

/// Of the password `pw`.
const HASH: &str = "$apr1$abcdefgh$5VEbMkemELfbhC5ck.U.z1";

/// A back end that answers with what it was asked.
fn gateway() -> (ScriptedUpstream, Gateway) {
    let upstream = ScriptedUpstream::start(|seen| {
        let version = seen.head.field("x-version").unwrap_or("none");
        let body = format!("{} {version}", seen.head.line);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        vec![Step::ReadBody, Step::Send((head + &body).into_bytes())]
    });
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG);
    let directory = builder.directory();
    directory.write("www/index.php", "never shown");
    let users = |names: &[&str]| {
        names
            .iter()
            .map(|name| format!("{name}:{HASH}\n"))
            .collect()
    };
    let (members, admins): (String, String) =
        (users(&["member", "both"]), users(&["admin", "both"]));
    directory.write("members.txt", &members);
    directory.write("admins.txt", &admins);
    directory.write("www/style.css", "css");
    directory.write("www/docs/index.html", "docs");
    directory.write("www/pictures/cat.txt", "cat");
    let gateway = builder.with("upstream", upstream.address()).start();
    (upstream, gateway)
}

fn get(gateway: &Gateway, host: &str, target: &str) -> (u16, String) {
    let answer = gateway.get(host, target);
    (answer.status, answer.text())
}

#[test]
fn what_is_there_is_served_and_all_else_goes_to_the_front_controller() {
    let (_upstream, gateway) = gateway();
    for (target, status, body) in [
        ("/style.css", 200, "css"),
        ("/docs/", 200, "docs"),
        ("/docs/index.html", 200, "docs"),
        (
            "/blog/hello%20world?page=2",
            200,
            "index route=blog/hello%20world&page=2",
        ),
        ("/missing.css", 200, "index route=missing.css"),
        ("/index.php?a", 200, "index a"),
        ("/index.php/more", 200, "index "),
    ] {
        assert_eq!(
            get(&gateway, "files.test", target),
            (status, body.to_owned()),
            "{target}"
        );
    }
    // A directory stands there: without an index it is not the front controller's.
    assert_eq!(get(&gateway, "files.test", "/pictures/").0, 404);
    assert_eq!(get(&gateway, "files.test", "/docs").0, 301);
    let log = gateway.directory().path().join("access.log");
    let told = r#""rewritten":"/index.php?route=blog/hello%20world&page=2""#;
    eventually(Duration::from_secs(60), "the record", || {
        let log = std::fs::read_to_string(&log).unwrap_or_default();
        log.contains(told).then_some(())
    });
}

#[test]
fn a_directory_stands_where_it_is_whatever_else_is_tried() {
    let (_upstream, gateway) = gateway();
    for (target, body) in [
        ("/pictures/", "index "),
        ("/pictures", "index "),
        ("/docs/", "docs"),
        ("/style.css", "index route=style.css"),
        ("/none", "index route=none"),
    ] {
        assert_eq!(get(&gateway, "both.test", target).1, body, "{target}");
    }
}

#[test]
fn who_keeps_the_asked_path_is_asked_and_who_keeps_the_new_one() {
    let (_upstream, gateway) = gateway();
    for (user, admin, index) in [
        // member, admin, both: each with the password `pw`.
        ("bWVtYmVyOnB3", 401, 200),
        ("YWRtaW46cHc=", 401, 401),
        ("Ym90aDpwdw==", 200, 200),
    ] {
        for (target, status) in [("/admin/x", admin), ("/index.php", index)] {
            let request = format!(
                "GET {target} HTTP/1.1\r\nHost: asking.test\r\nAuthorization: Basic {user}\r\n\r\n"
            );
            let answer = reply(gateway.ask(request.as_bytes()));
            assert_eq!(answer.status, status, "{user} {target}");
        }
    }
    assert_eq!(get(&gateway, "asking.test", "/admin/x").0, 401);
}

#[test]
fn a_front_controller_on_the_last_rule_leads_nobody_past_the_others() {
    let (_upstream, gateway) = gateway();
    for (target, status) in [("/admin/users", 403), ("/admin/", 403), ("/style.css", 200)] {
        assert_eq!(get(&gateway, "guarded.test", target).0, status, "{target}");
    }
    let blog = get(&gateway, "guarded.test", "/blog/hello?page=2");
    assert_eq!(blog, (200, "index route=blog/hello&page=2".to_owned()));
}

#[test]
fn a_back_end_is_asked_for_what_the_groups_say() {
    let (_upstream, gateway) = gateway();
    for (target, asked) in [
        ("/api/v2/users?x=1", "GET /version2/users?x=1 HTTP/1.1 2"),
        ("/api/v10/a%20b%3Fc", "GET /version10/a%20b%3Fc HTTP/1.1 10"),
        (
            "/find/a&b=c%25?x=1",
            "GET /search?q=a%26b%3Dc%25 HTTP/1.1 none",
        ),
    ] {
        assert_eq!(
            get(&gateway, "app.test", target),
            (200, asked.to_owned()),
            "{target}"
        );
    }
    let dots = get(&gateway, "app.test", "/api/v1/..%2f");
    assert_eq!(dots.0, 400, "{dots:?}");
}
