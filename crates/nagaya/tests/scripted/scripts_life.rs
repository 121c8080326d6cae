//! Scripts over the life of a server: starts, reloads, ends, and files that change.

use crate::fixtures::files::get;
use testkit::gateway::Builder;
use testkit::{Gateway, PATIENCE, eventually};

const CONFIG: &str = r#"
workers = 2
[log]
level = "info"
[scripts]
cpu = "1s"
wall = "600s"
init = { code = "$number = {number}" }
worker_init = "hooks/start.rb"
worker_exit = { code = "Nginx.errlogger Nginx::LOG_ERR, \"exit of #{$number}\"" }

[[sites]]
hosts = ["a.test"]
  [[sites.rules]]
  match = { path = "/number" }
  handler = { script = { code = "Nginx.rputs $number" } }
  [[sites.rules]]
  match = { path = "/mtime" }
  handler = { script = "hooks/mtime.rb" }
  [[sites.rules]]
  match = { path = "/always" }
  handler = { script = { file = "hooks/always.rb", cache = "always" } }
  [[sites.rules]]
  match = { path = "/never" }
  handler = { script = { file = "hooks/never.rb", cache = "never" } }
"#;

fn builder() -> Builder {
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG);
    let directory = builder.directory();
    directory.write("hooks/start.rb", "$started = true\n");
    for name in ["mtime", "always", "never"] {
        directory.write(&format!("hooks/{name}.rb"), "Nginx.rputs 'first'\n");
    }
    builder
}

fn of_number(number: u32) -> String {
    CONFIG.replace("{number}", &number.to_string())
}

fn wait_for(gateway: &Gateway, path: &str, body: &str) {
    eventually(PATIENCE, &format!("{path} to say {body}"), || {
        (get(gateway, "a.test", path).text() == body).then_some(())
    });
}

#[test]
fn each_generation_has_interpreters_of_its_own_and_ends_with_worker_exit() {
    let mut gateway = builder().with("number", 1).start();
    assert_eq!(get(&gateway, "a.test", "/number").text(), "1");
    gateway.reload(&of_number(2));
    wait_for(&gateway, "/number", "2");
    let exits = |gateway: &Gateway, number: u32| {
        gateway
            .stderr()
            .matches(&format!("exit of {number}"))
            .count()
    };
    eventually(PATIENCE, "worker_exit of both workers", || {
        (exits(&gateway, 1) == 2).then_some(())
    });
    gateway.stop();
    assert_eq!((exits(&gateway, 1), exits(&gateway, 2)), (2, 2));
}

#[test]
fn a_generation_whose_scripts_do_not_start_is_refused_and_changes_nothing() {
    let mut gateway = builder().with("number", 1).start();
    for (start, said) in [
        ("raise 'no store to be had'", "no store to be had"),
        ("sleep 0.001; raise 'not even later'", "not even later"),
        ("$started = (", "line 3: syntax error"),
        ("while true; end", "used up its CPU time"),
    ] {
        let start_file = format!("# a comment\n{start}\n");
        gateway.directory().write("hooks/start.rb", start_file);
        gateway.reload(&of_number(2));
        gateway.wait_for_message(said);
        assert!(
            gateway.stderr().contains("start.rb"),
            "{}",
            gateway.stderr()
        );
        let still = get(&gateway, "a.test", "/number");
        assert_eq!(still.text(), "1", "{start}");
    }
    gateway
        .directory()
        .write("hooks/start.rb", "$started = true\n");
    gateway.reload(&of_number(3));
    wait_for(&gateway, "/number", "3");
}

#[test]
fn scripts_that_start_and_wait_do_not_hold_up_an_end() {
    let waits = "Nginx.errlogger Nginx::LOG_ERR, 'waits for nobody'\nsleep 500\n";
    let starting = builder().with("number", 1);
    starting.directory().write("hooks/start.rb", waits);
    let starting = starting.launch();
    let mut reloading = builder().with("number", 1).start();
    reloading.directory().write("hooks/start.rb", waits);
    reloading.reload(&of_number(2));
    for mut gateway in [starting, reloading] {
        gateway.wait_for_message("waits for nobody");
        let status = gateway.stop();
        let said = gateway.stderr();
        assert!(status.success() && !said.contains("refuse"), "{said}");
    }
}

#[test]
fn a_start_whose_scripts_fail_says_where() {
    let builder = builder().with("number", 1);
    builder.directory().write("hooks/always.rb", "1 +\n2 +\n");
    let (status, _, said) = builder.run(&["serve"]);
    assert!(!status.success(), "{said}");
    assert!(said.contains("always.rb: line 3: syntax error"), "{said}");
}

#[test]
fn a_changed_file_counts_as_its_cache_says() {
    let mut gateway = builder().with("number", 1).start();
    for path in ["/mtime", "/always", "/never"] {
        assert_eq!(get(&gateway, "a.test", path).text(), "first", "{path}");
        let name = format!("hooks{path}.rb");
        gateway.directory().write(&name, "Nginx.rputs 'second'\n");
    }
    assert_eq!(get(&gateway, "a.test", "/never").text(), "second");
    wait_for(&gateway, "/mtime", "second");
    assert_eq!(get(&gateway, "a.test", "/always").text(), "first");
    gateway.reload(&of_number(2));
    wait_for(&gateway, "/always", "second");
}
