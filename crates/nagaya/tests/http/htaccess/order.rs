//! `.htaccess` files and what else a site says of a request: whose word comes first, and what counts.

use testkit::Gateway;

use super::ask;

const CONFIG: &str = r#"
workers = 1
[[sites]]
hosts = ["open.test"]
root = "{dir}/site"
within = "{dir}"
htaccess = { override = ["All"] }
[[sites]]
hosts = ["kept-out.test"]
root = "{dir}/site"
within = "{dir}"
htaccess = { override = ["All"] }
  [[sites.rules]]
  match = { file = "*.cgi" }
  deny = ["192.0.2.0/24"]
  [[sites.rules]]
  match = { path = "/closed/*" }
  deny = ["127.0.0.0/8"]
  [[sites.rules]]
  match = { header = { User-Agent = "bad*" } }
  deny = ["127.0.0.0/8"]
[[sites]]
hosts = ["guessed.test"]
root = "{dir}/site"
within = "{dir}"
htaccess = { override = ["All"] }
limits = [{ key = "client", rate = "3/h" }]
[[sites]]
hosts = ["moved.test"]
root = "{dir}/site"
htaccess = { override = ["All"] }
limits = [{ key = "client", rate = "3/h" }]
[[sites]]
hosts = ["missing.test"]
root = "{dir}/site"
htaccess = { override = ["All"] }
limits = [{ key = "client", rate = "3/h" }]
[[sites]]
hosts = ["led.test"]
root = "{dir}/site"
htaccess = { override = ["All"] }
  [[sites.rules]]
  match = { path = "/sub/first.txt" }
  limits = [{ key = "client", rate = "2/h" }]
  handler = { respond = { body = "a rule" } }
[[sites]]
hosts = ["steps.test"]
root = "{dir}/site"
htaccess = { override = ["All"] }
  [[sites.rules]]
  match = { path_regex = '^/r(?!x)(a+)+\1*$' }
  deny = ["192.0.2.0/24"]
"#;

const FILES: [(&str, &str); 8] = [
    ("site/index.html", "start"),
    ("site/plain.txt", "plain"),
    ("site/x.inc", "a secret"),
    ("site/sub/index.html", "sub"),
    ("site/sub/first.txt", "first"),
    ("site/closed/x.txt", "closed"),
    ("site/errors/404.html", "nothing here"),
    ("users", "ann:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n"),
];

fn gateway(files: &[(&str, &str)]) -> Gateway {
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG);
    let directory = builder.directory().path().display().to_string();
    for (name, content) in FILES.iter().chain(files) {
        let content = content.replace("{dir}", &directory);
        builder.directory().write(name, &content);
    }
    builder.start()
}

/// Asks for paths of a host one after the other, and checks each status.
fn check(gateway: &Gateway, host: &str, expected: &[(&str, u16)]) {
    for (path, status) in expected {
        let answer = ask(gateway, host, path, "");
        assert_eq!(
            answer.status,
            *status,
            "{host}{path}: {:?} {}",
            answer.head.field("Location"),
            answer.text()
        );
    }
}

#[test]
fn whom_the_site_keeps_out_gets_nothing_that_files_answer() {
    let gateway = gateway(&[(
        "site/closed/.htaccess",
        "Redirect /closed/moved http://elsewhere.test/\nErrorDocument 403 theirs\n\
         <Files x.txt>\nAuthType Basic\nAuthName x\nAuthUserFile {dir}/users\nRequire valid-user\n</Files>\n",
    )]);
    check(
        &gateway,
        "open.test",
        &[("/closed/moved", 302), ("/closed/x.txt", 401)],
    );
    for path in ["/closed/moved", "/closed/x.txt", "/closed/none"] {
        let answer = ask(&gateway, "kept-out.test", path, "");
        assert_eq!(answer.status, 403, "{path}");
        assert!(!answer.text().contains("theirs"), "{path}");
        let said = ["Location", "WWW-Authenticate"].map(|name| answer.head.field(name));
        assert_eq!(said, [None, None], "{path}");
    }
}

#[test]
fn files_take_no_field_away_by_which_the_site_keeps_somebody_out() {
    let gateway = gateway(&[(
        "site/.htaccess",
        "RequestHeader set User-Agent good\nRewriteEngine On\nRewriteRule ^moved$ /plain.txt [R,L]\n",
    )]);
    let bad = "User-Agent: bad one\r\n";
    for (fields, status) in [(bad, 403), ("User-Agent: fine\r\n", 200)] {
        let answer = ask(&gateway, "kept-out.test", "/plain.txt", fields);
        assert_eq!(answer.status, status, "{fields}");
    }
    assert_eq!(ask(&gateway, "kept-out.test", "/moved", bad).status, 403);
}

#[test]
fn passwords_that_files_ask_for_are_guessed_no_faster_than_the_site_lets_come() {
    let gateway = gateway(&[(
        "site/sub/.htaccess",
        "AuthType Basic\nAuthName sub\nAuthUserFile {dir}/users\nRequire valid-user\n",
    )]);
    let right = "Authorization: Basic YW5uOnNlY3JldA==\r\n";
    let wrong = "Authorization: Basic YW5uOndyb25n\r\n";
    let status = |fields| ask(&gateway, "guessed.test", "/sub/first.txt", fields).status;
    assert_eq!(
        [status(""), status(wrong), status(right)],
        [401, 401, 200],
        "each counts once"
    );
    assert_eq!([status(wrong), status(right), status("")], [429; 3]);
}

#[test]
fn what_files_answer_counts_in_the_rates_of_the_site() {
    let gateway = gateway(&[(
        "site/.htaccess",
        "Redirect /old /plain.txt\nErrorDocument 404 /errors/404.html\n",
    )]);
    check(
        &gateway,
        "moved.test",
        &[("/old", 302), ("/old", 302), ("/old", 302), ("/old", 429)],
    );
    // A request counts once, whatever page it comes to.
    for status in [404, 404, 404, 429] {
        let answer = ask(&gateway, "missing.test", "/none", "");
        assert_eq!(answer.status, status);
        assert_eq!(answer.text() == "nothing here", status == 404);
    }
}

#[test]
fn limits_of_the_path_that_files_lead_to_count() {
    let gateway = gateway(&[(
        "site/.htaccess",
        "RewriteEngine On\nRewriteRule ^alias$ /sub/first.txt [L]\n",
    )]);
    let alias = ask(&gateway, "led.test", "/alias", "");
    assert_eq!((alias.status, alias.text()), (200, "first".into()));
    check(
        &gateway,
        "led.test",
        &[
            ("/sub/first.txt", 200),
            ("/alias", 429),
            ("/sub/first.txt", 429),
            ("/plain.txt", 200),
        ],
    );
}

#[test]
fn rules_that_redirect_leave_the_page_of_a_directory_alone() {
    let gateway = gateway(&[
        (
            "site/.htaccess",
            "RewriteEngine On\nRewriteRule ^index\\.html$ / [R=301,L]\n",
        ),
        (
            "site/sub/.htaccess",
            "RewriteEngine On\nRewriteRule ^index\\.html$ - [F,NS]\n\
             RewriteCond %{IS_SUBREQ} =true\nRewriteRule ^index\\.html$ first.txt [L]\n",
        ),
    ]);
    let start = ask(&gateway, "open.test", "/", "");
    assert_eq!((start.status, start.text()), (200, "start".into()));
    let moved = ask(&gateway, "open.test", "/index.html", "");
    assert_eq!(moved.status, 301);
    let place = moved.head.field("Location").unwrap_or_default();
    assert!(
        place.starts_with("http://open.test") && place.ends_with('/'),
        "{place}"
    );
    assert!(!place.contains("index"), "{place}");
    let page = ask(&gateway, "open.test", "/sub/", "");
    assert_eq!((page.status, page.text()), (200, "first".into()));
    check(&gateway, "open.test", &[("/sub/index.html", 403)]);
}

#[test]
fn a_directory_without_its_slash_is_refused_where_it_is_sent_nowhere() {
    let gateway = gateway(&[("site/.htaccess", "DirectorySlash Off\n")]);
    check(&gateway, "open.test", &[("/sub", 403), ("/sub/", 200)]);
}

#[test]
fn cookies_of_a_rule_are_set_wherever_it_leads() {
    let gateway = gateway(&[(
        "site/.htaccess",
        "RewriteEngine On\nRewriteRule ^seen$ /plain.txt [L,CO=seen:yes:open.test]\n",
    )]);
    let answer = ask(&gateway, "open.test", "/seen", "");
    let cookie = answer.head.field("Set-Cookie").unwrap_or_default();
    assert!(cookie.starts_with("seen=yes"), "{cookie}");
    assert_eq!(answer.text(), "plain");
}

#[test]
fn files_of_programs_that_the_site_does_not_have_are_not_shown() {
    for line in [
        "AddHandler cgi-script .inc\n",
        "AddHandler application/x-httpd-php .inc\n",
        "AddType application/x-httpd-php .inc\n",
        "AddHandler application/x-httpd-php .inc\nphp_flag engine off\n",
        "AddHandler cgi-script .inc\nphp_flag engine off\n",
        "Options +ExecCGI\n<Files x.inc>\nSetHandler cgi-script\n</Files>\n",
    ] {
        let gateway = gateway(&[("site/.htaccess", line)]);
        let answer = ask(&gateway, "open.test", "/x.inc", "");
        assert_eq!(answer.status, 404, "{line}");
        assert!(!answer.text().contains("secret"), "{line}");
        check(&gateway, "open.test", &[("/plain.txt", 200)]);
    }
}

#[test]
fn a_failure_by_an_expression_that_is_given_up_has_the_page_that_files_say() {
    let gateway = gateway(&[("site/.htaccess", "ErrorDocument 500 /errors/404.html\n")]);
    let path = format!("/r{}!", "a".repeat(40));
    let answer = ask(&gateway, "steps.test", &path, "");
    assert_eq!((answer.status, answer.text()), (500, "nothing here".into()));
}

#[test]
fn check_reads_no_file_that_the_server_would_not() {
    let gateway = gateway(&[]);
    let directory = gateway.directory().path();
    let outside = std::env::temp_dir().join(format!("nagaya-outside-{}", std::process::id()));
    std::fs::write(&outside, "Frobnicate a secret\n").expect("a file");
    let link = directory.join("site/sub/.htaccess");
    std::os::unix::fs::symlink(&outside, &link).expect("a link");
    let fifo = directory.join("site/errors/.htaccess");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(made.expect("mkfifo runs").success());
    let (_, _, said) = gateway.command(&["check"]);
    std::fs::remove_file(&outside).expect("no file");
    assert!(!said.contains("Frobnicate"), "{said}");
    for file in [&link, &fifo] {
        let told = format!("{}: cannot be read, and refuses all", file.display());
        assert!(said.contains(&told), "{said}");
    }
}
