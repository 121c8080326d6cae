//! The example scripts do what their first lines say, served by the configuration beside them.
//!
//! Ports and the socket of php-fpm are the test's own; nothing else of the examples is changed,
//! but for numbers where a test could not wait for them.

use std::fs::{self};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use crate::fixtures::files::{ask, field, get};
use testkit::client::{Body, reply};
use testkit::gateway::Builder;
use testkit::php::Listen;
use testkit::temp::copy;
use testkit::{
    Gateway, Outcome, PATIENCE, PhpFpm, RedisServer, Reply, ScriptedUpstream, Step, a_redis,
    eventually,
};

const KEY: &str = "a key for the examples";

/// `4102444800 /downloads/report.txt` signed with [`KEY`] by another program; likewise below.
const SIGNATURE: &str = "0af6dc393f36b991ed4ee239044e376477cd904e55e7ea7c354c0c27540d8a2b";
const SIGNATURE_OF_2001: &str = "29053cdf770de3d7b470c6addf6e9edae408cbe4692e131cb15a09eb594d58c0";

#[test]
fn check_accepts_the_configuration_of_the_examples() {
    let (status, _, said) = example(&[]).run(&["check"]);
    assert!(status.success(), "{said}");
}

#[test]
fn every_example_is_served_and_told_of() {
    let (config, readme) = (read("nagaya.toml"), read("README.md"));
    let mut count = 0;
    for name in scripts() {
        assert!(
            config.contains(&format!("\"{name}\"")),
            "{name} is not served"
        );
        let told = name.split('/').next().unwrap_or(&name);
        assert!(
            readme.contains(&format!("({told}")),
            "{name} is not told of"
        );
        let compiles = Command::new(env!("CARGO_BIN_EXE_nagaya"))
            .args(["script", "check"])
            .arg(examples().join(&name))
            .output()
            .expect("the binary runs");
        let said = String::from_utf8_lossy(&compiles.stderr);
        assert!(compiles.status.success(), "{name}: {said}");
        count += 1;
    }
    assert_eq!(count, 14, "ten scripts, and the four of the access limiter");
}

#[test]
fn the_commands_shown_are_answered() {
    let gateway = example(&[]).start();
    let readme = read("README.md");
    let commands = readme.lines().filter(|line| line.starts_with("curl "));
    let mut tried = 0;
    for line in commands {
        let line = line.replace("127.0.0.1:8080", &gateway.address().to_string());
        let command = line.replacen("curl ", "curl -sS --fail ", 1);
        let output = Command::new("sh").args(["-c", &command]).output();
        let output = output.expect("sh runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command}: {said}");
        assert!(!output.stdout.is_empty(), "{command}");
        tried += 1;
    }
    assert_eq!(tried, 3);
}

#[test]
fn maintenance_closes_a_site_to_all_but_operators() {
    let gateway = example(&[]).start();
    let host = "maintenance.localhost";
    let page = gateway.directory().path().join("site/maintenance.html");
    assert_eq!(get(&gateway, host, "/").status, 200);
    fs::write(&page, "<p>Back soon.</p>\n").expect("write a page");
    for path in ["/", "/ja/", "/maintenance.html", "/nowhere"] {
        let reply = get(&gateway, host, path);
        assert_eq!(
            (reply.status, &*reply.text()),
            (503, "<p>Back soon.</p>\n"),
            "{path}"
        );
        assert_eq!(field(&reply, "Retry-After"), "600");
        assert_eq!(field(&reply, "Content-Type"), "text/html; charset=utf-8");
    }
    let operator = from(&gateway, host, "192.0.2.7");
    assert!(operator.text().contains("An example"), "{operator:?}");
    assert_eq!(from(&gateway, host, "192.0.2.8").status, 503);
    fs::remove_file(&page).expect("remove a page");
    assert_eq!(get(&gateway, host, "/").status, 200);
}

#[test]
fn a_canary_gets_its_share_and_those_with_its_cookie() {
    let (stable, canary) = (
        ScriptedUpstream::fixed("stable"),
        ScriptedUpstream::fixed("canary"),
    );
    let changes = [
        ("127.0.0.1:9001", stable.address().to_string()),
        ("127.0.0.1:9002", canary.address().to_string()),
    ];
    let gateway = example(&changes).start();
    let host = "canary.localhost";
    let release = |fields: &str| ask(&gateway, host, "GET /", fields).text();
    assert_eq!(release("Cookie: a=b; canary=on\r\n"), "canary");
    assert_eq!(release("Cookie: canary=off\r\n"), "stable");
    // Those of 254 addresses whose checksum is among the lowest five of a hundred.
    let drawn = || -> Vec<u8> {
        let ask = |last: &u8| from(&gateway, host, &format!("192.0.2.{last}")).text() == "canary";
        (1..255).filter(ask).collect()
    };
    let expected = [26, 80, 104, 124, 128, 174, 182, 188, 195, 202, 229, 251];
    assert_eq!(drawn(), expected);
    let forced = "X-Forwarded-For: 192.0.2.26\r\nCookie: canary=off\r\n";
    assert_eq!(release(forced), "stable");
}

#[test]
fn an_applications_fields_are_put_in_order() {
    let app = ScriptedUpstream::start(|seen| {
        let status = if seen.head.line.contains("/fails") {
            "500 No"
        } else {
            "302 Go"
        };
        let fields = "Content-Length: 0\r\nX-Powered-By: PHP/8.2\r\nX-Runtime: 0.1\r\nCache-Control: max-age=60\r\n\
                      Set-Cookie: a=1; Path=/\r\nSet-Cookie: b=2; httponly; SameSite=Strict\r\n\
                      Location: http://app.internal:8000/new?x=1\r\n";
        vec![Step::Send(
            format!("HTTP/1.1 {status}\r\n{fields}\r\n").into_bytes(),
        )]
    });
    let gateway = example(&[("127.0.0.1:9001", app.address().to_string())]).start();
    let reply = get(&gateway, "headers.localhost", "/");
    assert_eq!(reply.status, 302);
    assert_eq!(
        reply.head.count("X-Powered-By") + reply.head.count("X-Runtime"),
        0
    );
    assert_eq!(field(&reply, "Location"), "/new?x=1");
    assert_eq!(field(&reply, "Cache-Control"), "max-age=60");
    let cookies = reply.head.fields.iter();
    let cookies = cookies.filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"));
    let cookies: Vec<&str> = cookies.map(|(_, value)| value.as_str()).collect();
    let expected = [
        "a=1; Path=/; HttpOnly; SameSite=Lax",
        "b=2; httponly; SameSite=Strict",
    ];
    assert_eq!(cookies, expected);
    let failed = get(&gateway, "headers.localhost", "/fails");
    assert_eq!(
        (failed.status, &*field(&failed, "Cache-Control")),
        (500, "no-store")
    );
}

#[test]
fn a_flooded_host_is_turned_away_and_its_neighbours_are_not() {
    let gateway = example(&[]).start();
    let flooded = "dos.localhost";
    let refused = eventually(PATIENCE, "a host to be refused", || {
        let reply = get(&gateway, flooded, "/");
        (reply.status != 200).then_some(reply)
    });
    assert_eq!(refused.status, 503);
    let seconds: u32 = field(&refused, "Retry-After").parse().expect("seconds");
    assert!((1..=30).contains(&seconds), "{seconds}");
    assert_eq!(get(&gateway, "neighbour.dos.localhost", "/").status, 200);
    gateway.wait_for_message("dos_detector: dos.localhost had more than 100 requests in 10 s");
}

#[test]
fn a_flooded_host_is_served_again_after_a_while() {
    let builder = example(&[]);
    let numbers = [
        ("threshold = 100", "threshold = 1"),
        ("window = 10", "window = 2"),
        ("ban = 30", "ban = 1"),
    ];
    let mut script = read("dos_detector.rb");
    for (there, here) in numbers {
        assert!(script.contains(there), "{there}");
        script = script.replace(there, here);
    }
    builder.directory().write("dos_detector.rb", script);
    let gateway = builder.start();
    for (wanted, what) in [(503, "a refusal"), (200, "an end of the refusals")] {
        eventually(PATIENCE, what, || {
            (get(&gateway, "dos.localhost", "/").status == wanted).then_some(())
        });
    }
}

#[test]
fn the_front_page_leads_to_the_visitors_language() {
    let gateway = example(&[]).start();
    let host = "language.localhost";
    let cases = [
        ("", "/ja/"),
        ("Accept-Language: en\r\n", "/en/"),
        ("Accept-Language: en-GB, ja;q=0.9\r\n", "/en/"),
        ("Accept-Language: fr, en;q=0.2 , ja;q=0.7\r\n", "/ja/"),
        ("Accept-Language: ja;q=0, EN;q=0.1\r\n", "/en/"),
        ("Accept-Language: fr, de\r\n", "/ja/"),
        ("Accept-Language: ,;q=,=;;q\r\n", "/ja/"),
        ("Accept-Language: ja\r\nCookie: language=en\r\n", "/en/"),
        (
            "Accept-Language: en\r\nCookie: language=evil%0d%0a\r\n",
            "/en/",
        ),
    ];
    for (fields, place) in cases {
        let reply = ask(&gateway, host, "GET /", fields);
        assert_eq!(
            (reply.status, &*field(&reply, "Location")),
            (302, place),
            "{fields:?}"
        );
        assert_eq!(field(&reply, "Vary"), "Accept-Language, Cookie");
    }
    assert!(get(&gateway, host, "/en/").text().contains("Welcome"));
    assert_eq!(with_body(&gateway, host, "POST /", "form").status, 405);
}

#[test]
fn a_file_is_for_those_with_a_signed_link() {
    let gateway = example(&[]).start();
    let status = |path: &str| get(&gateway, "signed.localhost", path).status;
    let link = |file: &str, expires: &str, signature: &str| {
        status(&format!(
            "/downloads/{file}?expires={expires}&signature={signature}"
        ))
    };
    let right = format!("/downloads/report.txt?expires=4102444800&signature={SIGNATURE}");
    let reply = get(&gateway, "signed.localhost", &right);
    assert_eq!(reply.status, 200);
    assert!(reply.text().starts_with("A report"), "{reply:?}");
    assert_eq!(link("report.txt", "1000000000", SIGNATURE_OF_2001), 410);
    assert_eq!(link("report.txt", "4102444801", SIGNATURE), 403);
    assert_eq!(link("report.txt", "4102444800", &SIGNATURE[1..]), 403);
    assert_eq!(link("other.txt", "4102444800", SIGNATURE), 403);
    assert_eq!(link("report.txt", "", ""), 403);
    assert_eq!(status("/downloads/report.txt"), 403);
    assert_eq!(status("/"), 200);
}

#[test]
fn no_file_is_given_away_where_no_key_is_set() {
    let gateway = example(&[]).env("SIGNING_KEY", "").start();
    let reply = get(&gateway, "signed.localhost", "/downloads/report.txt");
    assert_eq!(reply.status, 500);
    gateway.wait_for_message("SIGNING_KEY has to be set");
}

#[test]
fn a_rack_application_answers() {
    let gateway = example(&[]).start();
    let host = "rack.localhost";
    let first = get(&gateway, host, "/app/");
    assert_eq!(first.status, 200);
    let expected = "Hello, 127.0.0.1. This page was asked for 1 times.\n";
    assert_eq!(first.text(), expected);
    assert_eq!(field(&first, "Content-Type"), "text/plain; charset=utf-8");
    assert!(
        field(&first, "X-Runtime").parse::<f64>().is_ok(),
        "{first:?}"
    );
    assert!(get(&gateway, host, "/app/").text().contains("2 times"));
    let shouted = with_body(&gateway, host, "POST /app/shout", "how are you?");
    assert_eq!(shouted.text(), "HOW ARE YOU?");
    let missing = get(&gateway, host, "/app/other");
    assert_eq!(
        (missing.status, &*missing.text()),
        (404, "There is no /app/other.\n")
    );
}

#[test]
fn notes_are_kept_by_a_json_api() {
    let gateway = example(&[]).start();
    let host = "json.localhost";
    let put = |path: &str, body: &str| with_body(&gateway, host, &format!("PUT {path}"), body);
    let says = |reply: Reply| (reply.status, reply.text());
    let line = |text: &str| format!("{text}\n");
    let note = r#"{"text":"雨","tags":[1,2.5,null,true]}"#;
    assert_eq!(says(get(&gateway, host, "/notes")), (200, line("[]")));
    assert_eq!(says(put("/notes/b", note)), (201, line(note)));
    assert_eq!(says(put("/notes/a", "[]")), (201, line("[]")));
    assert_eq!(says(put("/notes/a", "7")), (200, line("7")));
    let kept = get(&gateway, host, "/notes/b");
    assert_eq!(field(&kept, "Content-Type"), "application/json");
    assert_eq!(says(kept), (200, line(note)));
    assert_eq!(
        says(get(&gateway, host, "/notes")),
        (200, line(r#"["a","b"]"#))
    );
    assert_eq!(
        says(ask(&gateway, host, "DELETE /notes/a", "")),
        (204, String::new())
    );
    for (start, status) in [
        ("DELETE /notes/a", 404),
        ("GET /notes/a", 404),
        ("HEAD /notes/b", 200),
    ] {
        assert_eq!(ask(&gateway, host, start, "").status, status, "{start}");
    }
    let broken = put("/notes/c", "{\"text\": ");
    assert_eq!(broken.status, 400);
    assert!(broken.text().starts_with("{\"error\":\""), "{broken:?}");
    assert_eq!(put("/notes", "1").status, 400);
    assert_eq!(put(&format!("/notes/{}", "x".repeat(101)), "1").status, 400);
    let refused = with_body(&gateway, host, "POST /notes", "1");
    assert_eq!(
        (refused.status, &*field(&refused, "Allow")),
        (405, "GET, HEAD, PUT, DELETE")
    );
}

#[test]
fn a_host_is_forwarded_to_where_redis_says() {
    let Some(mut redis) = a_redis() else { return };
    let (first, second) = (
        ScriptedUpstream::fixed("first"),
        ScriptedUpstream::fixed("second"),
    );
    let builder = example(&[("127.0.0.1:9001", second.address().to_string())]);
    let gateway = builder
        .env("ROUTES_REDIS", redis.address().to_string())
        .start();
    let set = |redis: &RedisServer, host: &str, route: &str| {
        let key = format!("route:{host}.routes.localhost");
        assert_eq!(redis.command(&["SET", &key, route]), "OK");
    };
    let served = |host: &str| {
        let reply = get(&gateway, &format!("{host}.routes.localhost"), "/");
        (reply.status, reply.text())
    };
    set(&redis, "shop", &first.address().to_string());
    set(&redis, "blog", "stable");
    set(&redis, "odd", "192.0.2.1:80");
    assert_eq!(served("shop"), (200, "first".to_owned()));
    assert_eq!(served("blog"), (200, "second".to_owned()));
    assert_eq!(
        served("odd").0,
        503,
        "not among the addresses that are allowed"
    );
    assert_eq!(served("nobody").0, 503);
    gateway.wait_for_message("no route:nobody.routes.localhost");
    redis.stop();
    assert_eq!(served("shop"), (200, "first".to_owned()));
    gateway.wait_for_message("the last route of shop.routes.localhost is used");
    assert_eq!(served("nobody").0, 503);
    redis.restart();
    set(&redis, "shop", "stable");
    eventually(PATIENCE, "the new route", || {
        (served("shop").1 == "second").then_some(())
    });
}

#[test]
fn a_customer_gets_as_many_places_as_were_paid_for() {
    let arrived = Arc::new(AtomicBool::new(false));
    let may_go = Arc::new(AtomicBool::new(false));
    let (is_there, goes) = (Arc::clone(&arrived), Arc::clone(&may_go));
    let app = ScriptedUpstream::start(move |seen| {
        if seen.head.line.contains("/hold") {
            is_there.store(true, SeqCst);
            until(&goes, "the end of the hold");
        }
        vec![Step::reply(200, "served")]
    });
    let gateway = example(&[("127.0.0.1:9001", app.address().to_string())]).start();
    let asked = |key: &str, path: &str| {
        let fields = format!("X-Api-Key: {key}\r\n");
        ask(&gateway, "plans.localhost", &format!("GET {path}"), &fields)
    };
    assert_eq!(get(&gateway, "plans.localhost", "/").status, 403);
    assert_eq!(asked("key-of-nobody", "/").status, 403);
    let mut held = gateway.client().with_deadline(PATIENCE);
    held.send(
        b"GET /hold HTTP/1.1\r\nHost: plans.localhost\r\nX-Api-Key: key-of-a-visitor\r\n\r\n",
    );
    until(&arrived, "a request that is held");
    let refused = asked("key-of-a-visitor", "/");
    assert_eq!(
        (refused.status, &*field(&refused, "Retry-After")),
        (429, "1")
    );
    assert_eq!(asked("key-of-a-customer", "/").status, 200);
    may_go.store(true, SeqCst);
    assert_eq!(reply(held.read_reply(Body::Framed)).status, 200);
    eventually(PATIENCE, "the place to be free again", || {
        (asked("key-of-a-visitor", "/").status == 200).then_some(())
    });
}

#[test]
fn a_third_request_for_a_busy_page_is_refused() {
    let Some(php) = PhpFpm::start(Listen::Unix, 4, "") else {
        return;
    };
    for server in ["nginx", "apache"] {
        let changes = [
            ("unix:/run/php/php-fpm.sock", php.address().to_owned()),
            ("[scripts]", format!("[scripts]\nserver = \"{server}\"")),
        ];
        let builder = example(&changes);
        let site = builder
            .directory()
            .path()
            .join("site")
            .display()
            .to_string();
        let page = format!("<?php while (!file_exists('{site}/go')) usleep(20000); echo 'loaded';");
        builder.directory().write("site/slow.php", page);
        limit_a_page(&builder.start(), server);
    }
}

/// Two requests are held by a page, a third is refused; when they have gone, a fourth is served.
fn limit_a_page(gateway: &Gateway, server: &str) {
    let request = b"GET /slow.php HTTP/1.1\r\nHost: limiter.localhost\r\n\r\n";
    let file = gateway.directory().path().join("site/slow.php");
    let file = file.display();
    let mut clients: Vec<_> = (1..=2)
        .map(|count| {
            let mut client = gateway.client().with_deadline(PATIENCE);
            client.send(request);
            gateway.wait_for_message(&format!("access_limiter: file:{file} counter:{count}"));
            client
        })
        .collect();
    let third = get(gateway, "limiter.localhost", "/slow.php");
    assert_eq!(third.status, 503, "{server}");
    gateway.wait_for_message(&format!("access_limiter: file:{file} counter:3"));
    gateway.wait_for_message(&format!(
        "access_limiter: file:{file} reached threshold: 2: return 503"
    ));
    gateway.directory().write("site/go", "");
    for client in &mut clients {
        let reply = client.read_reply(Body::Framed);
        assert!(
            matches!(&reply, Outcome::Reply(reply) if reply.body == b"loaded"),
            "{server}: {reply:?}"
        );
    }
    gateway.wait_for_message(&format!("access_limiter_end: file:{file} counter:0"));
    let fourth = get(gateway, "limiter.localhost", "/slow.php");
    assert_eq!(
        (fourth.status, &*fourth.text()),
        (200, "loaded"),
        "{server}"
    );
}

/// The examples in a directory of their own, with changes to their configuration.
fn example(changes: &[(&str, String)]) -> Builder {
    let mut config = read("nagaya.toml").replacen("127.0.0.1:8080", "127.0.0.1:{port}", 2);
    for (there, here) in changes {
        assert!(config.contains(there), "{there}");
        config = config.replace(there, here);
    }
    // A busy machine takes its time.
    let config = config.replacen("[scripts]\n", "[scripts]\ncpu = \"1s\"\n", 1);
    let config = format!("workers = 2\ntrusted_proxies = [\"127.0.0.1\"]\n{config}");
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), &config);
    let directory = builder.directory().path().to_owned();
    copy(&examples(), &directory);
    builder.env("SIGNING_KEY", KEY)
}

fn until(flag: &AtomicBool, what: &str) {
    eventually(PATIENCE, what, || flag.load(SeqCst).then_some(()));
}

/// Asks for the front page as a client of this address, told by a proxy that is believed.
fn from(gateway: &Gateway, host: &str, client: &str) -> Reply {
    ask(
        gateway,
        host,
        "GET /",
        &format!("X-Forwarded-For: {client}\r\n"),
    )
}

fn with_body(gateway: &Gateway, host: &str, start: &str, body: &str) -> Reply {
    let length = body.len();
    let head = format!("{start} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n");
    match gateway.ask(format!("{head}{body}").as_bytes()) {
        Outcome::Reply(reply) => reply,
        other => panic!("{host} {start}: {other:?}"),
    }
}

/// Names of all scripts.
fn scripts() -> Vec<String> {
    let mut names = Vec::new();
    for place in ["", "access_limiter"] {
        let entries = fs::read_dir(examples().join(place)).expect("a directory of this project");
        for entry in entries.flatten() {
            let name = Path::new(place).join(entry.file_name());
            if name.extension().is_some_and(|it| it == "rb") {
                names.push(name.display().to_string());
            }
        }
    }
    names
}

fn read(name: &str) -> String {
    let path = examples().join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn examples() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.expect("crates/nagaya is two levels deep")
        .join("examples/scripts")
}
