//! What a configuration says of scripts: where they stand, what they are called, what they may use.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::written::{LISTEN, SITE, model};
use config::model::{
    AllowedAddress, Cache, Handler, Mode, OnError, ProxyTarget, Script, ServerClass, Source,
};
use config::{Sources, load};

/// A script at every place there is.
const EVERYWHERE: &str = r#"
[scripts]
server = "apache"
init = ["hooks/init.rb", { code = "p 0" }]
worker_init = { file = "hooks/worker_init.rb" }
worker_exit = { code = "p 1" }
lib = ["lib", "/usr/share/ruby"]
cache_files = "kept"
rewrite = "process/rewrite.rb"
access = ["process/access.rb", { file = "process/second.rb", cache = "never", on_error = "allow" }]
log = { file = "process/log.rb", cache = "always", optional = true }
[[listen]]
address = "127.0.0.1:8080"
[tenants.example]
scripts = { header_filter = "tenant/header_filter.rb" }
scripts_vm = "own"
[[sites]]
hosts = ["example.jp"]
tenant = "example"
root = "/srv"
scripts = { body_filter = "site/body_filter.rb", rewrite = { code = "p \"a\\n\"\np 2" } }
  [[sites.rules]]
  scripts = { access = "rule/access.rb" }
  [[sites.rules]]
  match = { path = "/api/*" }
  handler = { proxy = { script = "hooks/route.rb", allow = ["10.0.0.0/8", "[::1]:9000"], host = "upstream" } }
  [[sites.rules]]
  handler = { script = { file = "/opt/app.rb", cache = "never" } }
"#;

fn names(scripts: &[Script]) -> Vec<&str> {
    scripts.iter().map(|script| &*script.name).collect()
}

#[test]
fn scripts_that_choose_certificates_stand_before_rules_and_run_where_a_site_lets_them() {
    let config = |process: &str, site: &str| {
        format!(
            "{process}[[listen]]\naddress = \"127.0.0.1:8443\"\ntls = true\n\
             [tls]\nscript_files = \"customers\"\n[[sites]]\nhosts = [\"a.example\"]\n{site}\
             rules = [{{ handler = {{ respond = {{ body = \"x\" }} }} }}]\n"
        )
    };
    let own = "tls = { script = true }\nscripts = { ssl_handshake = { code = \"p 1\", on_error = \"allow\" } }\n";
    let model = model(&config("", own));
    assert_eq!(model.tls.script_files, [PathBuf::from("/customers")]);
    let site = &model.sites[0];
    assert!(site.tls.script && site.scripts.ssl_handshake[0].on_error == OnError::Allow);
    let warned = |process: &str, site: &str| {
        let sources = Sources::from_text("nagaya.toml", &config(process, site));
        let (_, warnings) = config::load_and_warn(&sources).unwrap_or_else(|it| panic!("{it}"));
        warnings.to_string()
    };
    let process = "[scripts]\nssl_handshake = { code = \"p 1\" }\n";
    assert_eq!(warned("", own), "");
    assert_eq!(warned(process, "tls = { script = true }\n"), "");
    let told = warned("", "tls = { script = true }\n");
    assert!(told.contains("no script runs in its handshakes"), "{told}");
    for (script, problem) in [
        (
            "{ code = \"p 1\", mode = \"shadow\" }",
            "`mode` says nothing of `ssl_handshake`",
        ),
        (
            "{ code = \"p 1\", optional = true }",
            "`optional` says nothing of `ssl_handshake`",
        ),
    ] {
        let text = config("", &format!("scripts = {{ ssl_handshake = {script} }}\n"));
        let told = load(&Sources::from_text("nagaya.toml", &text)).expect_err(script);
        assert!(told.to_string().contains(problem), "{told}");
    }
    let rule = "rules = [{ scripts = { ssl_handshake = { code = \"p 1\" } } }]\n";
    let text = config("", "").replace("rules = [{ ", &rule.replace("}]\n", "}, { "));
    let told = load(&Sources::from_text("nagaya.toml", &text)).expect_err("on a rule");
    assert!(
        told.to_string()
            .contains("`ssl_handshake` cannot stand on a rule"),
        "{told}"
    );
}

#[test]
fn every_level_holds_the_scripts_written_on_it() {
    let model = model(EVERYWHERE);
    let process = &model.scripts;
    assert_eq!(process.server, ServerClass::Apache);
    assert_eq!(process.init[0].path(), path("/hooks/init.rb"));
    assert_eq!(process.init.len(), 2, "one after another");
    assert_eq!(process.worker_exit[0].path(), None);
    assert_eq!(*process.cache_files, [PathBuf::from("/kept")]);
    let libraries = process.lib.iter().map(|library| &library.directory);
    let expected = ["/lib", "/usr/share/ruby"].map(PathBuf::from);
    assert!(libraries.eq(&expected), "{:?}", process.lib);
    assert_eq!(names(&process.phases.rewrite), ["/process/rewrite.rb"]);
    let access = &process.phases.access;
    assert_eq!(names(access), ["/process/access.rb", "/process/second.rb"]);
    let tenant = &model.tenants[0].scripts;
    assert_eq!(names(&tenant.header_filter), ["/tenant/header_filter.rb"]);
    let site = &model.sites[0];
    assert_eq!(names(&site.scripts.body_filter), ["/site/body_filter.rb"]);
    let rules = &site.rules;
    assert_eq!(names(&rules[0].scripts.access), ["/rule/access.rb"]);
    let Some(Handler::Proxy(proxy)) = &rules[1].handler else {
        panic!("{rules:?}");
    };
    let ProxyTarget::Script(script) = &proxy.target else {
        panic!("{proxy:?}");
    };
    assert_eq!((proxy.upstream(), proxy.allow.len()), (None, 2));
    assert_eq!(script.path(), path("/hooks/route.rb"));
    let content = rules[2].handler.as_ref().unwrap().script().unwrap();
    assert_eq!(content.path(), path("/opt/app.rb"));
    assert_eq!(model.all_scripts().count(), 14);
}

#[test]
fn tenants_with_scripts_have_vms_of_their_own_where_there_are_two_or_they_say_so() {
    let log = "scripts = { log = 'a.rb' }";
    let site =
        |host: &str, more: &str| format!("[[sites]]\nhosts = ['{host}']\nroot = '/srv'\n{more}\n");
    let (a, b) = (
        site("a", log),
        site("b", "rules = [{ scripts = { log = 'a.rb' } }]"),
    );
    let content = site("c", "rules = [{ handler = { script = 'a.rb' } }]");
    let plain = site("d", "");
    let of =
        |host: &str, tenant: &str, more: &str| site(host, &format!("tenant = '{tenant}'\n{more}"));
    let two_of_one = of("a", "t", log) + &of("b", "t", log);
    let one_without = of("a", "t", "") + &of("b", "u", log);
    let tenants = |t: &str, u: &str| format!("[tenants.t]\n{t}\n[tenants.u]\n{u}\n");
    let both = of("a", "t", log) + &of("b", "u", log);
    let (own, shared) = ("scripts_vm = 'own'", "scripts_vm = 'shared'");
    for (text, expected) in [
        (format!("[scripts]\nlog = 'a.rb'\n{plain}"), &[][..]),
        (format!("{a}{plain}"), &[]),
        (format!("{a}{b}{plain}"), &["a", "b"]),
        (format!("{a}{b}{content}"), &["a", "b", "c"]),
        (two_of_one, &[]),
        (format!("[scripts]\nlog = 'a.rb'\n{one_without}"), &[]),
        (tenants("", "") + &both, &["t", "u"]),
        (tenants(shared, "") + &both, &["u"]),
        (tenants(shared, shared) + &both, &[]),
        (tenants(log, "") + &one_without, &["t", "u"]),
        (tenants(own, "") + &one_without, &[]),
        (tenants("", own) + &one_without, &["u"]),
    ] {
        let model = model(&format!("{LISTEN}{text}"));
        let found: Vec<_> = model.own_vms().into_iter().collect();
        assert_eq!(found, expected, "{text}");
    }
}

fn path(name: &str) -> Option<&Path> {
    Some(Path::new(name))
}

#[test]
fn a_script_says_when_it_is_compiled_and_what_a_raise_means() {
    let model = model(EVERYWHERE);
    let facts = |script: &Script| (script.cache, script.on_error, script.optional);
    let phases = &model.scripts.phases;
    let plain = (Cache::Mtime, OnError::Deny, false);
    assert_eq!(facts(&phases.access[0]), plain);
    assert_eq!(
        facts(&phases.access[1]),
        (Cache::Never, OnError::Allow, false)
    );
    assert_eq!(facts(&phases.log[0]), (Cache::Always, OnError::Deny, true));
    // What runs once is compiled once.
    let once = (Cache::Always, OnError::Deny, false);
    assert_eq!(facts(&model.scripts.init[0]), once);
    assert_eq!(facts(&model.sites[0].scripts.rewrite[0]), once);
}

#[test]
fn a_script_that_runs_before_the_reply_may_be_tried_in_shadow() {
    let phases = ["rewrite", "access", "header_filter", "body_filter"];
    let scripts = phases.map(|phase| format!("{phase} = {{ file = \"a.rb\", mode = \"shadow\" }}"));
    let site = format!("{LISTEN}{SITE}scripts = {{ {} }}\n", scripts.join(", "));
    let tried = model(&site);
    let mut all = tried.sites[0].scripts.iter();
    assert!(all.all(|script| script.mode == Mode::Shadow));
    assert_eq!(model(&config::dump(&tried)), tried);
    assert_ne!(model(&site.replace("shadow", "enforce")), tried);
}

#[test]
fn inline_code_is_called_by_the_line_it_begins_on() {
    let text = format!(
        "{LISTEN}{SITE}scripts = {{ access = {{ code = \"p 1\" }}, log = {{ code = '''\np 2\np 3''' }} }}\n\
         [[sites.rules]]\nhandler = {{ script = {{ code = \"\"\"p 4\n\"\"\" }} }}\n"
    );
    let model = model(&text);
    let site = &model.sites[0];
    assert_eq!(names(&site.scripts.access), ["nagaya.toml:6"]);
    assert_eq!(names(&site.scripts.log), ["nagaya.toml:7"]);
    let content = site.rules[0].handler.as_ref().unwrap().script().unwrap();
    assert_eq!(&*content.name, "nagaya.toml:10");
    assert_eq!(content.source, Source::Code("p 4\n".into()));
}

#[test]
fn equal_levels_share_their_scripts_but_not_the_lines_of_code() {
    let site = |host: u32, scripts: &str| {
        format!("[[sites]]\nhosts = [\"h{host}\"]\nroot = \"/srv\"\nscripts = {{ {scripts} }}\n")
    };
    let (file, code) = ("access = \"a.rb\"", "access = { code = \"p 1\" }");
    let sites = [file, file, "", "", code, code];
    let sites: String = (0..)
        .zip(sites)
        .map(|(host, scripts)| site(host, scripts))
        .collect();
    let sites = model(&format!("{LISTEN}{sites}")).sites;
    for shared in [0, 2] {
        assert!(Arc::ptr_eq(
            &sites[shared].scripts,
            &sites[shared + 1].scripts
        ));
    }
    assert_eq!(sites[4].scripts, sites[5].scripts);
    let lines = [4, 5].map(|site| &*sites[site].scripts.access[0].name);
    assert_ne!(lines[0], lines[1]);
}

#[test]
fn the_files_of_all_scripts_are_listed_once() {
    let model = model(EVERYWHERE);
    let files: Vec<&str> = model
        .guarded
        .iter()
        .filter_map(|file| file.path.to_str())
        .collect();
    let expected = [
        "/hooks/init.rb",
        "/hooks/route.rb",
        "/hooks/worker_init.rb",
        "/opt/app.rb",
        "/process/access.rb",
        "/process/log.rb",
        "/process/rewrite.rb",
        "/process/second.rb",
        "/rule/access.rb",
        "/site/body_filter.rb",
        "/tenant/header_filter.rb",
    ];
    assert_eq!(files, expected);
}

#[test]
fn allow_stands_beside_an_upstream_that_scripts_of_other_phases_may_change() {
    let proxy = r#"handler = { proxy = { upstream = "http://127.0.0.1:9000", allow = ["10.0.0.0/8:80"] } }"#;
    let access = r#"scripts = { access = "a.rb" }"#;
    let given = |scripts| format!("{LISTEN}{SITE}{scripts}\n[[sites.rules]]\n{proxy}\n");
    let model = model(&given(access));
    let Some(Handler::Proxy(proxy)) = &model.sites[0].rules[0].handler else {
        panic!("{model:?}");
    };
    assert_eq!((proxy.upstream(), proxy.allow.len()), (Some(0), 1));
    assert!(config::dump(&model).contains(r#"allow = ["10.0.0.0/8:80"]"#));
}

#[test]
fn allow_in_a_proxy_that_no_script_may_send_elsewhere_is_refused() {
    let proxy = r#"{ handler = { proxy = { upstream = "http://127.0.0.1:9000", allow = ["10.0.0.0/8"] } } }"#;
    let told = |top: &str, site: &str, more_rules: &str| {
        let text = format!(
            "{LISTEN}{top}\n[[sites]]\nhosts = [\"b.test\"]\ntenant = \"b\"\n{site}\nrules = [{more_rules}{proxy}]\n\
             [[sites]]\nhosts = [\"c.test\"]\nroot = \"/srv\"\nscripts = {{ access = \"c.rb\" }}\n"
        );
        let loaded = load(&Sources::from_text("nagaya.toml", &text));
        loaded.map_or_else(|told| told.to_string(), |_| String::new())
    };
    let tenant = "[tenants.b]\nscripts = { access = \"b.rb\" }";
    let content = r#"{ match = { path = "/a" }, handler = { script = "a.rb" } }, "#;
    let set = r#"{ match = { path = "/a" }, handler = { proxy = { script = "a.rb" } } }, "#;
    for (top, site, rules) in [
        ("[scripts]\nrewrite = \"a.rb\"", "", ""),
        (tenant, "", ""),
        ("", "scripts = { access = \"a.rb\" }", ""),
        ("", "", content),
        ("", "", set),
    ] {
        assert_eq!(told(top, site, rules), "", "{top} {site} {rules}");
    }
    let others = "[tenants.b]\n[tenants.\"c.test\"]\nscripts = { access = \"b.rb\" }";
    let (log, its) = ("[scripts]\nlog = \"a.rb\"", "scripts = { log = \"a.rb\" }");
    for (top, site) in [("", ""), (others, ""), (log, ""), ("", its)] {
        let told = told(top, site, "");
        assert!(
            told.contains("`allow` in `proxy` says nothing without a script"),
            "{top} {site}: {told}"
        );
        assert!(told.contains(r#"allow = ["10.0.0.0/8"]"#), "{told}");
    }
    // A mistake in what may have been a script is told alone.
    let wrong = r#"{ match = { path = "/a" }, handler = { script = 7 } }, "#;
    for (site, rules) in [
        ("scripts = { access = { code = \"\" } }", ""),
        ("scripts = { acess = \"a.rb\" }", ""),
        ("scripts = { access = 7 }", ""),
        ("", wrong),
    ] {
        let told = told("", site, rules);
        assert!(
            !told.is_empty() && !told.contains("without a script"),
            "{site} {rules}: {told}"
        );
    }
    // A script may stand where nothing could be read.
    let text = format!("{LISTEN}{SITE}rules = [{proxy}]\n[scripts\naccess = \"a.rb\"\n");
    let told = load(&Sources::from_text("nagaya.toml", &text)).unwrap_err();
    assert!(!told.to_string().contains("without a script"), "{told}");
}

#[test]
fn an_allowed_address_is_a_network_with_or_without_a_port() {
    let allow = r#"["10.0.0.0/8", "192.0.2.1:9000", "172.16.0.0/12:80", "[fd00::/8]:8080", "::1", "[2001:db8::1]"]"#;
    let proxy = format!("handler = {{ proxy = {{ script = \"a.rb\", allow = {allow} }} }}");
    let model = model(&format!("{LISTEN}{SITE}[[sites.rules]]\n{proxy}\n"));
    let handler = model.sites[0].rules[0].handler.clone().unwrap();
    let Handler::Proxy(proxy) = handler else {
        panic!("{handler:?}");
    };
    let allow = &proxy.allow;
    let cases = [
        ("10.255.0.1:1", true),
        ("[::ffff:10.1.2.3]:443", true),
        ("11.0.0.1:80", false),
        ("192.0.2.1:9000", true),
        ("192.0.2.1:9001", false),
        ("192.0.2.2:9000", false),
        ("172.31.0.1:80", true),
        ("172.31.0.1:81", false),
        ("[fd12::1]:8080", true),
        ("[fd12::1]:80", false),
        ("[::1]:1", true),
        ("[2001:db8::1]:1", true),
        ("[2001:db8::2]:1", false),
    ];
    for (address, expected) in cases {
        let address: SocketAddr = address.parse().unwrap();
        let holds = |allowed: &AllowedAddress| allowed.holds(address);
        assert_eq!(allow.iter().any(holds), expected, "{address}");
    }
}

#[test]
fn a_limit_of_any_upstream_counts_where_a_script_chooses() {
    let limits = |count: usize| {
        let limit =
            |number| format!("{{ name = \"l{number}\", key = \"client\", concurrent = 2 }}");
        let limits: Vec<String> = (0..count).map(limit).collect();
        format!("limits = [{}]\n", limits.join(", "))
    };
    let upstream = "[upstreams.app]\nservers = [\"127.0.0.1:9000\"]\n";
    let text = |site: usize| {
        format!(
            "{LISTEN}{upstream}{}{SITE}{}[[sites.rules]]\nhandler = {{ proxy = {{ script = \"a.rb\" }} }}\n",
            limits(9),
            limits(site)
        )
    };
    model(&text(7));
    let told = load(&Sources::from_text("nagaya.toml", &text(8))).expect_err("17 limits");
    assert!(told.to_string().contains("16"), "{told}");
}

#[test]
fn texts_of_scripts_are_not_shown_by_mistake() {
    let text = format!("{LISTEN}{SITE}scripts = {{ access = {{ code = \"password\" }} }}\n");
    let model = model(&text);
    assert!(!format!("{model:?}").contains("password"));
}

#[test]
fn a_file_with_the_text_that_was_read_goes_with_the_model() {
    let text = format!("{LISTEN}{SITE}scripts = {{ access = \"a.rb\", log = \"a.rb\" }}\n");
    let sources = Sources::from_text("nagaya.toml", &text).with_file("/a.rb", b"p 1\n");
    let model = load(&sources).unwrap_or_else(|problems| panic!("{problems}"));
    let scripts = &model.sites[0].scripts;
    let texts: Vec<&Arc<[u8]>> = scripts
        .iter()
        .filter_map(|script| match &script.source {
            Source::File(file) => file.text.as_ref(),
            Source::Code(_) => None,
        })
        .collect();
    assert!(Arc::ptr_eq(texts[0], texts[1]));
    assert_eq!(&**texts[0], b"p 1\n");
    let guarded: Vec<_> = model.guarded.iter().map(|file| &file.path).collect();
    assert_eq!(guarded, [&PathBuf::from("/a.rb")]);
}

#[test]
fn scripts_have_time_to_start_by_how_many_there_are() {
    let site = |number: usize| {
        format!(
            "[[sites]]\nhosts = [\"s{number}\"]\nroot = \"/srv\"\nscripts = {{ access = {{ code = \"{number}\" }} }}\n"
        )
    };
    let sites = |count| (0..count).map(site).collect::<String>();
    let start_max = |sites: &str| {
        let model = model(&format!(
            "{LISTEN}[scripts]\nwall = \"7s\"\ninit = {{ code = \"1\" }}\n{sites}"
        ));
        model.scripts_start_max().as_millis()
    };
    assert_eq!(start_max(&sites(1)), 7_020);
    assert_eq!(start_max(&sites(3_000)), 37_010);
}
