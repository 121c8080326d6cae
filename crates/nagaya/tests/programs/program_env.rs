//! What `env` and `params` say reaches programs, FastCGI and CGI alike, inner levels over outer ones.

use testkit::client::reply;
use testkit::fastcgi::printed;
use testkit::{FastCgiResponder, Gateway, Step};

const CONFIG: &str = r#"
[[sites]]
hosts = ["*"]
root = "{dir}/site"
env = { STAGE = "site", HOST_ASKED = "$host", OWN = "env" }
  [[sites.rules]]
  match = { path = "/inner.*" }
  env = { STAGE = "rule", ADDED = "yes" }
  [[sites.rules]]
  match = { path = "/outer.*" }
  env = { ADDED = [{ value = false, match = { cookie = { c = { regex = '^(?!x)(a+)+\1*$' } } } }] }
  [[sites.rules]]
  match = { file = "*.php" }
    [sites.rules.handler.fastcgi]
    address = "{responder}"
    params = { set = { OWN = "params", LINES = "a\nb" }, remove = ["SERVER_SOFTWARE"] }
  [[sites.rules]]
  match = { file = "*.cgi" }
    [sites.rules.handler.cgi]
    params = { set = { OWN = "params", LINES = "a\nb" }, remove = ["SERVER_SOFTWARE"] }
"#;

const SCRIPT: &str = "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\n\
    for name in STAGE HOST_ASKED OWN ADDED LINES SERVER_SOFTWARE; do\n\
    eval \"value=\\${$name-unset}\"; echo \"$name=$value\"; done\n";

/// What programs are told below a path: `STAGE` and `ADDED` differ.
const EXPECTED: [(&str, &str, Option<&str>); 2] =
    [("inner", "rule", Some("yes")), ("outer", "site", None)];

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n").into_bytes()
}

fn gateway(responder: &FastCgiResponder) -> Gateway {
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG)
        .with("responder", responder.address());
    for (name, _, _) in EXPECTED {
        let directory = builder.directory();
        directory.write(&format!("site/{name}.php"), "not shown");
        directory.write_program(&format!("site/{name}.cgi"), SCRIPT);
    }
    builder.start()
}

#[test]
fn no_program_is_run_with_a_variable_of_which_it_is_not_known_whether_it_holds() {
    let page = b"Content-Type: text/plain\r\n\r\nhello";
    let responder = FastCgiResponder::start(move |_| vec![Step::Send(printed(page))]);
    let gateway = gateway(&responder);
    for (value, status) in [("aaa", 200), (&*format!("{}!", "a".repeat(40)), 500)] {
        for path in ["/outer.cgi", "/outer.php"] {
            let request =
                format!("GET {path} HTTP/1.1\r\nHost: a.test\r\nCookie: c={value}\r\n\r\n");
            let answer = reply(gateway.ask(request.as_bytes()));
            assert_eq!(answer.status, status, "{path} {value}");
        }
    }
}

#[test]
fn variables_of_site_and_rules_reach_every_program() {
    let page = b"Content-Type: text/plain\r\n\r\nhello";
    let responder = FastCgiResponder::start(move |_| vec![Step::Send(printed(page))]);
    let gateway = gateway(&responder);
    for (name, stage, added) in EXPECTED {
        let answer = reply(gateway.ask(&get(&format!("/{name}.php"))));
        assert_eq!(answer.status, 200, "{}", gateway.stderr());
        let call = responder.next_call();
        for (variable, value) in [
            ("STAGE", Some(stage)),
            ("HOST_ASKED", Some("a.test")),
            ("OWN", Some("params")),
            ("ADDED", added),
            ("LINES", Some("a\nb")),
            ("SERVER_SOFTWARE", None),
        ] {
            assert_eq!(call.param(variable), value, "{name}: {variable}");
        }

        let answer = reply(gateway.ask(&get(&format!("/{name}.cgi"))));
        assert_eq!(answer.status, 200, "{}", gateway.stderr());
        let added = added.unwrap_or("unset");
        let expected = format!(
            "STAGE={stage}\nHOST_ASKED=a.test\nOWN=params\nADDED={added}\nLINES=a\nb\n\
             SERVER_SOFTWARE=unset\n"
        );
        assert_eq!(String::from_utf8_lossy(&answer.body), expected, "{name}");
    }
}
