//! A configuration becomes the model it says.

use config::model::{AcmeChallenge, Handler, LevelCaps, LevelTimeouts, Template};
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

#[test]
fn nobody_else_writes_where_a_sites_user_may_read() {
    let site = |host: &str, user: &str, log: &str| {
        let user = match user {
            "" => String::new(),
            user => format!("user = \"{user}\"\n"),
        };
        format!("[[sites]]\nhosts = [\"{host}\"]\n{user}root = \"/srv\"\nlog = {{ {log} }}\n")
    };
    let errors = "access = \"/logs/a.access\", error = \"/logs/a\"";
    let theirs = "`/logs/a` is user `one`'s to read, and another site writes there";
    let one_file = "`access` and `error` are one file";
    for (first, second, expected) in [
        (
            ("one", errors),
            ("two", "access = \"\", error = \"/logs/$site\""),
            "",
        ),
        (("one", errors), ("two", "access = \"/logs/a\""), theirs),
        (("two", "access = \"/logs/a\""), ("one", errors), theirs),
        (("one", errors), ("two", errors), theirs),
        (("one", errors), ("", errors), theirs),
        (("one", errors), ("one", errors), ""),
        (("", errors), ("", errors), ""),
        (("", errors), ("two", "access = \"/logs/a\""), ""),
        (
            ("one", errors),
            (
                "two",
                "access = \"\" }\nrules = [{ log = { access = \"/logs/a\" } }]\n# {",
            ),
            theirs,
        ),
        (
            ("one", "access = \"/logs/$host\", error = \"/logs/a\""),
            ("two", ""),
            one_file,
        ),
        (
            ("", "access = \"/logs/$host\", error = \"/logs/a\""),
            ("two", ""),
            one_file,
        ),
    ] {
        let sites = site("a", first.0, first.1) + &site("b", second.0, second.1);
        let told = match load(&Sources::from_text(
            "nagaya.toml",
            &format!("{LISTEN}{sites}"),
        )) {
            Ok(_) => String::new(),
            Err(told) => told.to_string(),
        };
        assert!(told.contains(expected), "{sites}: {told}");
        assert_eq!(told.is_empty(), expected.is_empty(), "{sites}: {told}");
    }
}

#[test]
fn tls_is_said_of_listeners_the_process_and_sites() {
    use config::model::{ClientAuth, ListenTls, TlsVersion};
    let text = r#"
[[listen]]
address = "127.0.0.1:80"
[[listen]]
address = "127.0.0.1:443"
tls = true
[[listen]]
address = "127.0.0.1:444"
tls = { default = "WWW.Example.jp." }
[tls]
certificates = ["certs/*.pem", "/etc/letsencrypt/live/*"]
versions = ["1.3", "1.2", "1.3"]
tickets = "1h"
[[sites]]
hosts = ["a.example"]
root = "/srv"
tls = { certificate = "a.pem", client_ca = "staff.pem", client_auth = "ask", redirect = true, hsts = "365d" }
[[sites]]
hosts = ["b.example"]
root = "/srv"
tls = { certificate = "b.pem", key = "b.key" }
[[sites]]
hosts = ["c.example"]
root = "/srv"
[[sites]]
hosts = ["d.example"]
root = "/srv"
tls = { local = true }
"#;
    let sources = Sources::from_text("/etc/nagaya/nagaya.toml", text)
        .with_file("/etc/nagaya/staff.pem", b"authorities");
    let model = load(&sources).expect("valid");
    let listeners: Vec<_> = model.listeners.iter().map(|it| it.tls.clone()).collect();
    let named = |default: Option<&str>| {
        let default = default.map(str::to_owned);
        Some(ListenTls { default })
    };
    assert_eq!(
        listeners,
        [None, named(None), named(Some("www.example.jp"))]
    );
    let certificates = ["/etc/nagaya/certs/*.pem", "/etc/letsencrypt/live/*"];
    assert_eq!(model.tls.certificates, certificates);
    assert_eq!(model.tls.versions, [TlsVersion::V12, TlsVersion::V13]);
    assert_eq!(model.tls.tickets_ms, 3_600_000);
    let [a, b, c, d] = &model.sites[..] else {
        panic!("four sites");
    };
    assert!(d.tls.local && d.tls.files.is_none() && !a.tls.local);
    let files = a.tls.files.as_ref().expect("a certificate of its own");
    assert_eq!(files.certificate.to_str(), Some("/etc/nagaya/a.pem"));
    assert_eq!(files.key, files.certificate);
    let client = a.tls.client.as_ref().expect("client certificates");
    assert_eq!(client.mode, ClientAuth::Ask);
    assert_eq!(&client.authorities[..], b"authorities");
    assert_eq!((a.tls.redirect, a.tls.hsts_s), (true, Some(31_536_000)));
    let files = b.tls.files.as_ref().expect("a certificate of its own");
    assert_eq!(files.key.to_str(), Some("/etc/nagaya/b.key"));
    assert_eq!(*c.tls, config::model::SiteTls::default());
    let guarded: Vec<_> = model.guarded.iter().map(|file| &*file.path).collect();
    for key in ["/etc/nagaya/a.pem", "/etc/nagaya/b.key"] {
        assert!(guarded.contains(&std::path::Path::new(key)), "{guarded:?}");
    }
}

#[test]
fn sites_have_their_certificates_ordered_with_accounts() {
    let hosts: Vec<String> = (0..101).map(|i| format!("\"{i}.many.example\"")).collect();
    let text = format!(
        r#"
[[listen]]
address = "127.0.0.1:443"
tls = true
[acme.le]
directory = "https://ca.example/directory"
contact = ["ops@example.jp", "https://example.jp/contact"]
fallback = "other"
[acme.other]
directory = "https://b.example/"
eab = {{ id = "kid-1", key = "eab.key" }}
challenges = ["tls-alpn-01", "http-01"]
store = "store"
lease = "1m"
[[sites]]
hosts = ["www.example.jp", "*.example.jp", "example.jp"]
root = "/srv"
tls = {{ acme = "le" }}
[[sites]]
hosts = ["c.example"]
root = "/srv"
[[sites]]
hosts = [{}]
root = "/srv"
tls = {{ acme = "other" }}
"#,
        hosts.join(", ")
    );
    let sources = Sources::from_text("/etc/nagaya/nagaya.toml", &text);
    let (model, warnings) = config::load_and_warn(&sources).expect("valid");
    let [le, other] = &model.acme[..] else {
        panic!("two accounts");
    };
    let contact = ["mailto:ops@example.jp", "https://example.jp/contact"];
    assert_eq!(le.contact, contact);
    assert_eq!((&le.fallback[..], le.lease_ms), (&[1][..], 30_000));
    assert_eq!(le.store.to_str(), Some("/var/lib/nagaya/acme/le"));
    let binding = other.binding.as_ref().expect("a binding");
    assert_eq!(binding.key.to_str(), Some("/etc/nagaya/eab.key"));
    assert_eq!(other.store.to_str(), Some("/etc/nagaya/store/other"));
    assert_eq!(le.challenges, [AcmeChallenge::Http01]);
    let both = [AcmeChallenge::TlsAlpn01, AcmeChallenge::Http01];
    assert_eq!(other.challenges, both);
    let wanted: Vec<_> = model.acme_certificates().collect();
    let shown = |index: usize| {
        let wanted: &config::model::AcmeCertificate = &wanted[index];
        (
            wanted.name.as_str(),
            wanted.account,
            wanted.names.len(),
            wanted.site,
        )
    };
    assert_eq!(shown(0), ("www.example.jp", 0, 2, 0));
    assert_eq!(shown(1), ("0.many.example", 1, 100, 2));
    assert_eq!(shown(2), ("100.many.example", 1, 1, 2));
    assert_eq!(wanted.len(), 3);
    let file = "/var/lib/nagaya/acme/le/certificates/www.example.jp.pem";
    assert_eq!(wanted[0].file(&model).to_str(), Some(file));
    let told = warnings.to_string();
    assert!(
        told.contains("no certificate is ordered for `*.example.jp`"),
        "{told}"
    );
}

const DEMANDING: &str = r#"
[[listen]]
address = "127.0.0.1:443"
tls = true
[maps.customers]
program = ["true"]
[acme.le]
directory = "https://ca.example/directory"
on_demand = { map = "customers", tenant = 5 }
[acme.other]
directory = "https://b.example/"
[[sites]]
hosts = ["www.example.jp", "*.shops.example.jp", "*"]
root = "/srv"
tls = { acme = "le" }
[[sites]]
hosts = ["own.shops.example.jp", "*.inner.shops.example.jp"]
root = "/srv"
tls = { acme = "other" }
"#;

#[test]
fn names_that_a_site_covers_by_a_pattern_alone_are_ordered_on_demand() {
    let sources = Sources::from_text("/etc/nagaya/nagaya.toml", DEMANDING);
    let (model, warnings) = config::load_and_warn(&sources).expect("valid");
    let demand = model.acme[0].on_demand.as_ref().expect("it is said");
    let counts = (demand.per_tenant, demand.per_domain, demand.in_all);
    assert_eq!((counts, demand.names), ((5, 25, 100), 10_000));
    assert_eq!(demand.unused_ms, 30 * 86_400_000);
    // The other account has none.
    assert_eq!(warnings.count(), 1, "{warnings}");
    let hosts = model.demanded_hosts().expect("there are some");
    let long = format!("{}.jp", "a".repeat(64));
    let longer = "a.".repeat(126) + "jp";
    for (host, is_covered) in [
        ("a.shops.example.jp", true),
        ("a.b.shops.example.jp", true),
        ("example.com", true),
        ("xn--85x722f.jp", true),
        ("www.example.jp", false),
        ("own.shops.example.jp", false),
        ("a.inner.shops.example.jp", false),
        ("*.shops.example.jp", false),
        ("a_b.example.com", false),
        ("-a.example.com", false),
        ("A.example.com", false),
        ("a..example.com", false),
        ("example.com.", false),
        ("../example.com", false),
        ("localhost", false),
        ("192.0.2.7", false),
        ("", false),
        (&long, false),
        (&longer, false),
    ] {
        assert_eq!(hosts.covering(host).is_some(), is_covered, "{host}");
    }
    let covering = hosts.covering("example.com").expect("covered");
    assert_eq!((covering.account, covering.site), (0, 0));
    // Where a wildcard is ordered, names right below it are not.
    let wild = "challenges = [\"dns-01\"]\ndns = { program = [\"true\"] }\non_demand";
    let wild = DEMANDING.replacen("on_demand", wild, 1);
    let model = config::load(&Sources::from_text("/etc/nagaya/nagaya.toml", &wild)).expect("valid");
    let hosts = model.demanded_hosts().expect("there are some");
    for (host, is_covered) in [
        ("a.shops.example.jp", false),
        ("a.b.shops.example.jp", true),
        ("example.com", true),
    ] {
        assert_eq!(hosts.covering(host).is_some(), is_covered, "{host}");
    }
}

#[test]
fn nothing_is_ordered_on_demand_without_a_map() {
    for (wrong, complaint) in [
        ("{ tenant = 5 }", "map"),
        ("{ map = \"customer\" }", "there is no map `customer`"),
        ("true", "on_demand"),
    ] {
        let text = DEMANDING.replace("{ map = \"customers\", tenant = 5 }", wrong);
        let told = config::load(&Sources::from_text("a.toml", &text)).expect_err(wrong);
        assert!(told.to_string().contains(complaint), "{told}");
    }
}

#[test]
fn wildcards_are_ordered_where_records_show_them_and_stand_for_what_they_are_good_for() {
    let text = r#"
[[listen]]
address = "127.0.0.1:443"
tls = true
[acme.le]
directory = "https://ca.example/directory"
challenges = ["dns-01"]
dns = { program = ["./dns.sh", "zone"] }
[[sites]]
hosts = ["www.example.jp", "example.jp", "*.example.jp", "a.b.example.jp", "*"]
root = "/srv"
tls = { acme = "le" }
"#;
    let sources = Sources::from_text("/etc/nagaya/nagaya.toml", text);
    let (model, warnings) = config::load_and_warn(&sources).expect("valid");
    let dns = model.acme[0].dns.as_ref().expect("a program");
    assert_eq!(dns.program.command, ["./dns.sh", "zone"]);
    assert_eq!(dns.program.directory.to_str(), Some("/etc/nagaya"));
    let user = (dns.program.user.as_str(), dns.program.has_own_user);
    assert_eq!((user, dns.timeout_ms), (("nagaya-dns", false), 120_000));
    let wanted: Vec<_> = model.acme_certificates().collect();
    assert_eq!(
        wanted[0].names,
        ["example.jp", "*.example.jp", "a.b.example.jp"]
    );
    let told = warnings.to_string();
    assert!(
        told.contains("no certificate is ordered for `*`\n"),
        "{told}"
    );
    let unused = text.replace("[\"dns-01\"]", "[\"http-01\"]");
    let sources = Sources::from_text("a.toml", &unused);
    let (_, warnings) = config::load_and_warn(&sources).expect("valid");
    let told = warnings.to_string();
    assert!(told.contains("`dns` says nothing"), "{told}");
    assert!(told.contains("ordered for `*.example.jp`"), "{told}");
}

#[test]
fn tls_of_a_site_that_no_listener_speaks_is_warned_of() {
    let text = format!("{LISTEN}{SITE}tls = {{ hsts = \"1d\" }}\n");
    let (_, warnings) = config::load_and_warn(&Sources::from_text("a.toml", &text)).expect("valid");
    assert!(warnings.to_string().contains("no listener speaks TLS"));
    let text = text.replace("[[sites]]", "tls = true\n[[sites]]");
    let (_, warnings) = config::load_and_warn(&Sources::from_text("a.toml", &text)).expect("valid");
    assert_eq!(warnings.count(), 0, "{warnings}");
}

#[test]
fn rules_below_one_that_answers_everything_are_warned_of() {
    let warned = |first: &str, more: &str| {
        let answer = "handler = { respond = { body = \"\" } }";
        let text = format!(
            "{LISTEN}[[sites]]\nhosts = [\"a\"]\nrules = [\n{{ {} }},\n{{ {answer} }},{}]\n",
            first.replace("ANSWER", answer),
            more.replace("ANSWER", answer)
        );
        let sources = Sources::from_text("a.toml", &text);
        let (_, warnings) = config::load_and_warn(&sources).expect(first);
        warnings.to_string()
    };
    for first in [
        "ANSWER",
        "match = { path = \"*\" }, ANSWER",
        "match = { path = [\"/a\", \"/*\"] }, ANSWER",
        "match = { client = [\"::/0\", \"0.0.0.0/0\"] }, ANSWER",
    ] {
        let told = warned(first, "");
        assert!(
            told.contains("the rule is never reached: `rule 1` above answers every request"),
            "{first}: {told}"
        );
        assert!(told.contains("a.toml:"), "{told}");
    }
    for first in [
        "match = { path = \"/*.php\" }, ANSWER",
        "match = { path = \"/\" }, ANSWER",
        "match = { path = \"*\", method = \"GET\" }, ANSWER",
        "match = { client = \"0.0.0.0/0\" }, ANSWER",
        "match = { not = { path = \"/a\" } }, ANSWER",
        "deny = [\"192.0.2.1\"]",
    ] {
        assert_eq!(warned(first, ""), "", "{first}");
    }
    // Said once, at the first.
    let told = warned("name = \"all\", ANSWER", "{ ANSWER }, { ANSWER }");
    assert!(told.contains("the rule and the 2 below it are never reached: `all` above"));
    assert_eq!(told.matches("never reached").count(), 1, "{told}");
    assert_eq!(warned("match = { method = \"GET\" }, ANSWER", ""), "");
}

#[test]
fn tls_to_servers_is_believed_by_a_file_or_by_the_machine_which_share_what_they_hold() {
    let text = r#"
[[listen]]
address = "127.0.0.1:80"
[upstreams.a]
servers = ["a.internal:443"]
tls = true
[upstreams.b]
servers = ["b.internal:443"]
tls = { ca = "own.pem", name = "B.internal", certificate = "we.pem", key = "we.key" }
[upstreams.c]
servers = ["c.internal:443"]
tls = { verify = false }
[[sites]]
hosts = ["a"]
rules = [
  { match = { path = "/a" }, handler = { proxy = "a" } },
  { match = { path = "/b" }, handler = { proxy = "b" } },
  { match = { path = "/c" }, handler = { proxy = "c" } },
  { match = { path = "/d" }, handler = { proxy = "https://D.example/v1" } },
  { handler = { proxy = "http://d.example" } },
]
"#;
    let sources = Sources::from_text("/etc/nagaya/nagaya.toml", text)
        .with_file("/etc/ssl/certs/ca-certificates.crt", b"the machine's")
        .with_file("/etc/nagaya/own.pem", b"own");
    let (model, warnings) = config::load_and_warn(&sources).expect("valid");
    let warned = warnings.to_string();
    assert!(
        warned.contains("can read and change everything"),
        "{warned}"
    );
    assert_eq!(warned.matches("can read and change").count(), 1);
    let upstream = |name: &str| {
        let mut upstreams = model.upstreams.iter();
        upstreams
            .find(|upstream| upstream.name == name)
            .expect(name)
    };
    let tls = |name: &str| upstream(name).tls.clone().expect(name);
    let url = tls("https://d.example:443");
    assert_eq!(&*tls("a").authorities, b"the machine's");
    assert!(std::sync::Arc::ptr_eq(
        &tls("a").authorities,
        &url.authorities
    ));
    assert_eq!(
        (tls("a").file.as_deref(), url.name.as_deref()),
        (None, None)
    );
    let own = tls("b");
    assert_eq!(&*own.authorities, b"own");
    assert_eq!(
        own.file.as_deref(),
        Some(std::path::Path::new("/etc/nagaya/own.pem"))
    );
    assert_eq!(
        (own.name.as_deref(), own.verify),
        (Some("b.internal"), true)
    );
    let files = own.certificate.as_ref().expect("a certificate to be shown");
    assert_eq!(files.certificate.to_str(), Some("/etc/nagaya/we.pem"));
    assert_eq!(files.key.to_str(), Some("/etc/nagaya/we.key"));
    let mut guarded = model.guarded.iter();
    assert!(guarded.any(|file| *file.path == *files.key), "never served");
    assert!(!tls("c").verify && tls("c").authorities.is_empty());
    assert!(
        upstream("http://d.example:80").tls.is_none(),
        "another upstream"
    );
}
