//! `nagaya script`: what it tells of scripts, and how it exits.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use testkit::temp::TempDir;

fn nagaya(arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nagaya"));
    let command = command.arg("script").args(arguments);
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = pipes.stderr(Stdio::piped()).spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_script_that_is_no_ruby_is_told_with_its_line() {
    let directory = TempDir::new();
    let good = directory.write("good.rb", "p 1\n");
    let bad = directory.write("bad.rb", "p 1\nif true\n  p(\n");
    let [good, bad] = [&good, &bad].map(|file| file.to_str().unwrap());
    let fine = nagaya(&["check", good, "-"], "NoSuchConstant.call");
    assert_eq!(fine.status.code(), Some(0), "{fine:?}");
    assert!(fine.stdout.is_empty() && fine.stderr.is_empty(), "{fine:?}");
    let wrong = nagaya(&["check", good, bad, "-", "absent.rb"], "x = (");
    assert_eq!(wrong.status.code(), Some(1));
    let said = text(&wrong.stderr);
    let lines: Vec<_> = said.lines().collect();
    assert!(lines[0].starts_with(&format!("{bad}:")), "{said}");
    assert!(lines[0].contains("syntax error"), "{said}");
    assert!(
        lines[1].starts_with("standard input:1: syntax error"),
        "{said}"
    );
    assert_eq!(lines[2], "absent.rb: no such file or directory");
    assert_eq!(nagaya(&["check"], "").status.code(), Some(2));
}

const CONFIGURED: &str = r#"
[scripts]
lib = "lib"
[[listen]]
address = "127.0.0.1:8080"
[[sites]]
hosts = ["a.test"]
scripts = { access = ["hooks/good.rb", "hooks/bad.rb"], log = { code = """
p 1
p(
""" } }
  [[sites.rules]]
  handler = { script = { file = "hooks/never.rb", cache = "never" } }
"#;

#[test]
fn a_configuration_is_checked_with_its_scripts() {
    let directory = TempDir::new();
    let config = directory.write("nagaya.toml", CONFIGURED);
    directory.write("hooks/good.rb", "p 1\n");
    let check = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nagaya"));
        command.args(["check", "-c"]).arg(&config).output().unwrap()
    };
    directory.write("hooks/bad.rb", "p 1\nif true\n");
    directory.write("lib/shop/cart.rb", "def (");
    let output = check();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    let here = directory.path().display();
    for told in [
        format!("error: {here}/hooks/bad.rb:3: syntax error"),
        format!("error: {here}/lib/shop/cart.rb:1: syntax error"),
        format!("error: {here}/nagaya.toml:11: syntax error"),
        format!("error: {here}/hooks/never.rb: no such file or directory"),
    ] {
        assert!(said.contains(&told), "{told}\n{said}");
    }
    assert!(!said.contains("good.rb"), "{said}");
    directory.write("hooks/bad.rb", "p 1\n");
    directory.write("lib/shop/cart.rb", "p 1\n");
    directory.write("hooks/never.rb", "p 1\n");
    directory.write("nagaya.toml", CONFIGURED.replace("p(\n", "p 2\n"));
    let output = check();
    assert!(output.status.success(), "{output:?}");
}

const SCRIPT: &str = r#"
request = Nginx::Request.new
puts "seen #{request.uri}"
Nginx.rputs "a body"
Nginx.return 503
[1, "two", nil, request.hostname]
"#;

#[test]
fn a_run_shows_what_the_script_did_and_what_it_cost() {
    let directory = TempDir::new();
    let script = directory.write("hook.rb", SCRIPT);
    let script = script.to_str().unwrap();
    let options = [
        "--request",
        "GET /a.php?x=1",
        "--host",
        "shop.test",
        "-n",
        "20",
    ];
    let ran = nagaya(&[&["run", script][..], &options].concat(), "");
    let (said, log) = (text(&ran.stdout), text(&ran.stderr));
    assert_eq!(ran.status.code(), Some(0), "{said}{log}");
    for expected in [
        "value     [1, \"two\", nil, \"shop.test\"]\n",
        "returned  503\n",
        "output    \"a body\"\n",
        " instructions\n",
        "µs (median of 20 runs, ",
        "compiled  ",
    ] {
        assert!(said.contains(expected), "{expected} in:\n{said}");
    }
    assert_eq!(
        log.matches("seen /a.php").count(),
        1,
        "timed runs log nothing: {log}"
    );
}

#[test]
fn a_run_has_the_client_the_root_and_the_variables_that_are_said() {
    let script = "c = Nginx::Connection.new
        [c.remote_ip, c.remote_port.to_i, Nginx::Request.new.filename, ENV['PLAN'], ENV['HOME']]";
    let options = [
        "--client",
        "203.0.113.7:5000",
        "--root",
        "/srv/shop/",
        "--env",
        "PLAN=gold",
    ];
    let request = ["run", "-", "--request", "GET /a.php?x=1", "-n", "0"];
    let ran = nagaya(&[&request[..], &options].concat(), script);
    let (said, log) = (text(&ran.stdout), text(&ran.stderr));
    let expected = "value     [\"203.0.113.7\", 5000, \"/srv/shop/a.php\", \"gold\", nil]\n";
    assert!(said.contains(expected), "{said}{log}");
}

#[test]
fn a_run_that_uses_too_much_tells_where_and_which_key() {
    let ran = nagaya(&["run", "-"], "1\nwhile true; end\n");
    let log = text(&ran.stderr);
    assert!(
        log.starts_with("standard input:2: used up its CPU time (5 ms)"),
        "{log}"
    );
    assert!(
        log.contains("see scripts.cpu\n    at standard input:2"),
        "{log}"
    );
}

#[test]
fn a_run_that_fails_tells_where_and_what_was_done_before() {
    let ran = nagaya(
        &["run", "-"],
        "Nginx.rputs 'half'\ndef no(x)\n  raise x\nend\nno 'why'\n",
    );
    let (said, log) = (text(&ran.stdout), text(&ran.stderr));
    assert_eq!(ran.status.code(), Some(1), "{said}{log}");
    assert!(said.contains("output    \"half\"\n"), "{said}");
    assert!(
        log.starts_with("standard input:3: why (RuntimeError)\n    at "),
        "{log}"
    );
}

#[test]
fn scripts_of_the_start_run_before_and_have_no_request() {
    let directory = TempDir::new();
    let init = directory.write("init.rb", "$greeting = 'hello'\n");
    let init = init.to_str().unwrap();
    let ran = nagaya(&["run", "-", "--init", init, "-n", "0"], "$greeting");
    let said = text(&ran.stdout);
    assert!(
        said.starts_with("value     \"hello\"\n") && !said.contains("took"),
        "{said}"
    );
    let ran = nagaya(&["run", "-", "--phase", "worker_init"], "Nginx.rputs 'x'");
    let log = text(&ran.stderr);
    assert!(log.contains("no request in the phase worker_init"), "{log}");
    assert_eq!(ran.status.code(), Some(1));
}

#[test]
fn wrong_use_says_what_is_right() {
    for (arguments, expected) in [
        (
            &["run", "-", "--phase", "acess"][..],
            "there are the phases init, ",
        ),
        (&["run", "-", "--request", "/x"], "'GET /x.php?id=1'"),
        (&["run", "-", "--header", "x"], "'Accept-Language: ja'"),
        (&["run", "-", "--server", "h2o"], "either nginx or apache"),
        (
            &["run", "-", "--client", "example.jp"],
            "a client is an address",
        ),
        (&["run", "-", "--env", "=x"], "a name and a value"),
        (&["check", "-", "-c", "x.toml"], "reads no configuration"),
    ] {
        let wrong = nagaya(arguments, "");
        let said = text(&wrong.stderr);
        assert!(said.contains(expected), "{said}");
        assert_eq!(wrong.status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn the_reference_is_up_to_date() {
    let printed = text(&nagaya(&["reference"], "").stdout);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/ruby.md");
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        committed == printed,
        "run `cargo run -p nagaya -- script reference > docs/reference/ruby.md`"
    );
}
