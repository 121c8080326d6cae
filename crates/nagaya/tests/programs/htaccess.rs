//! Programs and `.htaccess` files: which of them run, and what they are told.

use testkit::client::reply;
use testkit::fastcgi::{Call, printed};
use testkit::{FastCgiResponder, Gateway, Reply, Step};

use crate::fixtures::php::{self, SHOW, Wish};

const CONFIG: &str = r#"
workers = 1
[[sites]]
hosts = ["a.test"]
root = "{dir}/site"
index = ["index.php", "index.html"]
htaccess = { override = ["All"] }
  [[sites.rules]]
  match = { file = "*.php" }
  handler = { fastcgi = "{responder}" }
[[sites]]
hosts = ["led.test"]
root = "{dir}/site"
htaccess = { override = [], directories = [
  { path = "/", context = "server", text = '''
    RewriteEngine On
    RewriteRule ^/item/([0-9]+)$ /index.php?item=$1 [E=app:1,QSA]
  ''' },
] }
  [[sites.rules]]
  match = { server_env = "app" }
  handler = { fastcgi = { address = "{responder}", params = { set = { ASKED = "$uri" } } } }
"#;

const FILES: [&str; 7] = [
    "site/index.php",
    "site/page.html",
    "site/off/page.php",
    "site/removed/page.php",
    "site/typed/page.php",
    "site/none/page.php",
    "site/closed/page.txt",
];

struct Bed {
    responder: FastCgiResponder,
    gateway: Gateway,
}

impl Bed {
    fn new(files: &[(&str, &str)]) -> Self {
        let page = b"Content-Type: text/plain\r\n\r\na program";
        let responder = FastCgiResponder::start(move |_| vec![Step::Send(printed(page))]);
        let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG)
            .with("responder", responder.address());
        for name in FILES {
            builder.directory().write(name, "<?php secret");
        }
        let here = builder.directory().path().display().to_string();
        for (name, text) in files {
            builder
                .directory()
                .write(name, text.replace("{dir}", &here));
        }
        Self {
            responder,
            gateway: builder.start(),
        }
    }

    fn ask(&self, path: &str, fields: &str) -> Reply {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n{fields}\r\n");
        reply(self.gateway.ask(request.as_bytes()))
    }

    /// What the program was told of a request that it answers.
    fn call(&self, path: &str, fields: &str) -> Call {
        let answer = self.ask(path, fields);
        assert_eq!(answer.text(), "a program", "{path}: {}", answer.status);
        self.responder.next_call()
    }
}

/// The rules by which applications send all that is no file to one program, written by hand.
const FRONT: &str = "SetEnv STAGE live\n\
    RewriteEngine On\n\
    RewriteRule .* - [E=HTTP_AUTHORIZATION:%{HTTP:Authorization}]\n\
    RewriteRule ^index\\.php$ - [L]\n\
    RewriteRule ^item/([0-9]+)$ index.php?item=$1 [QSA,L]\n\
    RewriteCond %{REQUEST_FILENAME} !-f\n\
    RewriteCond %{REQUEST_FILENAME} !-d\n\
    RewriteRule . /index.php [L]\n";

#[test]
fn a_front_controller_is_told_what_was_asked_and_what_came_of_it() {
    let bed = Bed::new(&[("site/.htaccess", FRONT)]);
    let call = bed.call("/2026/a-post/?page=2", "Authorization: Bearer x\r\n");
    for (name, value) in [
        ("SCRIPT_NAME", "/index.php"),
        ("REQUEST_URI", "/2026/a-post/?page=2"),
        ("QUERY_STRING", "page=2"),
        ("REDIRECT_URL", "/2026/a-post/"),
        ("REDIRECT_STATUS", "200"),
        ("REDIRECT_STAGE", "live"),
        ("STAGE", "live"),
        ("HTTP_AUTHORIZATION", "Bearer x"),
    ] {
        assert_eq!(call.param(name), Some(value), "{name}: {:?}", call.params);
    }
    let call = bed.call("/item/17?x=y", "");
    assert_eq!(call.param("QUERY_STRING"), Some("item=17&x=y"));
    assert_eq!(call.param("REQUEST_URI"), Some("/item/17?x=y"));
    let call = bed.call("/", "");
    assert_eq!(call.param("SCRIPT_NAME"), Some("/index.php"));
    assert_eq!(call.param("REQUEST_URI"), Some("/"));
}

#[test]
fn a_program_that_rules_of_the_host_lead_to_is_told_what_was_asked() {
    let bed = Bed::new(&[]);
    let request = b"GET /item/17?x=y HTTP/1.1\r\nHost: led.test\r\n\r\n";
    assert_eq!(reply(bed.gateway.ask(request)).text(), "a program");
    let call = bed.responder.next_call();
    for (name, value) in [
        ("SCRIPT_NAME", "/index.php"),
        ("REQUEST_URI", "/item/17?x=y"),
        ("QUERY_STRING", "item=17&x=y"),
        ("ASKED", "/item/17?item=17&x=y"),
    ] {
        assert_eq!(call.param(name), Some(value), "{name}: {:?}", call.params);
    }
}

#[test]
fn php_runs_what_a_rule_leads_to_with_a_path_behind_it() {
    let wish = Wish {
        rules: "htaccess = { override = [\"All\"] }",
        files: &[
            ("index.php", SHOW),
            (
                ".htaccess",
                "RewriteEngine On\nRewriteRule ^wiki/(.*)$ index.php/$1 [L]",
            ),
        ],
        ..Wish::default()
    };
    let Some(bed) = php::bed(&wish) else { return };
    let answer = bed.get("/wiki/Main_Page");
    assert_eq!(answer.status, 200, "{}", bed.gateway.stderr());
    let told = answer.text();
    for line in ["SCRIPT_NAME=%2Findex.php\n", "PATH_INFO=%2FMain_Page\n"] {
        assert!(told.contains(line), "{told}");
    }
}

#[test]
fn no_program_runs_where_files_take_it_away_and_its_source_is_not_shown() {
    let bed = Bed::new(&[
        ("site/off/.htaccess", "php_flag engine off\n"),
        ("site/removed/.htaccess", "RemoveHandler .php\n"),
        ("site/typed/.htaccess", "ForceType text/plain\n"),
        ("site/none/.htaccess", "SetHandler none\n"),
    ]);
    for path in [
        "/off/page.php",
        "/removed/page.php",
        "/typed/page.php",
        "/none/page.php",
    ] {
        let answer = bed.ask(path, "");
        assert_eq!(answer.status, 404, "{path}");
        assert!(!answer.text().contains("secret"), "{path}");
    }
    bed.call("/index.php", "");
}

#[test]
fn what_files_call_php_is_run_by_what_runs_php_elsewhere() {
    let bed = Bed::new(&[(
        "site/.htaccess",
        "AddHandler application/x-httpd-ea-php82 .html\n",
    )]);
    let call = bed.call("/page.html", "");
    assert_eq!(call.param("SCRIPT_NAME"), Some("/page.html"));
}

#[test]
fn a_program_makes_the_page_of_a_failure() {
    let bed = Bed::new(&[
        (
            "site/.htaccess",
            "ErrorDocument 403 /index.php?why=closed\n",
        ),
        ("site/closed/.htaccess", "Require all denied\n"),
    ]);
    let answer = bed.ask("/closed/page.txt?x=y", "");
    assert_eq!((answer.status, answer.text()), (403, "a program".into()));
    let call = bed.responder.next_call();
    for (name, value) in [
        ("QUERY_STRING", "why=closed"),
        ("REDIRECT_STATUS", "403"),
        ("REDIRECT_URL", "/closed/page.txt"),
        ("REDIRECT_QUERY_STRING", "x=y"),
        ("REQUEST_URI", "/closed/page.txt?x=y"),
    ] {
        assert_eq!(call.param(name), Some(value), "{name}: {:?}", call.params);
    }
}

#[test]
fn a_failure_stays_one_whose_page_is_rewritten_or_a_directorys() {
    let bed = Bed::new(&[
        (
            "site/.htaccess",
            "ErrorDocument 404 /lost\nErrorDocument 410 /index.php\nRewriteEngine On\n\
             RewriteRule ^lost$ /index.php [L]\nRewriteRule ^none/page\\.html$ - [G]\n\
             DirectoryIndex page.html\n",
        ),
        ("site/none/page.html", "never shown"),
    ]);
    for (path, status, url) in [("/missing", 404, "/lost"), ("/none/", 410, "/none/")] {
        assert_eq!(bed.ask(path, "").status, status, "{path}");
        let call = bed.responder.next_call();
        let told = [call.param("REDIRECT_STATUS"), call.param("REDIRECT_URL")];
        let status = status.to_string();
        assert_eq!(told, [Some(&*status), Some(url)], "{path}");
    }
}

#[test]
fn a_path_that_asks_for_no_password_has_no_user() {
    let bed = Bed::new(&[
        (
            "site/.htaccess",
            "RewriteEngine On\nRewriteRule ^led$ /index.php [L]\n<FilesMatch ^led>\nAuthType Basic\n\
             AuthName x\nAuthUserFile {dir}/site/users\nRequire valid-user\n</FilesMatch>\n",
        ),
        ("site/users", "u:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n"),
    ]);
    assert_eq!(bed.ask("/led", "").status, 401);
    let call = bed.call("/led", "Authorization: Basic dTpzZWNyZXQ=\r\n");
    assert_eq!(call.param("REMOTE_USER"), None);
}

#[test]
fn no_program_is_told_a_user_whose_password_is_wrong() {
    const CLOSED: &str =
        "AuthType Basic\nAuthName x\nAuthUserFile {dir}/site/users\nRequire valid-user\n";
    let any = format!("{CLOSED}Satisfy any\nOrder deny,allow\nAllow from all\n");
    let bed = Bed::new(&[
        ("site/.htaccess", "ErrorDocument 401 /index.php\n"),
        ("site/users", "u:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n"),
        ("site/closed/.htaccess", CLOSED),
        ("site/off/.htaccess", &any),
    ]);
    // `u:secret` and `u:wrong`.
    let (right, wrong) = (
        "Authorization: Basic dTpzZWNyZXQ=\r\n",
        "Authorization: Basic dTp3cm9uZw==\r\n",
    );
    assert_eq!(bed.ask("/closed/page.txt", wrong).status, 401);
    assert_eq!(bed.responder.next_call().param("REMOTE_USER"), None);
    assert_eq!(bed.ask("/closed/page.txt", right).status, 200);
    let open = bed.call("/off/page.php", wrong);
    assert_eq!(open.param("REMOTE_USER"), None);
}

#[test]
fn settings_of_php_are_told_once_and_not_obeyed() {
    let bed = Bed::new(&[("site/.htaccess", "php_value memory_limit 1G\n")]);
    for _ in 0..3 {
        let call = bed.call("/index.php", "");
        assert_eq!(call.param("PHP_VALUE"), None);
    }
    bed.gateway.wait_for_message("settings of PHP");
    let told = bed.gateway.stderr().matches("settings of PHP").count();
    assert_eq!(told, 1);
}

#[test]
fn programs_are_told_the_fields_that_files_leave_and_each_edit_once() {
    let bed = Bed::new(&[(
        "site/.htaccess",
        "RequestHeader append X-Own b\nRequestHeader unset X-Gone\n\
         RewriteEngine On\nRewriteRule ^front$ /index.php [L]\n",
    )]);
    let call = bed.call("/front", "X-Own: a\r\nX-Gone: yes\r\n");
    assert_eq!(call.param("HTTP_X_OWN"), Some("a, b"));
    assert_eq!(call.param("HTTP_X_GONE"), None);
}

#[test]
fn a_body_without_a_length_is_no_longer_than_files_let_it_be() {
    let bed = Bed::new(&[("site/.htaccess", "LimitRequestBody 10\n")]);
    let post = |body: &str| {
        let head = "POST /index.php HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n";
        let body = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
        reply(bed.gateway.ask(format!("{head}{body}").as_bytes())).status
    };
    assert_eq!(post("0123456789"), 200);
    assert_eq!(post("0123456789a"), 413);
    let length = "POST /index.php HTTP/1.1\r\nHost: a.test\r\nContent-Length: 11\r\n\r\n";
    assert_eq!(reply(bed.gateway.ask(length.as_bytes())).status, 413);
}

#[test]
fn texts_of_programs_have_the_charset_and_language_that_files_say() {
    let bed = Bed::new(&[(
        "site/.htaccess",
        "AddDefaultCharset utf-8\nDefaultLanguage ja\n",
    )]);
    let answer = bed.ask("/index.php", "");
    let field = |name: &str| answer.head.field(name).unwrap_or_default().to_owned();
    assert_eq!(field("Content-Type"), "text/plain; charset=utf-8");
    assert_eq!(field("Content-Language"), "ja");
}
