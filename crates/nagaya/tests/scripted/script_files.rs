//! Files of scripts and passwords below a site's root: not served under any of their names.

use std::os::unix::fs::symlink;

use crate::fixtures::files::get;
use testkit::{Gateway, PATIENCE, eventually};

const CONFIG: &str = r#"
workers = 1
[log]
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
  match = { path = "/staff" }
  auth = { file = "www/staff.txt" }
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

/// A line of a password file.
const USER: &str = "secret:{SHA}nU4eI71bcnBGqeO0t9tXvY1u5oQ=\n";

#[test]
fn a_script_is_not_served_under_any_of_its_names() {
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG);
    let directory = builder.directory();
    for name in ["app.txt", "app.txt.BAK", "app.txt.gz", "hooks/other.txt"] {
        directory.write(&format!("www/{name}"), "'secret'\n");
    }
    directory.write("www/staff.txt", USER);
    directory.write("www/staff.txt~", USER);
    for name in ["page.html", "hooks/page.html"] {
        directory.write(&format!("www/{name}"), "page\n");
    }
    let www = directory.path().join("www");
    symlink("app.txt", www.join("alias.html")).expect("make a link");
    symlink("app.txt.gz", www.join("page.html.gz")).expect("make a link");
    symlink("hooks", www.join("h")).expect("make a link");
    for (file, name) in [
        ("app.txt", "hard.txt"),
        ("staff.txt", "hooks/users.html"),
        ("hooks/other.txt", "hooks/page.html.br"),
    ] {
        std::fs::hard_link(www.join(file), www.join(name)).expect("make a hard link");
    }
    symlink("hooks/users.html", www.join("users")).expect("make a link");
    symlink("www", directory.path().join("linked")).expect("make a link");
    let gateway = builder.start();
    for host in ["owner.test", "deny.test", "linked.test"] {
        for path in ["/page.html", "/hooks/page.html"] {
            assert_eq!(get(&gateway, host, path).text(), "page\n", "{host} {path}");
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
            "/staff.txt",
            "/staff.txt~",
            "/hard.txt",
            "/hooks/users.html",
            "/users",
            "/hooks/page.html.br",
        ] {
            let reply = get(&gateway, host, path);
            assert_eq!(reply.status, 404, "{host} {path}");
            assert!(!reply.text().contains("secret"), "{host} {path}");
        }
    }
}

#[test]
fn a_file_that_was_replaced_is_guarded_and_one_that_took_its_number_is_not() {
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG);
    let directory = builder.directory();
    directory.write("www/app.txt", "'first'\n");
    directory.write("www/hooks/other.txt", "'other'\n");
    directory.write("www/staff.txt", USER);
    let www = directory.path().join("www");
    symlink("www", directory.path().join("linked")).expect("make a link");
    let gateway = builder.start();
    let replace = |name: &str, content: &str| {
        std::fs::write(www.join("next"), content).expect("write");
        std::fs::rename(www.join("next"), www.join(name)).expect("rename");
    };
    // By another name the new file is the script's from when that is read again.
    let ask = |path: &str| get(&gateway, "owner.test", path);
    replace("hooks/other.txt", "'other again'\n");
    std::fs::hard_link(www.join("hooks/other.txt"), www.join("hard.txt")).expect("link");
    eventually(PATIENCE, "its other name to be hidden", || {
        ask("/runs");
        (ask("/hard.txt").status == 404).then_some(())
    });
    assert_eq!(ask("/hooks/other.txt").status, 404);

    replace("staff.txt", USER);
    assert_eq!(ask("/staff.txt").status, 404);
    // The numbers of files that are gone are given out again, on most file systems soon.
    for number in 0..200 {
        let name = format!("new{number}.txt");
        std::fs::write(www.join(&name), "new").expect("write");
        assert_eq!(ask(&format!("/{name}")).text(), "new", "{name}");
    }
}

const LIBRARY: &str = r#"
workers = 2
[scripts]
cpu = "1s"
lib = ["www/lib"]
init = { code = "require 'greeting'" }

[[sites]]
hosts = ["a.test"]
root = "{dir}/www"
files = { sources = [] }
  [[sites.rules]]
  match = { path = "/greet" }
  handler = { script = { code = "Nginx.rputs Greeting.to('you')" } }
  [[sites.rules]]
  match = { path = "/later" }
  handler = { script = { code = "Nginx.rputs [require('shop/cart'), SUM].inspect" } }
  [[sites.rules]]
  match = { path = "/none" }
  handler = { script = { code = "begin; require '../secret'; rescue LoadError => e; Nginx.rputs e.message; end" } }
"#;

#[test]
fn scripts_require_files_that_are_read_with_the_configuration_and_never_served() {
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), LIBRARY);
    let directory = builder.directory();
    let greeting =
        |word: &str| format!("module Greeting; def self.to(whom) \"{word} #{{whom}}\" end; end\n");
    directory.write("www/lib/greeting.rb", greeting("hello"));
    directory.write(
        "www/lib/shop/cart.rb",
        "require_relative 'price'\nSUM = PRICE * 2\n",
    );
    directory.write("www/lib/shop/price.rb", "PRICE = 21\n");
    directory.write("www/secret.rb", "SECRET = 1\n");
    let lib = directory.path().join("www/lib");
    std::fs::hard_link(lib.join("greeting.rb"), lib.join("page.html")).expect("make a hard link");
    let mut gateway = builder.start();
    let ask = |gateway: &Gateway, path: &str| get(gateway, "a.test", path);
    assert_eq!(ask(&gateway, "/greet").text(), "hello you");
    assert!(ask(&gateway, "/later").text().ends_with(", 42]"));
    assert_eq!(ask(&gateway, "/later").status, 200);
    let said = ask(&gateway, "/none");
    assert!(
        said.text()
            .starts_with("cannot load such file -- ../secret: looked for below"),
        "{}",
        said.text()
    );
    for path in ["/lib/greeting.rb", "/lib/shop/price.rb", "/lib/page.html"] {
        assert_eq!(ask(&gateway, path).status, 404, "{path}");
    }
    // A change counts after a reload, and one that is no Ruby refuses it.
    let config = LIBRARY.to_owned();
    gateway
        .directory()
        .write("www/lib/shop/price.rb", "PRICE = (\n");
    gateway
        .directory()
        .write("www/lib/greeting.rb", greeting("good morning"));
    gateway.reload(&config);
    gateway.wait_for_message("price.rb: line 2: syntax error");
    assert_eq!(ask(&gateway, "/greet").text(), "hello you");
    gateway
        .directory()
        .write("www/lib/shop/price.rb", "PRICE = 1\n");
    gateway.reload(&config);
    eventually(PATIENCE, "the changed file", || {
        (ask(&gateway, "/greet").text() == "good morning you").then_some(())
    });
    gateway.stop();
}

const KEPT: &str = r#"
workers = 2
[scripts]
cpu = "1s"
cache_files = "{dir}/kept"

[[sites]]
hosts = ["a.test"]
  [[sites.rules]]
  match = { path = "/max" }
  handler = { script = { code = "Nginx.rputs Cache.new(filename: 'max.lmc')['/a.php'].to_s" } }
  [[sites.rules]]
  match = { path = "/count" }
  handler = { script = { code = "Nginx.rputs Cache.new(filename: 'max.lmc').incr('n')" } }
"#;

#[test]
fn a_file_of_cache_is_edited_outside_and_outlives_the_server() {
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), KEPT);
    let directory = builder.directory();
    directory.write("kept/max.lmc", "/a.php\t2\n");
    let file = directory.path().join("kept/max.lmc");
    // Started by root, the server is somebody else.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(directory.path().join("kept"), open).expect("permissions");
    let mut gateway = builder.start();
    let ask = |gateway: &Gateway, path: &str| get(gateway, "a.test", path).text();
    assert_eq!(ask(&gateway, "/max"), "2");
    std::fs::write(&file, "/a.php\t3\n").expect("write");
    eventually(PATIENCE, "what was written outside", || {
        (ask(&gateway, "/max") == "3").then_some(())
    });
    for number in ["1", "2", "3"] {
        assert_eq!(ask(&gateway, "/count"), number);
    }
    gateway.stop();
    let text = std::fs::read_to_string(&file).expect("the file");
    assert_eq!(text, "/a.php\t3\nn\t3\n");
}
