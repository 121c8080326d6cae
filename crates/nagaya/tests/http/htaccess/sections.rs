//! `directories` of `htaccess`: sections of the configuration in the words of `.htaccess` files.

use std::path::Path;
use std::process::Command;

use testkit::{Gateway, ScriptedUpstream, Step};

use super::{ask, check};

const CONFIG: &str = r#"
workers = 1
[[listen]]
address = "127.0.0.1:{port}"
[[sites]]
hosts = ["a.test"]
root = "{dir}/site"
htaccess = { override = ["All"], directories = [
  { path = "/", text = "Require all denied" },
  { path = "{dir}", text = "Require all granted\nDirectoryIndex page.txt" },
  { path = "{dir}/site", context = "server", text = '''
    ErrorDocument 403 "not for you"
    RewriteEngine On
    RewriteRule ^/old/(.*)$ /sub/$1
    RewriteRule ^/gone$ - [G]
  ''' },
  { path = "{dir}/site/closed/", text = "Require all denied" },
  { path = "{dir}/site/closed/open", text = "Require all granted" },
  { path = "{dir}/site/sub", text = '''
    <FilesMatch "\.bak$">
      Require all denied
    </FilesMatch>
    RewriteEngine On
    RewriteRule ^(first)\.txt$ page.txt?was=$1 [L]
  ''' },
  { path = "{dir}/mounted", text = "Header set X-Mounted yes" },
] }
  [[sites.mounts]]
  path = "/m"
  root = "{dir}/mounted"
[[sites]]
hosts = ["none.test"]
root = "{dir}/site"
htaccess = { override = [], directories = [
  { path = "{dir}/site/sub", text = "Header set X-Section sub" },
] }
[[sites]]
hosts = ["regex.test"]
root = "{dir}/site"
  [[sites.rules]]
  match = { file_regex = '^/sub/[a-z]+\.txt$' }
  handler = { respond = { body = "by its name" } }
"#;

/// The site's files.
const FILES: [(&str, &str); 12] = [
    ("site/index.html", "start"),
    ("site/page.txt", "the page"),
    ("site/sub/page.txt", "page"),
    ("site/sub/page.txt.bak", "bak"),
    ("site/sub/first.txt", "first"),
    ("site/sub/deep/x.txt", "deep"),
    ("site/sub/.htaccess", "Require all denied\n"),
    ("site/sub/deep/.htaccess", "Require all granted\n"),
    ("site/closed/x.txt", "closed"),
    ("site/closed/open/x.txt", "open"),
    ("mounted/x.txt", "mounted"),
    ("mounted/old/x.txt", "old in the mount"),
];

fn gateway() -> Gateway {
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG);
    for (name, content) in FILES {
        builder.directory().write(name, content);
    }
    builder.start()
}

#[test]
fn sections_hold_as_files_that_lie_in_their_directories() {
    let gateway = gateway();
    check(
        &gateway,
        "a.test",
        &[
            // The section above the root opens what the one above all closes, and says the page.
            ("/", 200, "the page"),
            ("/closed/x.txt", 403, "not for you"),
            ("/closed/none", 403, "not for you"),
            ("/closed/open/x.txt", 200, "open"),
            // The file of a directory comes after its sections.
            ("/sub/page.txt", 403, "not for you"),
            ("/sub/deep/x.txt", 200, "deep"),
            ("/gone", 410, ""),
            // What the virtual host says holds for all of it, before any directory.
            ("/old/deep/x.txt", 200, "deep"),
            ("/m/x.txt", 200, "mounted"),
        ],
    );
    let mounted = ask(&gateway, "a.test", "/m/x.txt", "");
    assert_eq!(mounted.head.field("X-Mounted"), Some("yes"));
    assert_eq!(
        ask(&gateway, "a.test", "/page.txt", "")
            .head
            .field("X-Mounted"),
        None
    );
}

#[test]
fn without_overrides_no_file_counts_and_sections_do() {
    let gateway = gateway();
    check(
        &gateway,
        "none.test",
        &[("/sub/page.txt", 200, "page"), ("/", 200, "start")],
    );
    let sub = ask(&gateway, "none.test", "/sub/page.txt", "");
    assert_eq!(sub.head.field("X-Section"), Some("sub"));
    // What cannot even be read keeps nobody out where nobody looks for it.
    gateway.directory().write("site/.htaccess/x", "");
    check(&gateway, "none.test", &[("/sub/page.txt", 200, "page")]);
    check(&gateway, "a.test", &[("/page.txt", 403, "")]);
}

#[test]
fn files_match_regular_expressions_by_their_path_below_the_root() {
    let gateway = gateway();
    check(
        &gateway,
        "regex.test",
        &[
            ("/sub/page.txt", 200, "by its name"),
            ("/sub/none.txt", 404, ""),
            ("/sub/deep/x.txt", 200, "deep"),
            ("/page.txt", 200, "the page"),
        ],
    );
}

const PARTS: &str = r#"
workers = 1
[[listen]]
address = "127.0.0.1:{port}"
[[sites]]
hosts = ["parts.test"]
root = "{dir}/site"
htaccess = { override = ["All"], directories = [
  { path = "{dir}/site/up", override = [] },
  { path = "{dir}/site/*/mine", override = ["AuthConfig"], text = "Header set X-Mine yes" },
] }
[[sites]]
hosts = ["bare.test"]
htaccess = { override = [], directories = [
  { path = "/", context = "server", text = """
    RewriteEngine On
    RewriteRule ^/admin - [F]
    RewriteRule ^/(first|last)$ - [E=forward:1,END]
    Redirect gone /gone
    Header set X-Said by-the-host
    RequestHeader set X-User nobody
  """ },
  { path = "/", text = "Require all denied" },
] }
  [[sites.mounts]]
  path = "/files"
  root = "{dir}/mounted"
  [[sites.rules]]
  match = { path = "/last" }
  rewrite = [{ from = "^/last$", to = "/elsewhere" }]
  [[sites.rules]]
  match = { server_env = "forward" }
  handler = { respond = { body = "forwarded" } }
  [[sites.rules]]
  match = { not = { path = "/files/*" } }
  handler = { respond = { body = "as asked" } }
[[sites]]
hosts = ["half.test"]
root = "{dir}/site"
index = ["x.txt"]
htaccess = { override = [], directories = [
  { path = "{dir}/site", text = """
    Options -FollowSymLinks
    <Files x.txt>
      Require all denied
    </Files>
  """ },
  { path = "/", context = "server", text = """
    RewriteEngine On
    RewriteRule ^/other/ - [E=half:1]
  """ },
] }
  [[sites.rules]]
  match = { server_env = "half", exists = false }
  handler = { proxy = "http://{back}" }
"#;

#[test]
fn parts_of_a_site_have_words_of_their_own_for_their_files() {
    let back = ScriptedUpstream::start(|_| vec![Step::reply(200, "forwarded")]);
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), PARTS);
    let builder = builder.with("back", back.address());
    let closed = "Require all denied\n";
    for (name, content) in [
        ("site/.htaccess", "Header set X-Root yes\n"),
        ("site/up/.htaccess", closed),
        ("site/up/x.txt", "x"),
        ("site/up/deep/.htaccess", closed),
        ("site/up/deep/x.txt", "x"),
        ("site/up/mine/.htaccess", closed),
        ("site/up/mine/x.txt", "x"),
        ("site/other/.htaccess", closed),
        ("site/other/x.txt", "x"),
        ("mounted/x.txt", "x"),
    ] {
        builder.directory().write(name, content);
    }
    let link = builder.directory().path().join("site/other/link.txt");
    std::os::unix::fs::symlink("../up/x.txt", link).expect("a link");
    let gateway = builder.start();
    // What is not forwarded is decided about to its end.
    check(
        &gateway,
        "half.test",
        &[
            ("/other/none.txt", 200, "forwarded"),
            ("/other/", 403, ""),
            ("/other/link.txt", 403, ""),
        ],
    );
    check(
        &gateway,
        "parts.test",
        &[
            ("/up/x.txt", 200, "x"),
            ("/up/deep/x.txt", 200, "x"),
            ("/up/mine/x.txt", 403, ""),
            ("/other/x.txt", 403, ""),
        ],
    );
    let up = ask(&gateway, "parts.test", "/up/x.txt", "");
    assert_eq!(up.head.field("X-Root"), Some("yes"));
    let mine = ask(&gateway, "parts.test", "/up/mine/none.txt", "");
    assert_eq!(mine.head.field("X-Mine"), None, "{}", mine.status);
    // A path that leads into no root has what the host says, and nothing of directories.
    check(
        &gateway,
        "bare.test",
        &[
            ("/", 200, "as asked"),
            ("/admin/x", 403, ""),
            ("/first", 200, "forwarded"),
            // What was found of a path counts for no other.
            ("/last", 200, "as asked"),
            ("/gone", 410, ""),
            ("/files/x.txt", 403, ""),
        ],
    );
    let bare = ask(&gateway, "bare.test", "/", "");
    assert_eq!(bare.head.field("X-Said"), Some("by-the-host"));
    let config = gateway.directory().path().join("nagaya.toml");
    let (status, text) = said(&config, &["htaccess", "explain", "http://bare.test/admin/"]);
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("403"), "{text}");
}

/// What a command says of this configuration.
fn said(config: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nagaya"));
    let output = command.args(arguments).arg("-c").arg(config).output();
    let output = output.expect("the binary runs");
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

#[test]
fn commands_name_sections_and_what_is_wrong_with_them() {
    let gateway = gateway();
    let config = gateway.directory().path().join("nagaya.toml");
    let (status, text) = said(
        &config,
        &["htaccess", "explain", "http://a.test/old/deep/x.txt"],
    );
    assert_eq!(status, Some(0), "{text}");
    let parts = [
        "in `directories` of the site, ",
        "goes on at /sub/deep/x.txt",
        "sub/deep/.htaccess",
        "it stands",
    ];
    for part in parts {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let (status, text) = said(&config, &["check", "--dump"]);
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("context = \"server\""), "{text}");
    let wrong = "[[listen]]\naddress = \"127.0.0.1:1\"\n[[sites]]\nhosts = [\"a\"]\nroot = \"/srv\"\n\
                 htaccess = { override = [], directories = [{ path = \"/srv\", text = '''\n\
                 Frobnicate on\nRequire moonphase full\n''' }] }\n";
    gateway.directory().write("wrong.toml", wrong);
    let wrong = gateway.directory().path().join("wrong.toml");
    let (status, text) = said(&wrong, &["check"]);
    assert_eq!(status, Some(2), "{text}");
    assert!(text.contains("line 2 of the text: Require"), "{text}");
    assert!(text.contains("wrong.toml:8:"), "{text}");
}
