//! Caps and timeouts of a rule hold for programs as for other back ends, FastCGI and CGI alike.

use crate::fixtures::programs::{answer, builder_of, program, request};
use testkit::client::Body;
use testkit::fastcgi::printed;
use testkit::{FastCgiResponder, Gateway, PATIENCE, Step};

const CONFIG: &str = r#"
workers = 1
timeouts = { {timeouts} }
caps = { {caps} }
[[listen]]
address = "127.0.0.1:{port}"
[[sites]]
hosts = ["cgi.test"]
root = "{dir}/www"
  [[sites.rules]]
  match = { path = "/brief/*" }
  timeouts = { upstream_read = "2s" }
  caps = { upstream_head_bytes = "2KiB", body_bytes = 10 }
  [[sites.rules]]
  match = { file = "*.php" }
  handler = { fastcgi = "{upstream}" }
  [[sites.rules]]
  match = { file = "*.cgi" }
  handler = { cgi = { {options} } }
"#;

/// Answers, or does whatever its name says.
const PROGRAMS: [(&str, &str); 4] = [
    (
        "fine.cgi",
        "#!/bin/sh\nprintf 'Content-Type: x\\n\\nfine'\n",
    ),
    (
        "slow.cgi",
        "#!/bin/sh\nsleep 4\nprintf 'Content-Type: x\\n\\nfine'\n",
    ),
    (
        "long.cgi",
        "#!/bin/sh\nprintf 'X-Long: %3000s.\\n\\nfine'\n",
    ),
    (
        "sends.cgi",
        "#!/bin/sh\ncat >/dev/null\nprintf 'Location: /brief/fine.cgi\\n\\n'\n",
    ),
];

/// The programs above for FastCGI.
fn responder() -> FastCgiResponder {
    FastCgiResponder::start(|call| {
        let name = call.param("SCRIPT_NAME").unwrap_or_default();
        let pause = std::time::Duration::from_secs(if name.ends_with("/slow.php") { 4 } else { 0 });
        let long = match name.ends_with("/long.php") {
            true => "x".repeat(3_000),
            false => String::new(),
        };
        let said = printed(format!("X-Long: {long}.\r\n\r\nfine"));
        vec![Step::Idle(pause), Step::Send(said)]
    })
}

fn gateway(responder: &FastCgiResponder) -> Gateway {
    let builder = builder_of(CONFIG, "", "", "").with("upstream", responder.address());
    let directory = builder.directory().path().to_owned();
    for (name, text) in PROGRAMS {
        for place in ["", "brief/"] {
            program(&directory, &format!("{place}{name}"), text);
            let page = format!("{place}{name}").replace(".cgi", ".php");
            program(&directory, &page, "not shown");
        }
    }
    builder.start()
}

#[test]
fn a_rule_says_how_long_its_programs_may_be_silent_and_how_long_their_heads_are() {
    let responder = responder();
    let gateway = gateway(&responder);
    for (path, status) in [
        ("/fine", 200),
        ("/brief/fine", 200),
        ("/slow", 200),
        ("/brief/slow", 504),
        ("/long", 200),
        ("/brief/long", 502),
    ] {
        for kind in ["cgi", "php"] {
            let mut client = gateway.client().with_deadline(PATIENCE);
            client.send(&request(&format!("GET {path}.{kind}"), ""));
            let (got, _) = answer(client.read_reply(Body::Framed));
            assert_eq!(got, status, "{path}.{kind}");
        }
    }
    gateway.wait_for_message("the program said nothing for 2s (timeouts.upstream_read)");
    gateway.wait_for_message("the server said nothing for 2s (timeouts.upstream_read)");
}

#[test]
fn a_body_too_long_for_its_rule_starts_no_program() {
    let responder = responder();
    let gateway = gateway(&responder);
    for (path, bytes, status) in [
        ("/fine", 11, 200),
        ("/brief/fine", 10, 200),
        ("/brief/fine", 11, 413),
    ] {
        for kind in ["cgi", "php"] {
            let body = "x".repeat(bytes);
            let framed = [
                (format!("Content-Length: {bytes}\r\n"), body.clone()),
                (
                    "Transfer-Encoding: chunked\r\n".to_owned(),
                    format!("{bytes:x}\r\n{body}\r\n0\r\n\r\n"),
                ),
            ];
            for (fields, body) in framed {
                let mut client = gateway.client().with_deadline(PATIENCE);
                client.send(&request(&format!("POST {path}.{kind}"), &fields));
                client.send(body.as_bytes());
                let (got, _) = answer(client.read_reply(Body::Framed));
                assert_eq!(got, status, "{path}.{kind} {bytes} {fields}");
            }
        }
    }
    assert_eq!(responder.take_calls().len(), 4);
}

#[test]
fn a_body_that_a_program_has_taken_is_not_held_against_the_rule_it_sends_the_request_to() {
    let responder = responder();
    let gateway = gateway(&responder);
    let mut client = gateway.client().with_deadline(PATIENCE);
    for _ in 0..2 {
        client.send(&request("POST /sends.cgi", "Content-Length: 50\r\n"));
        client.send(&[b'x'; 50]);
        let answered = answer(client.read_reply(Body::Framed));
        assert_eq!(answered, (200, "fine".into()));
    }
}
