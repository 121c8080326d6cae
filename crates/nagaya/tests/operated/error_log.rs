//! What the error log says of refused requests, and what goes to a site's own.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;

use rustix::process::Signal;
use testkit::client::reply;
use testkit::{Gateway, PATIENCE, ScriptedUpstream, Step, eventually, free_port};

fn status(gateway: &Gateway, host: &str, path: &str, fields: &str) -> u16 {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n");
    reply(gateway.ask(request.as_bytes())).status
}

fn await_text(path: &Path, part: &str) -> String {
    eventually(PATIENCE, &format!("`{part}` in {}", path.display()), || {
        let text = fs::read_to_string(path).unwrap_or_default();
        text.contains(part).then_some(text)
    })
}

#[test]
fn a_refusal_is_told_once_for_each_file_and_reason() {
    let config = r#"
        [caps]
        body_bytes = 10
        [[sites]]
        hosts = ["a"]
        root = "{dir}/www"
          [[sites.rules]]
          match = { path = "/secret*" }
          deny = "all"
    "#;
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), config);
    let directory = builder.directory();
    directory.write("www/secret.txt", "");
    directory.write("outside", "");
    let www = directory.path().join("www");
    symlink("../outside", www.join("outside")).unwrap();
    symlink("gone", www.join("dangling")).unwrap();
    let gateway = builder.start();
    let causes = [
        (
            "/secret.txt",
            "",
            403,
            "client_denied",
            "rule=\"rule 1\" path=/secret.txt",
        ),
        (
            "/secret%20",
            "",
            403,
            "client_denied",
            "rule=\"rule 1\" path=\"/secret \"",
        ),
        ("/outside", "", 404, "symlink_outside", "file={www}/outside"),
        (
            "/dangling",
            "",
            404,
            "symlink_dangling",
            "file={www}/dangling",
        ),
        (
            "/x",
            "Content-Length: 11\r\n",
            413,
            "body_too_long",
            "path=/x detail=\"11 bytes, and 10 may come here (caps.body_bytes, LimitRequestBody)\"",
        ),
    ];
    for _ in 0..5 {
        for (path, fields, expected, _, _) in causes {
            assert_eq!(status(&gateway, "a", path, fields), expected, "{path}");
        }
        assert_eq!(status(&gateway, "a", "/none", ""), 404);
    }
    for (_, _, status, reason, place) in causes {
        let place = place.replace("{www}", &www.display().to_string());
        let told = format!("site=a status={status} reason={reason} {place}\n");
        gateway.wait_for_message(&told);
        assert_eq!(gateway.stderr().matches(&told).count(), 1, "{told}");
    }
    let log = gateway.stderr();
    let told = log.matches("request refused").count();
    assert_eq!(told, causes.len(), "{log}");
    assert!(!log.contains("no_file"), "{log}");
}

#[test]
fn a_flood_of_causes_is_counted_and_not_told() {
    let config = r#"
        workers = 1
        [[sites]]
        hosts = ["a"]
        rules = [{ deny = "all", handler = { respond = { body = "" } } }]
    "#;
    let gateway = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), config).start();
    let mut client = gateway.client();
    let long = "x".repeat(4_000);
    assert_eq!(status(&gateway, "a", &format!("/{long}"), ""), 403);
    gateway.wait_for_message("path=/x");
    assert!(!gateway.stderr().contains(&long[..1_024]));
    for number in 0..200 {
        let request = format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(reply(client.ask(request.as_bytes())).status, 403);
    }
    gateway.wait_for_message("requests refused for further causes count=");
    assert_eq!(gateway.stderr().matches("request refused").count(), 64);
}

#[test]
fn a_site_has_an_error_log_of_its_own() {
    let text = r#"
        [[sites]]
        hosts = ["own"]
        log = { error = "{dir}/$site.error.log" }
          [[sites.rules]]
          match = { path = "/denied" }
          deny = "all"
          [[sites.rules]]
          match = { path = "/limited" }
          limits = [{ name = "few", rate = "1/d" }]
          [[sites.rules]]
          match = { path = "/down" }
          handler = { proxy = "http://127.0.0.1:{nobody}" }
          [[sites.rules]]
          handler = { respond = { body = "" } }
        [[sites]]
        hosts = ["other"]
          [[sites.rules]]
          deny = "all"
          handler = { respond = { body = "" } }
    "#;
    let gateway = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), text)
        .with("nobody", free_port())
        .start();
    let log = gateway.directory().path().join("own.error.log");
    for (host, path, expected) in [
        ("own", "/denied", 403),
        ("other", "/denied", 403),
        ("own", "/down", 502),
        ("own", "/limited", 200),
        ("own", "/limited", 503),
    ] {
        assert_eq!(status(&gateway, host, path, ""), expected, "{host}{path}");
    }
    // What its tenant can mend stands there alone, the operator's in both.
    await_text(
        &log,
        "site=own status=403 reason=client_denied rule=\"rule 1\" path=/denied",
    );
    await_text(&log, "reason=upstream_unreachable");
    let own = await_text(&log, "1 refused");
    assert!(own.lines().all(|line| line.contains(" server: ")), "{own}");
    assert!(!own.contains("site=other"), "{own}");
    gateway.wait_for_message("site=other status=403");
    gateway.wait_for_message("reason=upstream_unreachable");
    gateway.wait_for_message("1 refused");
    assert!(
        !gateway.stderr().contains("site=own status=403"),
        "{}",
        gateway.stderr()
    );
    // Moved away, it goes on in a new one.
    fs::rename(&log, log.with_extension("1")).unwrap();
    gateway.signal(Signal::USR1);
    gateway.wait_for_message("logs opened again");
    assert_eq!(status(&gateway, "own", "/down", ""), 502);
    await_text(&log, "reason=upstream_unreachable");
    let mode = fs::metadata(&log).unwrap().mode();
    assert_eq!(mode & 0o7777, 0o640);
}

#[test]
fn the_error_log_of_a_site_is_made_its_users() {
    if testkit::lacks_root("to give a file away") {
        return;
    }
    let text = r#"
        [[sites]]
        hosts = ["own"]
        user = "nobody"
        log = { access = "{dir}/access.log", error = "{dir}/{name}.log" }
        rules = [{ deny = "all", handler = { respond = { body = "" } } }]
    "#;
    let builder = Gateway::with_config(
        env!("CARGO_BIN_EXE_nagaya"),
        &text.replace("nobody", "noone"),
    );
    let (ended, _, told) = builder.with("name", "error").run(&["check"]);
    let why = "no error log can be given to user `noone`";
    assert!(!ended.success() && told.contains(why), "{told}");
    for name in ["error", "$site"] {
        let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), text).with("name", name);
        let gateway = builder.start();
        let log = |name: &str| gateway.directory().path().join(name);
        assert_eq!(status(&gateway, "own", "/", ""), 403);
        let error = log(&format!("{}.log", name.replace("$site", "own")));
        await_text(&error, "client_denied");
        let (error, access) = (fs::metadata(&error), fs::metadata(log("access.log")));
        let error = error.unwrap();
        assert_eq!((error.uid(), error.mode() & 0o7777), (65_534, 0o640));
        assert_eq!(access.unwrap().uid(), 0);
    }
}

#[test]
fn each_failure_of_a_back_end_is_told_to_the_site_and_to_the_operator() {
    let upstream = ScriptedUpstream::start(|_| {
        vec![Step::ReadBody, Step::Send(b"nonsense".into()), Step::Close]
    });
    let text = r#"
        workers = 1
        [upstreams.app]
        servers = ["{upstream}"]
        [[sites]]
        hosts = ["own"]
        log = { error = "{dir}/error.log" }
        rules = [{ handler = { proxy = "app" } }]
    "#;
    let gateway = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), text)
        .with("upstream", upstream.address())
        .start();
    let mut client = gateway.client();
    for _ in 0..20 {
        let asked = client.ask(b"GET / HTTP/1.1\r\nHost: own\r\n\r\n");
        assert_eq!(reply(asked).status, 502);
    }
    let log = gateway.directory().path().join("error.log");
    let count = |text: &str| text.matches("request failed").count();
    eventually(PATIENCE, "all lines", || {
        let own = fs::read_to_string(&log).unwrap_or_default();
        (count(&own) == 20 && count(&gateway.stderr()) == 20).then_some(())
    });
}

#[test]
fn each_site_is_told_of_all_lines_of_a_file_that_others_have_too() {
    let config = r#"
        workers = 1
        [[sites]]
        hosts = ["a"]
        root = "{dir}/a"
        htaccess = { override = ["All"] }
        [[sites]]
        hosts = ["b"]
        root = "{dir}/b"
        htaccess = { override = ["All"] }
    "#;
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), config);
    // More lines together than one site may have told in a second.
    for (host, level) in ["a", "b"]
        .into_iter()
        .flat_map(|host| (0..5).map(move |at| (host, at)))
    {
        let lines: String = (0..60).map(|at| format!("Frob{level}x{at} on\n")).collect();
        let file = format!("{host}/{}.htaccess", "d/".repeat(level));
        builder.directory().write(&file, lines);
    }
    let gateway = builder.start();
    let told = |host: &str| {
        let log = gateway.stderr();
        let site = format!("site={host} ");
        let lines = log.lines().filter(|told| told.contains("is not obeyed"));
        lines.filter(|told| told.contains(&site)).count()
    };
    for host in ["a", "b"] {
        eventually(PATIENCE, "all lines to be told", || {
            status(&gateway, host, "/d/d/d/d/", "");
            (told(host) >= 300).then_some(())
        });
    }
    status(&gateway, "a", "/d/d/d/d/", "");
    assert_eq!((told("a"), told("b")), (300, 300), "{}", gateway.stderr());
}
