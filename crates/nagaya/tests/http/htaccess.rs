//! `.htaccess` files: what they keep closed, where they lead, and that they hold at once.

use std::path::Path;
use std::time::Duration;

use testkit::client::reply;
use testkit::{Gateway, Reply, eventually};

const CONFIG: &str = r#"
workers = 1
[[listen]]
address = "127.0.0.1:{port}"
[log]
access = ""
[[sites]]
hosts = ["a.test"]
root = "{dir}/site"
within = "{dir}"
htaccess = { override = ["All"] }
  [[sites.rules]]
  match = { path = "/health" }
  handler = { respond = { body = "fine" } }
[[sites]]
hosts = ["tried.test"]
root = "{dir}/site"
try = ["$path", "$path.html", "$path/", "/front.txt"]
htaccess = { override = ["All"] }
[[sites]]
hosts = ["strict.test"]
root = "{dir}/site"
htaccess = { override = ["FileInfo"], unknown = "error" }
[[sites]]
hosts = ["memory.test"]
root = "{memory}"
htaccess = { override = ["All"] }
[[sites]]
hosts = ["kept.test"]
root = "{dir}/site"
slashes = "keep"
htaccess = { override = ["All"] }
  [[sites.rules]]
  match = { path = "/closed/*" }
  deny = ["127.0.0.0/8"]
  [[sites.rules]]
  match = { path = "/empty/*" }
  handler = { respond = { body = "a rule" } }
[[sites]]
hosts = ["off.test"]
root = "{dir}/site"
"#;

/// A file system in memory, which everybody may write to.
const MEMORY: &str = "/dev/shm";

/// The site's files; each test writes its `.htaccess` files.
const FILES: [(&str, &str); 12] = [
    ("site/index.html", "start"),
    ("site/front.txt", "front"),
    ("site/plain.txt", "plain"),
    ("site/secret.html", "secret"),
    ("site/sub/page.txt", "page"),
    ("site/sub/first.txt", "first"),
    ("site/sub/deep/page.txt", "deep page"),
    ("site/closed/x.txt", "closed"),
    ("site/closed/open/x.txt", "open"),
    ("site/errors/404.html", "nothing here"),
    ("site/empty/deep/x.txt", "x"),
    ("users", "ann:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n"),
];

fn gateway(files: &[(&str, &str)]) -> Gateway {
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG);
    let builder = builder.with("memory", MEMORY);
    let directory = builder.directory().path().display().to_string();
    for (name, content) in FILES {
        builder.directory().write(name, content);
    }
    for (name, content) in files {
        let content = content.replace("{dir}", &directory);
        builder.directory().write(name, &content);
    }
    builder.start()
}

/// Asks for a path of a host, with further fields, each with its line's end.
pub(crate) fn ask(gateway: &Gateway, host: &str, path: &str, fields: &str) -> Reply {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n");
    reply(gateway.ask(request.as_bytes()))
}

/// Checks the status and, of a good one, the text.
pub(crate) fn check(gateway: &Gateway, host: &str, expected: &[(&str, u16, &str)]) {
    for (path, status, text) in expected {
        let answer = ask(gateway, host, path, "");
        let said = (answer.status, answer.text());
        assert_eq!(said.0, *status, "{host}{path}: {}", said.1);
        let is_said = text.is_empty() || said.1 == *text;
        assert!(is_said, "{host}{path}: {}", said.1);
    }
}

#[test]
fn a_directory_that_is_closed_is_closed_with_all_below_it() {
    let gateway = gateway(&[
        ("site/closed/.htaccess", "Require all denied\n"),
        ("site/closed/open/.htaccess", "Require all granted\n"),
        ("site/sub/.htaccess", "Order allow,deny\nDeny from all\n"),
    ]);
    check(
        &gateway,
        "a.test",
        &[
            ("/closed/x.txt", 403, ""),
            ("/closed/", 403, ""),
            ("/closed/none", 403, ""),
            ("/closed/open/x.txt", 200, "open"),
            ("/sub/page.txt", 403, ""),
            ("/sub/deep/page.txt", 403, ""),
            ("/plain.txt", 200, "plain"),
            ("/health", 200, "fine"),
        ],
    );
    check(&gateway, "off.test", &[("/closed/x.txt", 200, "closed")]);
}

#[test]
fn lines_about_access_that_are_not_understood_refuse_what_they_cover() {
    let gateway = gateway(&[
        (
            "site/.htaccess",
            "Frobnicate on\n<Files plain.txt>\nRequire moonphase full\n</Files>\n",
        ),
        ("site/sub/.htaccess", "Reqiure all denied\n"),
        ("site/closed/.htaccess", "Require all denied\n"),
    ]);
    check(
        &gateway,
        "a.test",
        &[
            ("/front.txt", 200, "front"),
            ("/plain.txt", 500, ""),
            ("/sub/page.txt", 500, ""),
        ],
    );
    // What is not allowed there is about access, and what is unknown refuses all.
    check(
        &gateway,
        "strict.test",
        &[("/closed/x.txt", 500, ""), ("/front.txt", 500, "")],
    );
}

#[test]
fn a_file_that_cannot_be_read_closes_its_directory() {
    let gateway = gateway(&[("site/sub/.htaccess/x", "a directory")]);
    check(
        &gateway,
        "a.test",
        &[("/sub/page.txt", 403, ""), ("/plain.txt", 200, "plain")],
    );
}

#[test]
fn rules_of_the_site_hold_for_the_path_that_files_lead_to() {
    let gateway = gateway(&[(
        "site/.htaccess",
        "RewriteEngine On\nRewriteRule ^open/(.*)$ /closed/$1 [L]\nRewriteRule ^fine/(.*)$ /sub/$1 [L]\n",
    )]);
    check(&gateway, "a.test", &[("/open/x.txt", 200, "closed")]);
    check(
        &gateway,
        "kept.test",
        &[
            ("/open/x.txt", 403, ""),
            ("/closed/x.txt", 403, ""),
            ("/fine/page.txt", 200, "page"),
            // A directory without a page, for which a rule answers.
            ("/empty/", 200, "a rule"),
            ("/sub/deep/", 403, ""),
        ],
    );
    let moved = ask(&gateway, "kept.test", "//sub", "");
    let location = moved.head.field("Location");
    assert_eq!((moved.status, location), (301, Some("/sub/")));
}

#[test]
fn a_file_that_is_being_written_opens_nothing() {
    let gateway = gateway(&[("site/sub/.htaccess", "Require all denied\n")]);
    let file = gateway.directory().path().join("site/sub/.htaccess");
    let status = || ask(&gateway, "a.test", "/sub/page.txt", "").status;
    assert_eq!(status(), 403);
    for (text, settled) in [("<Files page.txt>\nRequire all gran", 500), ("", 200)] {
        std::fs::write(&file, text).expect("a file");
        let first = status();
        assert!(first == 503 || first == settled, "{text}: {first}");
        eventually(Duration::from_secs(20), "a file that stands", || {
            (status() == settled).then_some(())
        });
    }
}

#[test]
fn the_file_that_answers_is_the_one_that_is_decided_about() {
    let gateway = gateway(&[(
        "site/.htaccess",
        "<Files secret.html>\nRequire all denied\n</Files>\n<Files index.html>\nRequire all denied\n</Files>\n",
    )]);
    check(
        &gateway,
        "tried.test",
        &[
            ("/secret", 403, ""),
            ("/secret.html", 403, ""),
            ("/", 403, ""),
            ("/none", 200, "front"),
        ],
    );
}

#[test]
fn rules_lead_to_a_front_controller_and_redirect() {
    let gateway = gateway(&[(
        "site/.htaccess",
        "RewriteEngine On\nRewriteRule ^old/(.*)$ /sub/$1 [R=301,L]\nRewriteRule ^closed/ - [F]\n\
         RewriteRule ^no-content$ - [R=204,L]\nRewriteRule ^fine$ - [R=200,L]\n\
         RewriteCond %{REQUEST_FILENAME} !-f\nRewriteCond %{REQUEST_FILENAME} !-d\nRewriteRule . /front.txt [L]\n",
    )]);
    check(
        &gateway,
        "a.test",
        &[
            ("/", 200, "start"),
            ("/plain.txt", 200, "plain"),
            ("/2026/11/a-post/", 200, "front"),
            ("/sub/none?x=y", 200, "front"),
            ("/closed/x.txt", 403, ""),
            ("/no-content", 204, ""),
            ("/fine", 200, ""),
        ],
    );
    let moved = ask(&gateway, "a.test", "/old/page.txt?a=b", "");
    assert_eq!(moved.status, 301);
    let location = moved.head.field("Location").expect("a place");
    assert!(location.ends_with("/sub/page.txt?a=b"), "{location}");
}

#[test]
fn links_are_not_followed_where_files_say_so() {
    let gateway = gateway(&[("site/sub/.htaccess", "Options -FollowSymLinks\n")]);
    let site = gateway.directory().path().join("site");
    for at in ["sub/link.txt", "link.txt"] {
        std::os::unix::fs::symlink(site.join("plain.txt"), site.join(at)).expect("a link");
    }
    check(
        &gateway,
        "a.test",
        &[
            ("/link.txt", 200, "plain"),
            ("/sub/link.txt", 403, ""),
            ("/sub/page.txt", 200, "page"),
        ],
    );
}

#[test]
fn directories_have_the_pages_and_slashes_that_files_say() {
    let gateway = gateway(&[
        ("site/sub/.htaccess", "DirectoryIndex none.html first.txt\n"),
        ("site/empty/.htaccess", "Options +Indexes\n"),
    ]);
    check(
        &gateway,
        "a.test",
        &[
            ("/sub/", 200, "first"),
            ("/empty/", 200, ""),
            ("/sub/deep/", 403, ""),
        ],
    );
    let moved = ask(&gateway, "a.test", "/sub?a=b", "");
    let location = moved.head.field("Location");
    assert_eq!((moved.status, location), (301, Some("/sub/?a=b")));
}

#[test]
fn where_files_name_pages_of_a_directory_those_of_the_site_are_not_looked_for() {
    let gateway = gateway(&[
        ("site/.htaccess", "DirectoryIndex none.html\n"),
        (
            "site/sub/.htaccess",
            "DirectoryIndex none.html first.txt\nFallbackResource /front.txt\n",
        ),
    ]);
    check(
        &gateway,
        "a.test",
        &[
            ("/", 403, ""),
            // The first one is missing, and that is answered for.
            ("/sub/", 200, "front"),
        ],
    );
}

#[test]
fn pages_that_a_directory_may_have_take_steps_of_the_same_purse() {
    let names: Vec<String> = (0..64).map(|at| format!("none{at}")).collect();
    let names = format!("DirectoryIndex {}\n", names.join(" "));
    let lines = "SetEnvIf Host x x\n".repeat(1_000);
    let asks = "AuthType Basic\nAuthName x\nAuthUserFile {dir}/users\nRequire valid-user\n";
    let section = |lines: &str| format!("{names}<Files none*>\n{lines}</Files>\n");
    let (long, asking) = (section(&lines), section(asks));
    let gateway = gateway(&[
        ("site/sub/.htaccess", &long),
        ("site/closed/.htaccess", &asking),
    ]);
    check(
        &gateway,
        "a.test",
        &[("/sub/none1", 404, ""), ("/sub/", 500, "")],
    );
    // Of many that ask for a password few have it compared.
    let wrong = "Authorization: Basic YW5uOndyb25n\r\n";
    assert_eq!(ask(&gateway, "a.test", "/closed/none1", wrong).status, 401);
    assert_eq!(ask(&gateway, "a.test", "/closed/", wrong).status, 500);
}

#[test]
fn what_rules_take_out_of_a_path_may_be_any_letters_in_a_query() {
    let rule = "RewriteEngine On\nRewriteRule ^item/(.*)$ /front.txt?name=$1 [L]\n";
    let gateway = gateway(&[("site/.htaccess", rule)]);
    let path = "/item/%E6%97%A5%E6%9C%AC";
    check(&gateway, "a.test", &[(path, 200, "front")]);
}

#[test]
fn a_type_that_is_taken_away_is_not_told() {
    let gateway = gateway(&[("site/.htaccess", "RemoveType .txt\nDefaultLanguage ja\n")]);
    let plain = ask(&gateway, "a.test", "/plain.txt", "");
    assert_eq!((plain.status, plain.text()), (200, "plain".into()));
    assert_eq!(plain.head.field("Content-Type"), None);
    assert_eq!(plain.head.field("Content-Language"), Some("ja"));
}

#[test]
fn a_type_is_told_by_the_endings_before_one_that_says_something_else() {
    let gateway = gateway(&[
        (
            "site/.htaccess",
            "RemoveType .gz\nAddEncoding gzip .gz\nAddEncoding br .br\nAddLanguage de .de\n\
             <Files kept.*>\nAddType text/x-own .js\n</Files>\n",
        ),
        ("site/x.js.gz", "x"),
        ("site/x.css.br", "x"),
        ("site/x.de.html.bz2", "x"),
        ("site/x.html.de", "x"),
        ("site/kept.js.gz", "x"),
        ("site/x.gz", "x"),
    ]);
    for (path, kind, coding) in [
        ("/x.js.gz", "text/javascript", Some("gzip")),
        ("/x.css.br", "text/css", Some("br")),
        ("/x.de.html.bz2", "application/x-bzip2", None),
        ("/x.html.de", "text/html", None),
        ("/kept.js.gz", "text/x-own", Some("gzip")),
        ("/x.gz", "", Some("gzip")),
    ] {
        let reply = ask(&gateway, "a.test", path, "");
        let said = reply.head.field("Content-Type").unwrap_or_default();
        assert_eq!(said.split(';').next(), Some(kind), "{path}");
        assert_eq!(reply.head.field("Content-Encoding"), coding, "{path}");
    }
}

#[test]
fn fields_types_and_pages_of_failures_are_as_files_say() {
    let gateway = gateway(&[(
        "site/.htaccess",
        "Header set X-Said yes\nHeader always set X-Always yes\nAddType text/x-own .txt\n\
         ErrorDocument 404 /errors/404.html\nErrorDocument 403 \"closed, sorry\"\nAcceptPathInfo On\n\
         <Files front.txt>\nRequire all denied\n</Files>\n",
    )]);
    let plain = ask(&gateway, "a.test", "/plain.txt", "");
    assert_eq!(plain.head.field("X-Said"), Some("yes"));
    assert_eq!(plain.head.field("X-Always"), Some("yes"));
    let kind = plain.head.field("Content-Type").unwrap_or_default();
    assert!(kind.starts_with("text/x-own"), "{kind}");
    check(&gateway, "a.test", &[("/plain.txt/more", 200, "plain")]);
    let moved = ask(&gateway, "a.test", "/sub", "");
    assert_eq!(moved.head.field("X-Always"), Some("yes"));
    assert_eq!((moved.status, moved.head.field("X-Said")), (301, None));
    let none = ask(
        &gateway,
        "a.test",
        "/none",
        "If-Modified-Since: Fri, 27 Nov 2099 00:00:00 GMT\r\n",
    );
    assert_eq!((none.status, none.text()), (404, "nothing here".into()));
    let closed = ask(&gateway, "a.test", "/front.txt", "");
    assert_eq!(
        (closed.status, closed.text()),
        (403, "closed, sorry".into())
    );
    assert_eq!(closed.head.field("X-Always"), Some("yes"));
    assert_eq!(closed.head.field("X-Said"), None);
}

#[test]
fn a_failure_stands_whose_page_is_sent_elsewhere_but_by_a_rule() {
    let gateway = gateway(&[
        (
            "site/.htaccess",
            "ErrorDocument 404 /none/page\nErrorDocument 403 /closed/page\nRewriteEngine On\n\
             RewriteRule ^none/page$ /sub\nRedirect 303 /closed http://b.test\n\
             <Files plain.txt>\nRequire all denied\n</Files>\n",
        ),
        (
            "site/rules/.htaccess",
            "ErrorDocument 404 /rules/away\nErrorDocument 403 /rules/none\nRewriteEngine On\n\
             RewriteRule ^away$ http://b.test/ [R=301,L]\nRewriteRule ^none$ - [G]\n\
             <Files closed.txt>\nRequire all denied\n</Files>\n",
        ),
        ("site/sub/page.txt", "sub"),
        ("site/rules/closed.txt", "closed"),
    ]);
    for (path, status, location) in [
        ("/nothing", 404, None),
        ("/plain.txt", 403, None),
        ("/none/page", 301, Some("/sub/")),
        ("/closed/page", 303, Some("http://b.test/page")),
        // What a rule says of the page it says of the request, as in Apache.
        ("/rules/nothing", 301, Some("http://b.test/")),
        ("/rules/closed.txt", 410, None),
    ] {
        let reply = ask(&gateway, "a.test", path, "");
        let said = (reply.status, reply.head.field("Location"));
        assert_eq!(said, (status, location), "{path}");
    }
}

#[test]
fn a_failure_whose_page_is_refused_has_the_head_and_the_page_of_what_was_asked() {
    let gateway = gateway(&[
        (
            "site/.htaccess",
            "ErrorDocument 403 /closed/page\nHeader always set X-Root yes\n\
             <Files front.txt>\nRequire all denied\n</Files>\n",
        ),
        (
            "site/closed/.htaccess",
            "Require all denied\nHeader always set X-Closed yes\n",
        ),
        (
            "site/sub/.htaccess",
            "FallbackResource /front.txt\nErrorDocument 403 \"of the sub\"\n\
             Header always set X-Sub yes\n",
        ),
    ]);
    let seen = |path: &str| {
        let reply = ask(&gateway, "a.test", path, "");
        let fields = ["X-Root", "X-Closed", "X-Sub"];
        (
            reply.status,
            fields.map(|name| reply.head.field(name).is_some()),
            reply.text(),
        )
    };
    let (status, fields, _) = seen("/front.txt");
    assert_eq!((status, fields), (403, [true, false, false]));
    let (status, fields, text) = seen("/sub/none");
    assert_eq!((status, fields), (403, [true, false, true]));
    assert_eq!(text, "of the sub");
}

#[test]
fn pages_that_are_not_there_set_cookies_and_end_rules_for_themselves_alone() {
    let gateway = gateway(&[
        (
            "site/.htaccess",
            "DirectoryIndex none.html page.html\nRewriteEngine On\n\
             RewriteRule none\\.html$ - [CO=seen:yes:a.test]\n\
             RewriteRule page\\.html$ /plain.txt [END]\nRewriteRule ^plain\\.txt$ - [G]\n\
             Header always append X-Said first\nHeader onsuccess set X-Said then\n",
        ),
        ("site/cookies/page.txt", "text"),
        ("site/ends/page.html", "page"),
        ("site/cookies/index.txt", "index"),
        (
            "site/cookies/.htaccess",
            "DirectoryIndex none.html index.txt\n",
        ),
    ]);
    let seen = ask(&gateway, "a.test", "/cookies/", "");
    assert_eq!((seen.status, seen.text()), (200, "index".into()));
    let cookie = seen.head.field("Set-Cookie").unwrap_or_default();
    assert!(cookie.starts_with("seen=yes"), "{cookie}");
    let said = seen.head.fields.iter().filter(|(name, _)| name == "X-Said");
    let said: Vec<&str> = said.map(|(_, value)| value.as_str()).collect();
    assert_eq!(said, ["first", "then"]);
    // What a page's rules end they end for the page alone.
    assert_eq!(ask(&gateway, "a.test", "/ends/", "").status, 410);
    assert_eq!(ask(&gateway, "a.test", "/ends/page.html", "").status, 200);
}

#[test]
fn who_is_asked_to_log_in_comes_in_with_the_right_password() {
    let gateway = gateway(&[
        (
            "site/sub/.htaccess",
            "AuthType Basic\nAuthName \"the sub\"\nAuthUserFile {dir}/users\nRequire valid-user\n",
        ),
        (
            "site/closed/.htaccess",
            "AuthType Basic\nAuthName gone\nAuthUserFile {dir}/none\nRequire valid-user\n",
        ),
    ]);
    let asked = ask(&gateway, "a.test", "/sub/page.txt", "");
    let challenge = asked.head.field("WWW-Authenticate").unwrap_or_default();
    assert_eq!(asked.status, 401);
    assert!(
        challenge.starts_with("Basic realm=\"the sub\""),
        "{challenge}"
    );
    let right = "Authorization: Basic YW5uOnNlY3JldA==\r\n";
    let wrong = "Authorization: Basic YW5uOndyb25n\r\n";
    assert_eq!(
        ask(&gateway, "a.test", "/sub/page.txt", right).text(),
        "page"
    );
    assert_eq!(ask(&gateway, "a.test", "/sub/page.txt", wrong).status, 401);
    assert_eq!(ask(&gateway, "a.test", "/closed/x.txt", right).status, 500);
}

/// A file that is written, changed or removed holds for the request that comes next.
fn check_freshness(gateway: &Gateway, (host, path): (&str, &str), file: &Path, rounds: usize) {
    for round in 0..rounds {
        let (text, status) = match round % 4 {
            0 => (Some("Require all denied\n"), 403),
            1 => (Some("Require all granted\n"), 200),
            2 => (Some("RewriteEngine on\nRewriteRule ^ - [G]\n"), 410),
            _ => (None, 200),
        };
        match text {
            Some(text) => std::fs::write(file, text).expect("a file"),
            None => std::fs::remove_file(file).expect("no file"),
        }
        let answer = ask(gateway, host, path, "");
        assert_eq!(answer.status, status, "{host}: round {round}");
    }
}

#[test]
fn what_is_written_on_a_disk_holds_for_the_request_that_comes_next() {
    let gateway = gateway(&[]);
    let file = gateway.directory().path().join("site/sub/.htaccess");
    check_freshness(&gateway, ("a.test", "/sub/page.txt"), &file, 400);
}

#[test]
fn what_is_written_in_memory_holds_for_the_request_that_comes_next() {
    let gateway = gateway(&[]);
    let name = format!("nagaya-htaccess-{}", std::process::id());
    let directory = Path::new(MEMORY).join(&name);
    std::fs::create_dir_all(&directory).expect("a directory");
    std::fs::write(directory.join("page.txt"), "page").expect("a file");
    let path = format!("/{name}/page.txt");
    check_freshness(
        &gateway,
        ("memory.test", &path),
        &directory.join(".htaccess"),
        400,
    );
    std::fs::remove_dir_all(&directory).expect("no directory");
}

/// Runs a command for the gateway's configuration: its status, and what it says and complains of.
fn run(gateway: &Gateway, words: &[&str]) -> (Option<i32>, String, String) {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_nagaya"))
        .args(words)
        .arg("-c")
        .arg(gateway.directory().path().join("nagaya.toml"))
        .output()
        .expect("the binary runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[test]
fn a_refusal_names_the_file_and_line_it_comes_of() {
    let gateway = gateway(&[
        ("site/closed/.htaccess", "# Nobody.\nRequire all denied\n"),
        ("site/sub/.htaccess", "Order deny,allow\nDeny from all\n"),
        (
            "site/sub/deep/.htaccess",
            "Satisfy any\nAuthType Basic\nAuthName a\nAuthUserFile {dir}/none\nRequire valid-user\n",
        ),
        (
            "site/empty/.htaccess",
            "RewriteEngine On\n\nRewriteRule ^x - [F]\n",
        ),
    ]);
    for (path, expected) in [
        (
            "/closed/x.txt",
            "403 (htaccess_denied): {site}/closed/.htaccess:2: Require",
        ),
        (
            "/sub/page.txt",
            "403 (htaccess_denied): {site}/sub/.htaccess:1: Order, Allow and Deny",
        ),
        (
            "/empty/x",
            "403 (htaccess_rule): {site}/empty/.htaccess:3: RewriteRule",
        ),
    ] {
        let (_, said, _) = run(
            &gateway,
            &["htaccess", "explain", &format!("http://a.test{path}")],
        );
        let site = gateway
            .directory()
            .path()
            .join("site")
            .display()
            .to_string();
        let expected = expected.replace("{site}", &site);
        assert!(said.contains(&expected), "{expected}\n{said}");
        assert_eq!(ask(&gateway, "a.test", path, "").status, 403, "{path}");
    }
}

#[test]
fn what_the_server_cannot_read_is_told_by_root() {
    if testkit::lacks_root("to read what the server cannot") {
        return;
    }
    let gateway = gateway(&[
        ("site/closed/.htaccess", "Require all granted\n"),
        (
            "site/sub/.htaccess",
            "AuthType Basic\nAuthName a\nAuthUserFile {dir}/own\nRequire valid-user\n",
        ),
        ("own", "ann:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n"),
    ]);
    for name in ["site/closed/.htaccess", "own"] {
        let path = gateway.directory().path().join(name);
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(path, mode).expect("a mode");
    }
    for (path, status, told) in [
        ("/closed/x.txt", 403, "(htaccess_unreadable)"),
        (
            "/sub/page.txt",
            500,
            "own cannot be read: permission denied",
        ),
    ] {
        assert_eq!(ask(&gateway, "a.test", path, "").status, status, "{path}");
        let (_, said, _) = run(
            &gateway,
            &["htaccess", "explain", &format!("http://a.test{path}")],
        );
        assert!(
            said.contains(&format!("{status}")) && said.contains(told),
            "{said}"
        );
    }
    let (_, _, warned) = run(&gateway, &["check"]);
    for told in [
        "closed/.htaccess: cannot be read, and refuses all below it: permission denied",
        "own cannot be read: permission denied",
    ] {
        assert!(warned.contains(told), "{told}\n{warned}");
    }
}

#[test]
fn an_explanation_names_files_lines_and_where_it_ends() {
    let gateway = gateway(&[(
        "site/.htaccess",
        "Frobnicate on\nRewriteEngine On\nRewriteCond %{REQUEST_FILENAME} !-f\nRewriteRule ^post/(.*)$ /front.txt?p=$1 [L]\n",
    )]);
    let explain = |url: &str| run(&gateway, &["htaccess", "explain", url]);
    let (status, said, complained) = explain("http://a.test/post/17");
    assert_eq!(status, Some(0), "{complained}");
    for part in [
        "/post/17",
        "line 1 is left out: there is no directive Frobnicate",
        "site/.htaccess:\n",
        "goes on at /front.txt?p=17",
        "it stands",
    ] {
        assert!(said.contains(part), "{part}\n{said}");
    }
    assert_eq!(explain("http://off.test/").0, Some(2));
    assert_eq!(explain("http://nobody.test/").0, Some(2));
}

#[test]
fn pages_of_directories_are_no_paths_that_a_request_is_sent_on_to() {
    let mut rules = "RewriteEngine On\n".to_owned();
    let mut files = Vec::new();
    for at in 0..=11 {
        let to = at + 1;
        if at < 11 {
            rules += &format!("RewriteRule ^d{at}/index.html$ /d{to}/ [L]\n");
        }
        files.push((format!("site/d{at}/index.html"), format!("page {at}")));
    }
    files.push(("site/.htaccess".to_owned(), rules));
    let files: Vec<_> = files
        .iter()
        .map(|(name, text)| (&**name, &**text))
        .collect();
    let gateway = gateway(&files);
    check(
        &gateway,
        "a.test",
        &[("/d2/", 200, "page 11"), ("/d1/", 500, "")],
    );
    let explain = |url: &str| run(&gateway, &["htaccess", "explain", url]).1;
    let ends = [
        ("/d2/", "it stands"),
        ("/d1/", "sent it elsewhere 10 times"),
    ];
    for (path, end) in ends {
        let said = explain(&format!("http://a.test{path}"));
        assert!(said.contains(end), "{path}: {said}");
    }
}

#[test]
fn access_is_decided_once_where_the_same_lines_decide_about_where_it_leads() {
    let own = "SetEnvIf Request_URI ^/(old|far|err|$) ok\nRequire env ok\nErrorDocument 403 /front.txt\n\
               RewriteEngine On\nRewriteRule ^old$ /plain.txt\nRewriteRule ^old-(.*)$ /$1\n\
               RewriteRule ^far$ /sub/page.txt\n<Files secret.html>\nHeader set X-A b\n</Files>\n";
    let gateway = gateway(&[
        ("site/.htaccess", own),
        ("site/closed/.htaccess", "Require all denied\n"),
        ("site/sub/deep/.htaccess", "Header set X-A b\n"),
    ]);
    check(
        &gateway,
        "a.test",
        &[
            ("/old", 200, "plain"),
            ("/plain.txt", 403, "front"),
            ("/far", 200, "page"),
            ("/", 200, "start"),
            ("/index.html", 403, "front"),
            // A section or a file more is another ground.
            ("/old-secret.html", 403, ""),
            ("/old-closed/x.txt", 403, ""),
            ("/old-sub/deep/page.txt", 403, ""),
        ],
    );
}

#[test]
fn access_is_decided_again_beyond_a_page_that_has_a_section_its_directory_has_not() {
    for (section, status) in [
        ("", 200),
        ("<If \"-f %{REQUEST_FILENAME}\">\n</If>\n", 403),
        ("<Files \"*.*\">\nHeader set X-A b\n</Files>\n", 403),
        ("<If \"true\">\nHeader set X-A b\n</If>\n", 200),
    ] {
        let own = "SetEnvIf Request_URI ^/shown/ ok\nRequire env ok\nRewriteEngine On\n\
                   RewriteRule ^shown/index.html$ /plain.txt\n";
        let gateway = gateway(&[
            ("site/.htaccess", &format!("{own}{section}")),
            ("site/shown/index.html", "shown"),
        ]);
        let asked = ask(&gateway, "a.test", "/shown/", "");
        assert_eq!(asked.status, status, "{section}");
        let explain = ["htaccess", "explain", "http://a.test/shown/"];
        let (_, said, complained) = run(&gateway, &explain);
        assert_eq!(said.contains("403"), status == 403, "{said}{complained}");
    }
}

/// What changes, and what a file in `hot/deep` is answered from then on.
type Change = (&'static str, fn(&Path), u16);

const CHANGES: [Change; 11] = [
    (
        "a file comes",
        |at| put(at, "hot/.htaccess", "Require all denied \n"),
        403,
    ),
    (
        "it is written anew",
        |at| put(at, "hot/.htaccess", "Require all granted\n"),
        200,
    ),
    (
        "another takes its name",
        |at| {
            put(at, "hot/.htaccess.new", "Require all denied\n");
            rename(at, "hot/.htaccess.new", "hot/.htaccess");
        },
        403,
    ),
    (
        "it goes",
        |at| std::fs::remove_file(at.join("hot/.htaccess")).expect("it is there"),
        200,
    ),
    (
        "another directory takes the place of one",
        |at| {
            rename(at, "hot", "cold");
            rename(at, "closed", "hot");
        },
        403,
    ),
    (
        "and goes again",
        |at| {
            rename(at, "hot", "closed");
            rename(at, "cold", "hot");
        },
        200,
    ),
    (
        "a link that leads nowhere comes",
        |at| std::os::unix::fs::symlink("there", at.join("hot/deep/.htaccess")).expect("a link"),
        200,
    ),
    (
        "what it leads to comes",
        |at| put(at, "hot/deep/there", "Require all denied\n"),
        403,
    ),
    (
        "a file of two names comes",
        |at| {
            std::fs::remove_file(at.join("hot/deep/.htaccess")).expect("it is there");
            put(at, "../named", "Require all granted\n");
            std::fs::hard_link(at.join("../named"), at.join("hot/.htaccess")).expect("a name");
        },
        200,
    ),
    (
        "it is written by the other",
        |at| put(at, "../named", "Require all denied \n"),
        403,
    ),
    (
        "the root has one as well",
        |at| {
            std::fs::remove_file(at.join("hot/.htaccess")).expect("it is there");
            put(at, ".htaccess", "RewriteEngine on\nRewriteRule ^ - [G]\n");
        },
        410,
    ),
];

fn put(at: &Path, name: &str, text: &str) {
    std::fs::write(at.join(name), text).expect("a file");
}

fn rename(at: &Path, from: &str, to: &str) {
    std::fs::rename(at.join(from), at.join(to)).expect("it is there");
}

#[test]
fn a_change_holds_for_the_next_request_of_a_file_that_is_asked_for_all_the_time() {
    let gateway = gateway(&[
        ("site/hot/deep/x.txt", "x"),
        ("site/closed/.htaccess", "Require all denied\n"),
        ("site/closed/deep/x.txt", "closed"),
    ]);
    let site = gateway.directory().path().join("site");
    let asked = || ask(&gateway, "a.test", "/hot/deep/x.txt", "").status;
    let mut last = 200;
    for _ in 0..2 {
        for (what, change, status) in CHANGES {
            // Until times are old enough to tell a change.
            let since = std::time::Instant::now();
            while since.elapsed() < Duration::from_millis(250) {
                assert_eq!(asked(), last, "before {what}");
            }
            change(&site);
            assert_eq!(asked(), status, "{what}");
            last = status;
        }
        std::fs::remove_file(site.join(".htaccess")).expect("it is there");
        std::fs::remove_file(site.join("hot/deep/there")).expect("it is there");
        last = 200;
    }
}

/// What becomes of a directory that asks for a password.
const GOING: [Change; 3] = [
    ("a directory goes", |at| rename(at, "hot", "gone"), 404),
    (
        "a file takes its name",
        |at| {
            rename(at, "hot", "gone");
            put(at, "hot", "a file");
        },
        404,
    ),
    (
        "one that is open takes its name",
        |at| {
            rename(at, "hot", "gone");
            rename(at, "open", "hot");
        },
        404,
    ),
];

#[test]
fn a_file_is_not_sent_once_the_directory_is_gone_that_keeps_it_closed() {
    for (what, change, status) in GOING {
        let gateway = gateway(&[
            (
                "site/hot/.htaccess",
                "AuthType Basic\nAuthName a\nAuthUserFile {dir}/users\nRequire valid-user\n",
            ),
            ("site/hot/x.txt", "x"),
            ("site/open/y.txt", "y"),
        ]);
        let site = gateway.directory().path().join("site");
        let user = "Authorization: Basic YW5uOnNlY3JldA==\r\n";
        let asked = |file: &str, fields: &str| ask(&gateway, "a.test", file, fields).status;
        let settle = |file: &str| {
            let since = std::time::Instant::now();
            while since.elapsed() < Duration::from_millis(250) {
                asked(file, user);
            }
        };
        settle("/hot/x.txt");
        assert_eq!(asked("/hot/x.txt", user), 200, "before {what}");
        assert_eq!(asked("/hot/x.txt", ""), 401, "before {what}");
        change(&site);
        assert_eq!(asked("/hot/x.txt", ""), status, "{what}");
        settle("/hot/y.txt");
        assert_eq!(asked("/hot/x.txt", ""), status, "{what}, after a while");
    }
}

#[test]
fn a_redirect_names_the_port_that_the_client_named() {
    let gateway = gateway(&[(
        "site/.htaccess",
        "Redirect /one /two\nRedirectMatch ^/three$ /four\nRewriteEngine On\nRewriteRule ^five$ /six [R]\n\
         RewriteCond %{SERVER_PORT} =8080\nRewriteRule ^port$ - [F]\n",
    )]);
    for (host, origin) in [
        ("a.test", "http://a.test"),
        ("a.test:80", "http://a.test"),
        ("a.test:8080", "http://a.test:8080"),
    ] {
        for (path, to) in [("/one", "/two"), ("/three", "/four"), ("/five", "/six")] {
            let moved = ask(&gateway, host, path, "");
            let expected = format!("{origin}{to}");
            assert_eq!(moved.head.field("Location"), Some(&*expected), "{host}");
        }
    }
    check(&gateway, "a.test:8080", &[("/port", 403, "")]);
    check(&gateway, "a.test", &[("/port", 404, "")]);
}

#[test]
fn the_page_of_an_error_has_no_age() {
    let gateway = gateway(&[(
        "site/.htaccess",
        "ErrorDocument 404 /errors/404.html\nExpiresActive On\nExpiresByType text/html \"access plus 1 hour\"\n",
    )]);
    for (path, status, age) in [
        ("/none", 404, None),
        ("/errors/404.html", 200, Some("max-age=3600")),
    ] {
        let answer = ask(&gateway, "a.test", path, "");
        let fields = ["Cache-Control", "Expires"].map(|name| answer.head.field(name));
        assert_eq!((answer.status, fields[0]), (status, age), "{path}");
        assert_eq!(fields[1].is_some(), age.is_some(), "{path}");
    }
}
