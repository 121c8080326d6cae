//! Scripts' files below a site's root: not served under any of their names.

mod files;

use std::os::unix::fs::{PermissionsExt, symlink};

use files::{get, text};
use testkit::Gateway;

const CONFIG: &str = r#"
workers = 1
[[listen]]
address = "127.0.0.1:{port}"
[log]
access = ""
level = "warn"
[scripts]
cpu = "1s"

[[sites]]
hosts = ["owner.test"]
root = "{dir}/www"
  [[sites.rules]]
  match = { path = "/run" }
  handler = { script = "www/app.txt" }
  [[sites.rules]]
  match = { path = "/runs" }
  handler = { script = { file = "linked/hooks/other.txt", cache = "never" } }

[[sites]]
hosts = ["deny.test"]
root = "{dir}/www"
symlinks = "deny"

[[sites]]
hosts = ["linked.test"]
root = "{dir}/linked"
symlinks = "allow"
"#;

#[test]
fn a_script_is_not_served_under_any_of_its_names() {
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG);
    let directory = builder.directory();
    for name in ["app.txt", "app.txt.BAK", "app.txt.gz", "hooks/other.txt"] {
        directory.write(&format!("www/{name}"), "'secret'\n");
    }
    for name in ["page.html", "hooks/page.html"] {
        directory.write(&format!("www/{name}"), "page\n");
    }
    let www = directory.path().join("www");
    symlink("app.txt", www.join("alias.html")).expect("make a link");
    symlink("app.txt.gz", www.join("page.html.gz")).expect("make a link");
    symlink("hooks", www.join("h")).expect("make a link");
    symlink("www", directory.path().join("linked")).expect("make a link");
    // The server may run as another user.
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(directory.path(), open).expect("open the test directory");
    let gateway = builder.start();
    for host in ["owner.test", "deny.test", "linked.test"] {
        for path in ["/page.html", "/hooks/page.html"] {
            assert_eq!(text(&get(&gateway, host, path)), "page\n", "{host} {path}");
        }
        for path in [
            "/app.txt",
            "/app.txt.BAK",
            "/app.txt.gz",
            "/app.txt/more",
            "/alias.html",
            "/page.html.gz",
            "/hooks/other.txt",
            "/h/other.txt",
        ] {
            let reply = get(&gateway, host, path);
            assert_eq!(reply.status, 404, "{host} {path}");
            assert!(!text(&reply).contains("secret"), "{host} {path}");
        }
    }
}
