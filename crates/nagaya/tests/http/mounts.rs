//! Roots of their own below paths of a site: which files are below them, and which are not.

use std::os::unix::fs::symlink;

use testkit::Gateway;

const CONFIG: &str = r#"
workers = 1
[[sites]]
hosts = ["a.test"]
root = "{dir}/site"
index = ["start.html", "index.html"]
try = ["$path", "$path/", "/site-front.txt"]
  [[sites.mounts]]
  path = "/wiki/"
  root = "{dir}/wiki"
  [[sites.mounts]]
  path = "/wiki/deep"
  root = "{dir}/deep"
  try = ["$path", "$path/", "/front.txt"]
  [[sites.mounts]]
  path = "/common"
  root = "{dir}/common/htdocs"
  within = "{dir}/common"
  symlinks = "allow"
  index = ["first.txt"]
  [[sites.rules]]
  match = { path = "/wiki/private/*" }
  deny = "all"
[[sites]]
hosts = ["b.test"]
  [[sites.mounts]]
  path = "/wiki"
  root = "{dir}/wiki"
[[sites]]
hosts = ["c.test"]
root = "{dir}/site"
rewrite = [{ from = '^/w/(.*)$', to = "/wiki/$1" }]
  [[sites.mounts]]
  path = "/wiki"
  root = "{dir}/wiki"
  rewrite = [{ from = '^/wiki/([^/]+)/?$', to = "/wiki/sub/start.html?$1", unless = ["file", "directory"] }]
"#;

const FILES: [(&str, &str); 16] = [
    ("site/index.html", "site"),
    ("site/site-front.txt", "front of the site"),
    ("site/wikis.txt", "wikis"),
    ("site/wiki/hidden-by-the-mount.txt", "hidden"),
    ("secret.txt", "secret"),
    ("wiki/index.html", "wiki"),
    ("wiki/a b.txt", "a b"),
    ("wiki/.htaccess", "secret"),
    ("wiki/config.php", "secret"),
    ("wiki/private/x.txt", "private"),
    ("wiki/sub/start.html", "start"),
    ("wiki/deep/hidden-by-the-mount.txt", "hidden"),
    ("deep/front.txt", "front"),
    ("deep/.well-known/token", "token"),
    ("common/htdocs/first.txt", "first"),
    ("common/lib/common.txt", "common"),
];

fn gateway() -> Gateway {
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG);
    for (name, content) in FILES {
        builder.directory().write(name, content);
    }
    let below = |name: &str| builder.directory().path().join(name);
    let links = [
        ("../secret.txt", "wiki/out.txt"),
        ("../../secret.txt", "common/htdocs/out.txt"),
        ("../lib/common.txt", "common/htdocs/common.txt"),
    ];
    for (to, at) in links {
        symlink(to, below(at)).expect("a link");
    }
    builder.start()
}

#[test]
fn a_path_below_a_mount_is_looked_for_in_its_root_and_nowhere_else() {
    let gateway = gateway();
    for (path, status, body) in [
        ("/", 200, "site"),
        ("/wiki/", 200, "wiki"),
        ("/wiki/a%20b.txt", 200, "a b"),
        ("/%77iki//a%20b.txt", 200, "a b"),
        ("/other/../wiki/a%20b.txt", 200, "a b"),
        // Names of an index are the site's where the mount says none.
        ("/wiki/sub/", 200, "start"),
        ("/wikis.txt", 200, "wikis"),
        // What is not there is not looked for at the site, whose front controller answers else.
        ("/wiki/none", 404, ""),
        ("/wiki/hidden-by-the-mount.txt", 404, ""),
        ("/wikis", 200, "front of the site"),
        ("/wiki/deep/hidden-by-the-mount.txt", 200, "front"),
        ("/wiki/deep/any/thing", 200, "front"),
        ("/wiki/deeper", 404, ""),
        ("/wiki/deep/.well-known/token", 200, "token"),
        ("/common/", 200, "first"),
        ("/common/common.txt", 200, "common"),
        ("/wiki/private/x.txt", 403, ""),
        ("/wiki/../secret.txt", 200, "front of the site"),
    ] {
        let answer = gateway.get("a.test", path);
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
        assert!(
            status != 200 || answer.text() == body,
            "{path}: {}",
            answer.text()
        );
    }
}

#[test]
fn nothing_of_a_mount_is_served_that_is_not_of_a_site() {
    let gateway = gateway();
    for path in [
        "/wiki/.htaccess",
        "/wiki/config.php",
        "/wiki/out.txt",
        "/common/out.txt",
        "/common/../common/../../secret.txt",
        "/wiki/%2e%2e/secret.txt",
        "/wiki/index.html/more",
    ] {
        let answer = gateway.get("a.test", path);
        let is_front = answer.text() == "front of the site";
        assert!(
            answer.status == 404 || answer.status == 400 || is_front,
            "{path}"
        );
        assert!(!answer.text().contains("secret"), "{path}");
    }
}

#[test]
fn a_mount_without_its_slash_is_redirected_as_a_directory_is() {
    let gateway = gateway();
    for (path, to) in [
        ("/wiki", "/wiki/"),
        ("/wiki?a=b", "/wiki/?a=b"),
        ("/wiki/sub", "/wiki/sub/"),
        ("/common", "/common/"),
    ] {
        let answer = gateway.get("a.test", path);
        let location = answer.head.field("Location");
        assert_eq!((answer.status, location), (301, Some(to)), "{path}");
    }
    // A page of a front controller, too, would have its relative links lead elsewhere.
    let answer = gateway.get("a.test", "/wiki/deep");
    let location = answer.head.field("Location");
    assert_eq!((answer.status, location), (301, Some("/wiki/deep/")));
    assert_eq!(gateway.get("a.test", "/wiki/deep/").text(), "front");
}

#[test]
fn a_site_may_have_mounts_alone() {
    let gateway = gateway();
    assert_eq!(gateway.get("b.test", "/wiki/").text(), "wiki");
    assert_eq!(gateway.get("b.test", "/wiki").status, 301);
    assert_eq!(gateway.get("b.test", "/").status, 404);
}

#[test]
fn a_mount_rewrites_what_leads_below_it_after_its_site_has() {
    let gateway = gateway();
    for (path, status, body) in [
        ("/wiki/none", 200, "start"),
        ("/w/none", 200, "start"),
        // What stands there is not rewritten, be it asked for by its own name or not.
        ("/wiki/a%20b.txt", 200, "a b"),
        ("/w/a%20b.txt", 200, "a b"),
        ("/wiki/", 200, "wiki"),
        ("/wiki/sub/", 404, ""),
        ("/none", 404, ""),
    ] {
        let answer = gateway.get("c.test", path);
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
        assert!(
            status != 200 || answer.text() == body,
            "{path}: {}",
            answer.text()
        );
    }
    assert_eq!(gateway.get("c.test", "/wiki").status, 301);
}
