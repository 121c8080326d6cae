//! A configuration becomes the model it says.

use config::model::{Handler, LevelCaps, LevelTimeouts, Template};
use config::{Sources, load};

use crate::written::{LISTEN, SITE, model, problems};

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
fn what_a_proxy_rewrites_is_kept_in_the_order_it_is_written() {
    let redirects = |keys: &str| {
        let proxy = format!("{{ upstream = \"http://a\", {keys} }}");
        let text = format!("{LISTEN}{SITE}rules = [{{ handler = {{ proxy = {proxy} }} }}]\n");
        match &model(&text).sites[0].rules[0].handler {
            Some(Handler::Proxy(proxy)) => proxy.redirects.clone(),
            other => panic!("{other:?}"),
        }
    };
    let own_only = Some(Box::default());
    assert_eq!(redirects(""), own_only);
    assert_eq!(redirects("proxy_redirect = true"), own_only);
    assert_eq!(redirects("proxy_redirect = false"), None);
    let said = redirects(
        "proxy_redirect = { location = { \"http://b/\" = \"/\", \"/a\" = \"https://$host/\" }, \
         cookie_domain = { \".b.test\" = \"\", \"a\" = \"$host\" }, cookie_path = { \"/\" = \"$path\" } }",
    );
    let said = said.expect("something");
    let from = |rewrites: &[(String, Template)]| -> Vec<String> {
        rewrites.iter().map(|(from, _)| from.clone()).collect()
    };
    assert_eq!(from(&said.location), ["http://b/", "/a"]);
    assert_eq!(from(&said.cookie_domain), ["b.test", "a"]);
    assert_eq!(from(&said.cookie_path), ["/"]);
    assert!(said.cookie_domain[0].1.parts.is_empty());
    let many: Vec<_> = (0..33).map(|at| format!("\"/{at}\" = \"/\"")).collect();
    let keys = format!(
        "proxy_redirect = {{ location = {{ {} }} }}",
        many.join(", ")
    );
    let proxy = format!("{{ upstream = \"http://a\", {keys} }}");
    let text = format!("{LISTEN}{SITE}rules = [{{ handler = {{ proxy = {proxy} }} }}]\n");
    let told = problems(&Sources::from_text("nagaya.toml", &text));
    assert!(
        told.contains("`location` may hold at most 32 entries"),
        "{told}"
    );
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

#[test]
fn a_site_and_its_rules_have_the_numbers_they_say_and_no_others() {
    let model = model(&format!(
        "{LISTEN}[timeouts]\nupstream_read = \"7s\"\n\
         {SITE}caps = {{ body_bytes = 0, requests_per_connection = 0 }}\ntimeouts = {{ idle = \"1d\" }}\n\
         [[sites.rules]]\ncaps = {{ body_bytes = \"2GiB\", upstream_head_bytes = \"64KiB\" }}\n\
         [[sites.rules]]\nhandler = {{ static = true }}\ntimeouts = {{ upstream_read = \"90s\", write = \"1ms\" }}\n"
    ));
    let site = &model.sites[0];
    let (of_site, first, second) = (
        &site.settings,
        &site.rules[0].settings,
        &site.rules[1].settings,
    );
    let caps = |body_bytes, upstream_head_bytes, requests_per_connection| LevelCaps {
        body_bytes,
        upstream_head_bytes,
        requests_per_connection,
    };
    let timeouts = |upstream_read_ms, write_ms, idle_ms| LevelTimeouts {
        upstream_read_ms,
        write_ms,
        idle_ms,
    };
    assert_eq!(of_site.caps, caps(Some(0), None, Some(0)));
    assert_eq!(of_site.timeouts, timeouts(None, None, Some(86_400_000)));
    assert_eq!(first.caps, caps(Some(2 << 30), Some(64 << 10), None));
    assert_eq!(first.timeouts, LevelTimeouts::default());
    assert_eq!(second.caps, LevelCaps::default());
    assert_eq!(second.timeouts, timeouts(Some(90_000), Some(1), None));
    assert_eq!(
        model.timeouts.upstream_read_ms, 7_000,
        "the process keeps its own"
    );
}

#[test]
fn what_a_rule_leaves_out_of_compression_is_as_its_site_says() {
    let text = format!(
        "{LISTEN}{SITE}compress = {{ level = 1, types = [\"Text/HTML\", \"application/*\"], min_bytes = 10 }}\n\
         [[sites.rules]]\ncompress = {{ programs = false, min_bytes = \"2KiB\" }}\n\
         [[sites.rules]]\nhandler = {{ static = true }}\n{}files = {{ compress_min_bytes = 5 }}\n",
        SITE.replace('*', "other.test")
    );
    let model = model(&text);
    let site = &model.sites[0];
    let types = Some(vec!["text/html".to_owned(), "application/*".to_owned()]);
    let compress = &site.compress;
    assert_eq!((compress.level, compress.min_bytes), (1, 10));
    assert!(compress.types == types && compress.programs);
    assert_eq!(site.files.compress_min_bytes, 10);
    let own = site.rules[0].compress.as_ref().expect("its own");
    assert_eq!((own.level, own.min_bytes), (1, 2048));
    assert!(own.types == types && !own.programs);
    assert!(site.rules[1].compress.is_none());
    let other = &model.sites[1];
    let compress = &other.compress;
    assert_eq!((compress.level, compress.min_bytes), (5, 1024));
    assert!(compress.types.is_none() && compress.programs);
    assert_eq!(other.files.compress_min_bytes, 5);
}

#[test]
fn an_error_log_that_may_be_given_away_is_not_the_access_log_of_all() {
    for (error, is_refused) in [("$site.error.log", false), ("$site.log", true)] {
        let log = format!("log = {{ error = \"/var/log/{error}\" }}\nroot =");
        let text = WHOLE.replace("root =", &log);
        let told = match load(&Sources::from_text("nagaya.toml", &text)) {
            Ok(_) => String::new(),
            Err(told) => told.to_string(),
        };
        let is_told = told.contains("`access` and `error` are one file");
        assert_eq!(
            (is_told, told.is_empty()),
            (is_refused, !is_refused),
            "{told}"
        );
    }
}
