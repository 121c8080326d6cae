//! PHP as it really runs: php-fpm behind the gateway.

use std::time::{Duration, Instant};

use crate::fixtures::php::{Bed, Wish, bed, bed_of, get, plain_bed, shown};
use testkit::client::{Body, reply};
use testkit::php::Listen;
use testkit::{PATIENCE, RawClient, eventually};

#[test]
fn a_page_comes_over_a_unix_socket_and_over_tcp() {
    for listen in [Listen::Unix, Listen::Tcp] {
        let files = [("index.php", "<?php echo 'hello ', $_SERVER['REMOTE_ADDR'];")];
        let wish = Wish {
            listen,
            files: &files,
            ..Wish::default()
        };
        let Some(bed) = bed(&wish) else { return };
        let answer = bed.get("/");
        assert_eq!(
            (answer.status, answer.text().as_str()),
            (200, "hello 127.0.0.1")
        );
        let content_type = answer.head.field("Content-Type").unwrap();
        assert!(content_type.starts_with("text/html"), "{content_type}");
        assert_eq!(answer.head.count("Content-Length"), 1);
    }
}

#[test]
fn a_connection_to_php_is_kept() {
    let files = [("index.php", "<?php echo getmypid();")];
    let wish = Wish {
        processes: 4,
        files: &files,
        ..Wish::default()
    };
    let Some(bed) = bed(&wish) else { return };
    let mut client = bed.gateway.client();
    let mut pids = Vec::new();
    for _ in 0..50 {
        client.send(&get("/"));
        pids.push(reply(client.read_reply(Body::Framed)).text());
    }
    // A busy machine may have the gateway give a slow first answer's connection up, not each.
    pids.dedup();
    assert!(pids.len() < 10, "one process after another: {pids:?}");
}

#[test]
fn two_megabytes_arrive_as_they_were_sent() {
    let Some(bed) = plain_bed() else { return };
    let body: Vec<u8> = (0..2 << 20)
        .map(|at: usize| (at.wrapping_mul(2_654_435_761) >> 11) as u8)
        .collect();
    let sum = "#md5";
    let mut sums = Vec::new();
    for framing in ["length", "chunks"] {
        let mut client = bed.gateway.client().with_deadline(PATIENCE);
        client.send(
            b"POST /?up HTTP/1.1\r\nHost: app.test\r\nContent-Type: application/octet-stream\r\n",
        );
        match framing {
            "length" => {
                client.send(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
                client.send(&body);
            }
            _ => {
                client.send(b"Transfer-Encoding: chunked\r\n\r\n");
                for piece in body.chunks(70_000) {
                    client.send(format!("{:x}\r\n", piece.len()).as_bytes());
                    client.send(piece);
                    client.send(b"\r\n");
                }
                client.send(b"0\r\n\r\n");
            }
        }
        let answer = shown(&reply(client.read_reply(Body::Framed)));
        assert_eq!(
            answer.get("#length"),
            Some(&body.len().to_string()),
            "{framing}"
        );
        sums.push(answer.get(sum).cloned().unwrap());
    }
    assert_eq!(sums[0], sums[1]);
    // As browsers send files.
    let begin = "--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a\"\r\n\r\n";
    let form = [begin.as_bytes(), &body[..1 << 20], b"\r\n--b--\r\n"].concat();
    let mut client = bed.gateway.client().with_deadline(PATIENCE);
    client.send(format!("POST / HTTP/1.1\r\nHost: app.test\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: {}\r\n\r\n", form.len()).as_bytes());
    client.send(&form);
    let answer = shown(&reply(client.read_reply(Body::Framed)));
    let file = answer.get("#file").unwrap();
    assert!(file.starts_with("1048576 "), "{file}");
}

#[test]
fn two_megabytes_go_out_as_they_were_printed() {
    let files = [(
        "index.php",
        "<?php for ($at = 0; $at < 32; $at++) echo str_repeat(chr(97 + $at % 26), 65536);",
    )];
    let Some(bed) = bed_of(&files) else { return };
    let answer = bed.get("/");
    let expected = (0..32).flat_map(|at: u8| vec![b'a' + at % 26; 65_536]);
    assert!(answer.complete && answer.body == expected.collect::<Vec<u8>>());
}

#[test]
fn errors_of_php_go_to_the_log() {
    let files = [(
        "index.php",
        "<?php error_log(\"so\\x1b[1m wrong\"); echo 'page';",
    )];
    let Some(bed) = bed_of(&files) else { return };
    assert_eq!(bed.get("/").text(), "page");
    bed.gateway.wait_for_message("wrong");
    assert!(!bed.gateway.stderr().contains('\x1b'));
    assert!(
        bed.gateway.stderr().contains("index.php"),
        "which program it was"
    );
}

#[test]
fn what_every_page_warns_of_is_logged_once() {
    let files = [("index.php", "<?php error_log($_GET['say']); echo 'page';")];
    let wish = Wish {
        workers: 2,
        files: &files,
        ..Wish::default()
    };
    let Some(bed) = bed(&wish) else { return };
    for _ in 0..50 {
        assert_eq!(bed.get("/?say=deprecated").text(), "page");
    }
    bed.get("/?say=enough");
    bed.gateway.wait_for_message("enough");
    let log = bed.gateway.stderr();
    assert_eq!(log.matches("deprecated").count(), 1, "{log}");
}

/// A page that never ends, and one that does.
const STUCK: &[(&str, &str)] = &[
    ("stuck.php", "<?php while (true) sleep(100);"),
    ("index.php", "<?php echo 'page';"),
];

/// What `nagaya status --json` says of the only upstream.
fn upstream_status(bed: &Bed) -> String {
    let status = bed.gateway.command(&["status", "--json"]).1;
    let at = status.find("\"upstream\":\"php\"").unwrap();
    status[at..].split('}').next().unwrap().to_owned()
}

fn number_of(status: &str, key: &str) -> Option<f64> {
    let (_, rest) = status.split_once(&format!("\"{key}\":"))?;
    rest.split(',').next()?.parse().ok()
}

#[test]
fn a_pool_whose_processes_are_all_stuck_is_seen_while_they_are() {
    let wish = Wish {
        files: STUCK,
        silence: "300s",
        ..Wish::default()
    };
    let Some(bed) = bed(&wish) else { return };
    let ask = |path| {
        let mut client = bed.gateway.client();
        client.send(&get(path));
        client
    };
    let taken = |count: f64| {
        eventually(PATIENCE, "requests, and how old the first is", || {
            let status = upstream_status(&bed);
            let are_there = number_of(&status, "in_flight") == Some(count);
            let oldest = number_of(&status, "oldest_s").is_some_and(|oldest| oldest > 0.0);
            (are_there && oldest).then_some(())
        });
    };
    let clients = ["/stuck.php"; 2].map(ask);
    taken(2.0);
    let waiting = ask("/");
    taken(3.0);
    drop(waiting);
    drop(clients);
    eventually(PATIENCE, "nothing in flight", || {
        let status = upstream_status(&bed);
        let is_idle = number_of(&status, "in_flight") == Some(0.0);
        (is_idle && status.contains("\"oldest_s\":null")).then_some(())
    });
}

#[test]
fn a_pool_that_answers_nobody_is_told_of_once_with_what_ends_its_pages() {
    let wish = Wish {
        workers: 2,
        files: STUCK,
        silence: "1s",
        ..Wish::default()
    };
    let Some(bed) = bed(&wish) else { return };
    let ask = |path| {
        let mut client = bed.gateway.client().with_deadline(PATIENCE);
        client.send(&get(path));
        client
    };
    let stuck = ["/stuck.php"; 2].map(ask);
    eventually(PATIENCE, "both processes to be taken", || {
        (number_of(&upstream_status(&bed), "requests") == Some(2.0)).then_some(())
    });
    let others = ["/"; 4].map(ask);
    for mut client in stuck.into_iter().chain(others) {
        assert_eq!(reply(client.read_reply(Body::Framed)).status, 504);
    }
    bed.gateway.wait_for_message("request_terminate_timeout");
    assert_eq!(bed.get("/").status, 504);
    let log = bed.gateway.stderr();
    assert_eq!(log.matches("request_terminate_timeout").count(), 1, "{log}");
    assert!(
        log.contains("answers nobody") && log.contains(bed.php.address()),
        "{log}"
    );
    let status = upstream_status(&bed);
    assert_eq!(number_of(&status, "timeouts"), Some(7.0), "{status}");
}

#[test]
fn a_status_a_redirect_and_cookies_are_as_php_sets_them() {
    let files = [(
        "index.php",
        "<?php switch ($_GET['do'] ?? '') {
          case 'gone': http_response_code(410); echo 'gone'; break;
          case 'away': header('Location: /there'); break;
          case 'moved': header('Location: http://other.test/', true, 301); break;
          case 'cookies': setcookie('a', '1'); setcookie('b', '2'); break;
          case 'none': http_response_code(204); break;
          case 'fatal': nothing_of_that_name(); }",
    )];
    let Some(bed) = bed_of(&files) else { return };
    for (what, status, location) in [
        ("gone", 410, None),
        ("away", 302, Some("/there")),
        ("moved", 301, Some("http://other.test/")),
        ("cookies", 200, None),
        ("none", 204, None),
        ("fatal", 500, None),
    ] {
        let answer = bed.get(&format!("/?do={what}"));
        assert_eq!(
            (answer.status, answer.head.field("Location")),
            (status, location),
            "{what}"
        );
        assert_eq!(
            answer.head.count("Set-Cookie"),
            if what == "cookies" { 2 } else { 0 }
        );
    }
    let mut client = bed.gateway.client();
    client.send(b"HEAD /?do=gone HTTP/1.1\r\nHost: app.test\r\n\r\n");
    assert_eq!(reply(client.read_reply(Body::Never)).status, 410);
    client.send(&get("/?do=gone"));
    assert_eq!(reply(client.read_reply(Body::Framed)).text(), "gone");
}

/// Prints which file runs and what it was asked for.
const WHICH: &str = "<?php echo basename(__DIR__), '/', basename(__FILE__), ' ', $_SERVER['REQUEST_URI'], ' ', $_SERVER['PATH_INFO'] ?? '-', ' ', $_SERVER['QUERY_STRING'];";

/// A site laid out as WordPress is.
const WORDPRESS: &[(&str, &str)] = &[
    ("wp/index.php", WHICH),
    ("wp/wp-login.php", WHICH),
    ("wp/wp-admin/index.php", WHICH),
    ("wp/wp-admin/admin-ajax.php", WHICH),
    ("wp/wp-includes/version.php", WHICH),
    ("wp/wp-content/themes/t/style.css", "css"),
    ("wp/wp-content/uploads/2024/a.png", "png"),
    ("wp/wp-content/uploads/2024/evil.php", WHICH),
    ("wp/wp-config.php.bak", "secret"),
    ("wp/.htaccess", "secret"),
];

/// Paths of it, and what comes of them; ROOT is the name of the site's directory.
const WAYS: &[(&str, u16, &str)] = &[
    ("/", 200, "ROOT/index.php / - "),
    ("/?p=1", 200, "ROOT/index.php /?p=1 - p=1"),
    (
        "/2024/05/a-post/",
        200,
        "ROOT/index.php /2024/05/a-post/ - ",
    ),
    (
        "/2024/05/a-post/?preview=1",
        200,
        "ROOT/index.php /2024/05/a-post/?preview=1 - preview=1",
    ),
    (
        "/index.php/2024/post",
        200,
        "ROOT/index.php /index.php/2024/post /2024/post ",
    ),
    ("/wp-login.php", 200, "ROOT/wp-login.php /wp-login.php - "),
    ("/wp-admin/", 200, "wp-admin/index.php /wp-admin/ - "),
    (
        "/wp-admin/admin-ajax.php?action=x",
        200,
        "wp-admin/admin-ajax.php /wp-admin/admin-ajax.php?action=x - action=x",
    ),
    ("/wp-content/themes/t/style.css", 200, "css"),
    ("/wp-content/uploads/2024/a.png", 200, "png"),
    ("/wp-content/uploads/2024/evil.php", 403, "no\n"),
    ("/wp-content/uploads/2024/evil.php/x.jpg", 403, "no\n"),
    (
        "/wp-content/uploads/2024/none.png",
        200,
        "ROOT/index.php /wp-content/uploads/2024/none.png - ",
    ),
    (
        "/wp-json/wp/v2/posts",
        200,
        "ROOT/index.php /wp-json/wp/v2/posts - ",
    ),
    (
        "/%E6%97%A5%E6%9C%AC/",
        200,
        "ROOT/index.php /%E6%97%A5%E6%9C%AC/ - ",
    ),
];

const NO_UPLOADED_PROGRAMS: &str = r#"
  [[sites.rules]]
  match = { file = "*/wp-content/uploads/*.php" }
  handler = { respond = { status = 403, body = "no\n" } }
"#;

#[test]
fn a_site_laid_out_as_wordpress_finds_its_way() {
    let wish = Wish {
        rules: NO_UPLOADED_PROGRAMS,
        files: &[],
        ..Wish::default()
    };
    let Some(bed) = bed(&wish) else { return };
    for (name, content) in WORDPRESS {
        bed.site.write(name.trim_start_matches("wp/"), content);
    }
    let name = bed
        .site
        .path()
        .file_name()
        .unwrap()
        .to_string_lossy()
        .into_owned();
    let root = |text: &str| text.replace("ROOT", &name);
    for (path, status, body) in WAYS {
        let answer = bed.get(path);
        assert_eq!(
            (answer.status, answer.text()),
            (*status, root(body)),
            "{path}"
        );
    }
    let answer = bed.get("/wp-admin");
    assert_eq!(answer.status, 301);
    assert!(
        answer
            .head
            .field("Location")
            .unwrap()
            .ends_with("/wp-admin/")
    );
    for path in ["/wp-config.php.bak", "/.htaccess", "/wp-admin/.git/config"] {
        assert!(!bed.get(path).text().contains("secret"), "{path}");
    }
}

#[test]
fn no_spelling_runs_what_is_not_a_program_or_shows_one() {
    let files = [
        (
            "x.php",
            "<?php echo 'ran ', basename($_SERVER['SCRIPT_FILENAME']);",
        ),
        ("image.jpg", "<?php echo 'ran an image';"),
        ("x.php.bak", "<?php secret"),
        (".env.php", "<?php echo 'ran hidden';"),
        ("upper.PHP", "<?php echo 'ran upper case';"),
        ("d.php/inner.txt", "<?php echo 'ran text';"),
    ];
    let wish = Wish {
        files: &files,
        rules: "",
        ..Wish::default()
    };
    let Some(bed) = bed(&wish) else { return };
    for (path, status, body) in [
        ("/x.php", 200, "ran x.php"),
        ("/x.php/", 200, "ran x.php"),
        ("/x.php/y.jpg", 200, "ran x.php"),
        ("/x.php/y.php", 200, "ran x.php"),
        ("/image.jpg/x.php", 404, ""),
        ("/image.jpg/.php", 404, ""),
        ("/image.jpg%00.php", 400, ""),
        ("/X.PHP", 404, ""),
        ("/x.PHP", 404, ""),
        ("/x.php.", 404, ""),
        ("/x.php%20", 404, ""),
        ("/x.php.bak", 404, ""),
        ("/.env.php", 404, ""),
        ("/upper.PHP", 404, ""),
        ("/x%2ephp", 200, "ran x.php"),
        ("//x.php", 200, "ran x.php"),
        ("/d.php/../x.php", 200, "ran x.php"),
        ("/none.php/x.php", 404, ""),
        ("/x.php%0aX: y", 400, ""),
    ] {
        let answer = bed.get(path);
        let said = answer.text();
        assert_eq!(answer.status, status, "{path}: {said}");
        assert!(body.is_empty() || said == body, "{path}: {said}");
        assert!(
            !said.contains("<?php") && !said.contains("ran an image"),
            "{path}"
        );
    }
    assert!(
        bed.get("/image.jpg").text().contains("<?php"),
        "an image is an image"
    );
}

/// Pages that keep a process busy, tell how it was, and leave traces.
const BUSY: &[(&str, &str)] = &[
    ("index.php", "<?php echo getmypid();"),
    (
        "large.php",
        "<?php $begun = microtime(true); echo str_repeat('x', 2 << 20); flush(); file_put_contents(__DIR__ . '/out/took', microtime(true) - $begun . \"\\n\", FILE_APPEND);",
    ),
    (
        "upload.php",
        "<?php $n = strlen(file_get_contents('php://input')); file_put_contents(__DIR__ . '/out/took', microtime(true) - $_SERVER['REQUEST_TIME_FLOAT'] . \"\\n\", FILE_APPEND); echo $n;",
    ),
    (
        "long.php",
        "<?php touch(__DIR__ . '/out/begun'); for ($at = 0; $at < 6000; $at++) { echo '.'; @ob_flush(); flush(); usleep(10000); } touch(__DIR__ . '/out/ended');",
    ),
];

fn busy_bed(processes: usize, workers: usize) -> Option<Bed> {
    let wish = Wish {
        processes,
        workers,
        files: BUSY,
        ..Wish::default()
    };
    let bed = bed(&wish)?;
    // Pages run as nobody where the test runs as root.
    let out = bed.site.path().join("out");
    std::fs::create_dir(&out).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(&out, mode).unwrap();
    Some(bed)
}

/// How long each page was at it, in seconds, as it says itself.
fn took(bed: &Bed, count: usize) -> Vec<f64> {
    eventually(PATIENCE, "pages to have run", || {
        let text = std::fs::read_to_string(bed.site.path().join("out/took")).unwrap_or_default();
        let took: Vec<f64> = text.lines().map(|line| line.parse().unwrap()).collect();
        (took.len() == count).then_some(took)
    })
}

#[test]
fn slow_senders_hold_no_process() {
    let Some(bed) = busy_bed(1, 1) else { return };
    let head = b"POST /upload.php HTTP/1.1\r\nHost: app.test\r\nContent-Length: 30000\r\n\r\n";
    let mut senders: Vec<RawClient> = (0..8)
        .map(|_| bed.gateway.client().with_deadline(PATIENCE))
        .collect();
    senders.iter_mut().for_each(|sender| sender.send(head));
    // Thirty pieces each; between them the only process answers others.
    for _ in 0..30 {
        senders
            .iter_mut()
            .for_each(|sender| sender.send(&[b'x'; 1_000]));
        assert_eq!(bed.get("/").status, 200);
    }
    for sender in &mut senders {
        assert_eq!(reply(sender.read_reply(Body::Framed)).text(), "30000");
    }
    let longest = took(&bed, 8).into_iter().fold(0.0, f64::max);
    assert!(longest < 15.0, "a page waited {longest} s for its body");
}

#[test]
fn slow_readers_hold_no_process() {
    let Some(bed) = busy_bed(1, 1) else { return };
    let mut readers: Vec<RawClient> = (0..8)
        .map(|_| RawClient::connect_narrow(bed.gateway.address()).with_deadline(PATIENCE))
        .collect();
    readers
        .iter_mut()
        .for_each(|reader| reader.send(&get("/large.php")));
    // Nobody reads, yet each page is done and the only process free.
    took(&bed, 8);
    assert_eq!(bed.get("/").status, 200);
    for reader in &mut readers {
        let answer = reply(reader.read_reply(Body::Framed));
        assert!(answer.complete && answer.body.len() == 2 << 20);
    }
}

#[test]
fn who_leaves_frees_the_process() {
    let Some(bed) = busy_bed(1, 1) else { return };
    let begun = bed.site.path().join("out/begun");
    let mut client = bed.gateway.client();
    client.send(&get("/long.php"));
    eventually(PATIENCE, "the page to begin", || {
        begun.exists().then_some(())
    });
    drop(client);
    // The page would go on for a minute.
    let asked = Instant::now();
    let mut other = bed.gateway.client().with_deadline(PATIENCE);
    other.send(&get("/"));
    assert_eq!(reply(other.read_reply(Body::Framed)).status, 200);
    assert!(asked.elapsed() < Duration::from_secs(25));
    assert!(!bed.site.path().join("out/ended").exists());
}

#[test]
fn one_process_is_shared_by_two_workers() {
    for listen in [Listen::Unix, Listen::Tcp] {
        let wish = Wish {
            listen,
            processes: 1,
            workers: 2,
            files: BUSY,
            ..Wish::default()
        };
        let Some(bed) = bed(&wish) else { return };
        // Fresh connections spread over both workers; each would keep the only process for itself.
        for _ in 0..40 {
            assert_eq!(bed.get("/").status, 200);
        }
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let address = bed.gateway.address();
                std::thread::spawn(move || {
                    for _ in 0..20 {
                        let mut client = RawClient::connect(address).with_deadline(PATIENCE);
                        client.send(&get("/"));
                        assert_eq!(reply(client.read_reply(Body::Framed)).status, 200);
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    }
}

#[test]
fn processes_that_end_after_each_request_cost_no_request() {
    let wish = Wish {
        settings: "pm.max_requests = 1",
        ..Wish::default()
    };
    let Some(bed) = bed(&wish) else { return };
    let mut client = bed.gateway.client().with_deadline(PATIENCE);
    let mut last = Instant::now();
    for number in 0..100 {
        let body =
            format!("POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 4\r\n\r\n{number:04}");
        client.send(body.as_bytes());
        let answer = reply(client.read_reply(Body::Framed));
        // On a machine that stood still meanwhile, the connection to the process that has ended
        // was idle for so long that it counted as one that is kept.
        let stood_still = last.elapsed() >= Duration::from_millis(500);
        last = Instant::now();
        if stood_still && answer.status == 502 {
            continue;
        }
        assert_eq!(answer.status, 200, "the {number}th");
        assert_eq!(shown(&answer).get("#length").unwrap(), "4");
    }
}

#[test]
fn a_php_that_is_gone_is_502_and_where_it_was_is_not_told() {
    let Some(bed) = plain_bed() else { return };
    assert_eq!(bed.get("/").status, 200);
    let Bed { gateway, php, site } = bed;
    drop(php);
    let answer = reply(gateway.ask(&get("/")));
    assert_eq!(answer.status, 502);
    assert!(!answer.text().contains("php.sock"));
    gateway.wait_for_message("php.sock");
    drop(site);
}
