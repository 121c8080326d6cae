//! The table of the API's cases, each asked over HTTP of the running gateway.
//!
//! One gateway serves them all: a case is a site, whose rule is answered by the case's script.

use std::fmt::Write as _;
use std::path::Path;

use testkit::client::{Reply, reply};
use testkit::script_cases::{ScriptCase, cases};
use testkit::{Gateway, TempDir};

/// The budget of CPU time is more than by default, for machines with more to do.
const CONFIG: &str = r#"
workers = 1
[log]
level = "info"
[scripts]
cpu = "1s"
[upstreams.app]
servers = ["127.0.0.1:9001"]
[upstreams.two]
servers = ["localhost:9002", "127.0.0.1:9003"]
"#;

#[test]
fn every_case_holds_over_http() {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors");
    let cases: Vec<ScriptCase> = cases(&vectors)
        .into_iter()
        .filter(|case| case.only.as_deref() != Some("trial"))
        .collect();
    assert!(cases.len() >= 150, "{} cases", cases.len());
    let mut config = CONFIG.to_owned();
    for case in &cases {
        write_site(case, &mut config);
    }
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), &config);
    let root = builder.directory().path().join("www");
    let root = root.display().to_string();
    builder.directory().write("www/page.html", "page\n");
    for case in &cases {
        let case = case.clone().filled(&[("{root}", &root)]);
        write_scripts(&case, builder.directory());
    }
    let gateway = builder.start();
    let port = gateway.address().port().to_string();
    let values = [
        ("{root}", &*root),
        ("{port}", &*port),
        ("{app}", "127.0.0.1:9001"),
        ("{two}", "localhost:9002"),
    ];
    let mut failed = Vec::new();
    for case in cases {
        let case = case.filled(&values);
        if let Err(why) = check(&gateway, &case) {
            failed.push(format!("{}: {why}", case.id));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Scripts of a case before and after `content`, each with the name of its phase.
fn others(case: &ScriptCase) -> impl Iterator<Item = (&'static str, &str)> {
    let all = [
        ("rewrite", &case.rewrite),
        ("header_filter", &case.header_filter),
        ("body_filter", &case.body_filter),
    ];
    all.into_iter()
        .filter_map(|(phase, text)| Some((phase, text.as_deref()?)))
}

fn write_site(case: &ScriptCase, config: &mut String) {
    let (id, host) = (&case.id, case.host());
    let phases: Vec<String> = others(case)
        .map(|(phase, _)| format!("{phase} = \"cases/{id}.{phase}.rb\""))
        .collect();
    let written = write!(
        config,
        "\n[[sites]]\nhosts = [\"{host}\"]\nroot = \"{{dir}}/www\"\nscripts = {{ {} }}\n\
         \n  [[sites.rules]]\n  handler = {{ script = \"cases/{id}.rb\" }}\n",
        phases.join(", ")
    );
    written.expect("memory takes all");
}

fn write_scripts(case: &ScriptCase, directory: &TempDir) {
    let id = &case.id;
    directory.write(&format!("cases/{id}.rb"), &case.content);
    for (phase, text) in others(case) {
        directory.write(&format!("cases/{id}.{phase}.rb"), text);
    }
}

fn check(gateway: &Gateway, case: &ScriptCase) -> Result<(), String> {
    let reply = reply(gateway.client().ask(&request(case)));
    let shown = String::from_utf8_lossy(&reply.body);
    if reply.status != case.status {
        let (status, expected) = (reply.status, case.status);
        return Err(format!("status {status}, not {expected}: {shown}"));
    }
    if !case.says.holds(&reply.body) {
        return Err(format!("says {shown}, not {:?}", case.says));
    }
    fields_hold(case, &reply)
}

fn request(case: &ScriptCase) -> Vec<u8> {
    let mut head = format!(
        "{} {} HTTP/1.1\r\nHost: {}\r\n",
        case.method,
        case.target,
        case.host()
    );
    for (name, value) in &case.fields {
        head += &format!("{name}: {value}\r\n");
    }
    let body = case.body.as_deref().unwrap_or_default();
    if case.body.is_some() {
        head += &format!("Content-Length: {}\r\n", body.len());
    }
    (head + "\r\n" + body).into_bytes()
}

fn fields_hold(case: &ScriptCase, reply: &Reply) -> Result<(), String> {
    let has = |name: &str, value: &str| {
        let mut fields = reply.head.fields.iter();
        fields.any(|(known, there)| known.eq_ignore_ascii_case(name) && there == value)
    };
    if let Some((name, value)) = case.has.iter().find(|(name, value)| !has(name, value)) {
        return Err(format!("no field {name}: {value}"));
    }
    match case.lacks.iter().find(|name| reply.head.count(name) > 0) {
        Some(name) => Err(format!("has the field {name}")),
        None => Ok(()),
    }
}
