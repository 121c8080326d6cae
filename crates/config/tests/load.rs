//! A configuration becomes the model it says.

use config::{Sources, load};

use crate::written::{LISTEN, SITE, model};

/// Every kind of rule, as design and manual show them.
const WHOLE: &str = r#"
user = "www-data"
[control]
socket = "/run/nagaya.sock"
[[listen]]
address = "127.0.0.1:8080"
[log]
access = "/var/log/$site.log"
format = "json"
[timeouts]
header = "5s"
[caps]
fields = 50
[upstreams.app]
servers = ["127.0.0.1:9000", { address = "unix:/run/app.sock", weight = 2 }]
keepalive = 16
[[sites]]
hosts = ["Example.JP", "*.example.jp", "*"]
root = "/var/www/html"
index = ["index.htm"]
try = ["$path", "$path.html", "$path/", "/app.html"]
reply_headers = { set = { X-Frame-Options = "DENY" } }
  [[sites.rules]]
  match = { path = "/api/*", method = "GET", not = { client = "10.0.0.0/8" } }
  handler = { proxy = "app" }
  [[sites.rules]]
  match = { path = "/other/*" }
  handler = { proxy = "http://app.internal:81/base/" }
  [[sites.rules]]
  match = { path = "/again/*" }
  handler = { proxy = { upstream = "http://app.internal:81", buffer_reply = "8MiB", host = "upstream" } }
  [[sites.rules]]
  match = { path = "/health" }
  handler = { respond = { status = 200, body = "ok" } }
  [[sites.rules]]
  match = { path = "/old" }
  handler = { redirect = "https://$host$uri", status = 301 }
  [[sites.rules]]
  match = { path = "/metrics" }
  handler = { metrics = "prometheus" }
  [[sites.rules]]
  handler = { static = true }
"#;

#[test]
fn a_whole_configuration_loads() {
    let model = load(&Sources::from_text("nagaya.toml", WHOLE))
        .unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(model.upstreams.len(), 2, "equal URLs are one upstream");
    assert_eq!(model.sites[0].rules.len(), 7);
}

#[test]
fn the_demo_loads() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../nagaya.toml");
    let sources = Sources::read(path.as_ref()).unwrap_or_else(|problems| panic!("{problems}"));
    let model = load(&sources).unwrap_or_else(|problems| panic!("{problems}"));
    assert!(model.sites.iter().any(|site| !site.rules.is_empty()));
}

#[test]
fn all_denies_or_allows_every_client() {
    let text = format!("{LISTEN}{SITE}allow = 'all'\n[[sites.rules]]\ndeny = 'all'\n");
    let model = model(&text);
    let everybody = ["0.0.0.0/0", "::/0"].map(|net| net.parse().expect("a network"));
    assert_eq!(model.sites[0].settings.allow, everybody);
    assert_eq!(model.sites[0].rules[0].settings.deny, everybody);
}
