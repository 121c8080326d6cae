//! Sites over one directory, each with another way to serve it, and how to ask for their files.
#![allow(dead_code, reason = "not every test asks in every way")]

use std::os::unix::fs::PermissionsExt;

use testkit::client::Body;
use testkit::{Gateway, Outcome, Reply};

const CONFIG: &str = r#"
workers = 1
[[listen]]
address = "127.0.0.1:{port}"
[log]
access = ""
level = "warn"

[[sites]]
hosts = ["plain.test"]
root = "{dir}/www"
index = ["index.html", "start.html"]
slashes = "keep"

[[sites]]
hosts = ["list.test"]
root = "{dir}/www"
files = { listing = true }

[[sites]]
hosts = ["more.test"]
root = "{dir}/www"
files = { sources_add = ["*.inc"] }

[[sites]]
hosts = ["other.test"]
root = "{dir}/www"
files = { sources = ["*.inc"], sources_add = ["*.tpl"] }

[[sites]]
hosts = ["front.test"]
root = "{dir}/www"
try = ["$path", "$path/", "$path.html", "/app.php"]
[[sites.rules]]
match = { file = "*.php" }
handler = { respond = { status = 200, body = "run $path" } }
[[sites.rules]]
match = { exists = false }
handler = { respond = { status = 404, body = "nothing" } }

[[sites]]
hosts = ["status.test"]
root = "{dir}/www"
try = ["$path", "=410"]

[[sites]]
hosts = ["deny.test"]
root = "{dir}/www"
symlinks = "deny"

[[sites]]
hosts = ["allow.test"]
root = "{dir}/www"
symlinks = "allow"

[[sites]]
hosts = ["within.test"]
root = "{dir}/www"
within = "{dir}"
symlinks = "allow"
"#;

pub(crate) fn gateway(files: &[(&str, &[u8])]) -> Gateway {
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG);
    let directory = builder.directory();
    directory.write("www/hello.txt", "hello, world!\n");
    for (name, content) in files {
        directory.write(&format!("www/{name}"), content);
    }
    // The server may run as another user.
    let mode = |mode| std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(directory.path(), mode(0o755)).expect("open the test directory");
    builder.start()
}

pub(crate) fn ask(gateway: &Gateway, host: &str, start: &str, fields: &str) -> Reply {
    let mut client = gateway.client();
    client.send(format!("{start} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n").as_bytes());
    let body = match start.starts_with("HEAD ") {
        true => Body::Never,
        false => Body::Framed,
    };
    match client.read_reply(body) {
        Outcome::Reply(reply) => reply,
        other => panic!("{host} {start}: {other:?}"),
    }
}

pub(crate) fn get(gateway: &Gateway, host: &str, path: &str) -> Reply {
    ask(gateway, host, &format!("GET {path}"), "")
}

pub(crate) fn field(reply: &Reply, name: &str) -> String {
    reply.head.field(name).unwrap_or_default().to_owned()
}

pub(crate) fn text(reply: &Reply) -> String {
    String::from_utf8_lossy(&reply.body).into_owned()
}
