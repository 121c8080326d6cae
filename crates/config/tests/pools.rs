//! What a configuration says of pools: which there are, whose, and what is refused.

use config::model::{Handler, Isolate, Model, Pool, PoolProgram, Protocol, ServerAddress, Share};
use config::{Sources, load, load_and_warn};

use crate::written::{LISTEN, model_of, problems};

const PHP: &str = "handler = { php = true }";
const APP: &str =
    "handler = { app = { command = [\"bundle\", \"exec\", \"puma\"], directory = \"/srv/app\" } }";

fn sources(text: &str) -> Sources {
    let text = format!("{LISTEN}{text}");
    Sources::from_text("nagaya.toml", &text).with_php("8.2", "/usr/sbin/php-fpm8.2")
}

/// What a configuration says; what is printed of it says the same, wherever PHPs are.
fn model(text: &str) -> Model {
    model_of(&sources(text))
}

fn site(host: &str, lines: &str, rules: &[&str]) -> String {
    let rules = rules
        .iter()
        .map(|rule| format!("[[sites.rules]]\n{rule}\n"));
    let rules: String = rules.collect();
    format!("[[sites]]\nhosts = [\"{host}\"]\nroot = \"/srv\"\n{lines}\n{rules}")
}

fn php(host: &str, lines: &str) -> String {
    site(host, lines, &[PHP])
}

fn sites_of(model: &Model) -> Vec<&[usize]> {
    model.pools.iter().map(|pool| &*pool.sites).collect()
}

fn ids(model: &Model) -> Vec<&str> {
    model.pools.iter().map(|pool| &*pool.id).collect()
}

#[test]
fn a_rule_with_php_leads_to_the_socket_of_its_sites_pool() {
    let params = "handler = { php = { buffer_request = false, params = { set = { A = \"b\" } } } }";
    let model = model(&site("a.jp", "user = \"alice\"", &[params, PHP]));
    let [pool] = &model.pools[..] else {
        panic!("{:?}", model.pools);
    };
    assert_eq!(pool.name, "php 8.2 of a.jp");
    assert_eq!(
        (&*pool.tenant, pool.user.as_deref()),
        ("a.jp", Some("alice"))
    );
    assert!(
        pool.id.starts_with("php-a-jp-") && pool.id.len() <= 64,
        "{}",
        pool.id
    );
    let upstream = &model.upstreams[pool.upstream];
    assert_eq!(upstream.protocol, Protocol::FastCgi);
    assert_eq!(
        upstream.servers[0].address,
        ServerAddress::Unix(pool.socket.clone())
    );
    let directory = &model.pool_terms.directory;
    assert_eq!(pool.socket, directory.join(format!("{}.sock", pool.id)));
    let handlers = model.sites[0]
        .rules
        .iter()
        .filter_map(|rule| rule.handler.as_ref());
    for (handler, buffers) in handlers.zip([false, true]) {
        let Handler::FastCgi(fastcgi) = handler else {
            panic!("{handler:?}");
        };
        assert_eq!((fastcgi.pool, fastcgi.upstream), (Some(0), pool.upstream));
        assert_eq!(fastcgi.buffer_request, buffers);
    }
    let PoolProgram::Php(it) = &pool.program else {
        panic!("{pool:?}");
    };
    assert_eq!((it.processes, it.requests, it.time_ms), (8, 4_000, 300_000));
    assert_eq!(model.php[it.php].version, "8.2");
    assert_eq!((pool.isolate, pool.is_kept), (Isolate::Home, false));
}

#[test]
fn an_application_is_forwarded_to_by_what_it_speaks() {
    let fastcgi = "handler = { app = { command = [\"./x\"], directory = \"/srv/x\", protocol = \"fastcgi\" } }";
    let model = model(&site("a.jp", "", &[APP, fastcgi]));
    let names: Vec<_> = model.pools.iter().map(|pool| &*pool.name).collect();
    assert_eq!(names, ["bundle of a.jp", "x of a.jp"]);
    let handlers = model.sites[0]
        .rules
        .iter()
        .filter_map(|rule| rule.handler.as_ref());
    let [Handler::Proxy(http), Handler::FastCgi(other)] = &handlers.collect::<Vec<_>>()[..] else {
        panic!("{model:?}");
    };
    assert_eq!(
        (http.pool, http.upstream()),
        (Some(0), Some(model.pools[0].upstream))
    );
    assert!(http.buffer_request && http.buffer_reply == Some(64 << 20));
    assert_eq!(
        (other.pool, other.upstream),
        (Some(1), model.pools[1].upstream)
    );
    let protocols = model
        .pools
        .iter()
        .map(|pool| model.upstreams[pool.upstream].protocol);
    assert_eq!(
        protocols.collect::<Vec<_>>(),
        [Protocol::Http, Protocol::FastCgi]
    );
}

#[test]
fn sites_of_one_user_and_tenant_share_a_pool_where_their_settings_are_the_same() {
    let of = |host: &str, user: &str, more: &str| {
        php(host, &format!("tenant = \"t\"\nuser = \"{user}\"\n{more}"))
    };
    let alone: [&[usize]; 2] = [&[0], &[1]];
    let shared: [&[usize]; 1] = [&[0, 1]];
    for (user, more, expected) in [
        ("u", "", &shared[..]),
        ("u", "pool = { min = 1 }", &shared),
        ("u", "pool = { share = \"site\" }", &alone),
        ("u", "cgroup = { pids = 5 }", &alone),
        ("u", "pool = { processes = 9 }", &alone),
        ("u", "pool = { requests = 9 }", &alone),
        ("u", "pool = { time = \"9s\" }", &alone),
        ("u", "pool = { admin = { memory_limit = \"9M\" } }", &alone),
        ("u", "pool = { isolate = \"none\" }", &alone),
        ("v", "", &alone),
    ] {
        let model = model(&[of("a.jp", "u", ""), of("b.jp", user, more)].concat());
        assert_eq!(sites_of(&model), expected, "{user} {more}");
        assert_eq!(model.pools[0].is_kept, more.contains("{ min"));
    }
    let tenants = [php("a.jp", "user = \"u\""), php("b.jp", "user = \"u\"")];
    assert_eq!(sites_of(&model(&tenants.concat())), alone);
}

#[test]
fn a_pool_keeps_its_name_when_its_settings_change() {
    let with = |lines: &str| {
        let other = php("b.jp", "tenant = \"a.jp\"\npool = { processes = 2 }");
        model(&[php("a.jp", lines), other].concat())
    };
    let before = with("");
    let ids_before = ids(&before);
    assert_ne!(ids_before[0], ids_before[1]);
    for lines in [
        "pool = { processes = 3, admin = { memory_limit = \"1G\" } }",
        "pool = { isolate = \"none\", min = 1 }",
    ] {
        assert_eq!(ids(&with(lines)), ids_before, "{lines}");
    }
    for lines in ["user = \"u\"", "pool = { share = \"site\" }"] {
        assert_ne!(ids(&with(lines))[0], ids_before[0], "{lines}");
    }
}

#[test]
fn names_of_pools_are_what_a_file_and_a_group_may_be_called() {
    let long = format!("{}.{}.jp", "a".repeat(63), "b".repeat(63));
    let hosts = ["*", "[::1]", "*.example.jp", "A_b.jp", &long];
    let sites: String = hosts
        .iter()
        .map(|host| site(host, "", &[PHP, APP]))
        .collect();
    let model = model(&sites);
    assert_eq!(model.pools.len(), 2 * hosts.len());
    for id in ids(&model) {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        assert!(
            id.bytes().all(fits) && id.len() <= 64 && !id.starts_with('-'),
            "{id}"
        );
    }
}

#[test]
fn two_applications_in_one_directory_have_a_pool_each() {
    let sockets = APP.replace("\"puma\"", "\"cable\"");
    let model = model(&site("a.jp", "", &[APP, &sockets, APP]));
    assert_eq!(model.pools.len(), 2);
    assert_ne!(model.pools[0].id, model.pools[1].id);
}

#[test]
fn a_version_is_said_where_there_are_several() {
    let other = "[php.\"7.4\"]\nprogram = \"/opt/php74/sbin/php-fpm\"\nini = { \"opcache.memory_consumption\" = 64, short_open_tag = false }\n";
    let told = problems(&sources(&[&*php("a.jp", ""), other].concat()));
    assert!(told.contains("say which PHP: there are 7.4, 8.2"), "{told}");
    assert!(told.contains("`pool = { php = \"7.4\" }`"), "{told}");
    let model = model(&[&*php("a.jp", "pool = { php = \"7.4\" }"), other].concat());
    let [used] = &model.php[..] else {
        panic!("{:?}", model.php);
    };
    let ini = [
        ("opcache.memory_consumption", "64"),
        ("short_open_tag", "0"),
    ];
    assert_eq!(
        used.ini,
        ini.map(|(name, text)| (name.to_owned(), text.to_owned()))
    );
    let told = problems(&sources(&php("a.jp", "pool = { php = \"8.9\" }")));
    assert!(told.contains("there is no PHP `8.9`"), "{told}");
    assert!(told.contains("1 problem\n"), "{told}");
    let nowhere = format!("{LISTEN}{}", php("a.jp", ""));
    let told = problems(&Sources::from_text("nagaya.toml", &nowhere));
    assert!(
        told.contains("there is no PHP where it is looked for"),
        "{told}"
    );
}

#[test]
fn an_entry_adds_to_the_php_that_was_found() {
    let ini = "[php.\"8.2\"]\nini = { realpath_cache_size = \"1M\" }\n";
    let model = model(&[&*php("a.jp", ""), ini].concat());
    assert_eq!(model.php[0].program.to_str(), Some("/usr/sbin/php-fpm8.2"));
    assert_eq!(model.php[0].ini.len(), 1);
    let told = problems(&sources(&[&*php("a.jp", ""), "[php.\"9.0\"]\n"].concat()));
    assert!(told.contains("no php-fpm 9.0 is found"), "{told}");
}

#[test]
fn what_could_be_read_as_another_setting_is_refused() {
    for setting in [
        "memory_limit = \"1M\\nextension = evil.so\"",
        "memory_limit = \"1M\\u0000\"",
        "memory_limit = 'a\"b'",
        "memory_limit = 'a\\'",
        "memory_limit = \"${HOME}\"",
        "memory_limit = [1]",
        "memory_limit = 1.5",
        "\"a]b\" = 1",
        "\"a=b\" = 1",
        "\"a\\nb\" = 1",
        "\"\" = 1",
        "\"1a\" = 1",
    ] {
        for text in [
            php("a.jp", &format!("pool = {{ admin = {{ {setting} }} }}")),
            format!("{}[php.\"8.2\"]\nini = {{ {setting} }}\n", php("a.jp", "")),
        ] {
            let told = problems(&sources(&text));
            assert!(told.contains("1 problem\n"), "{setting}\n{told}");
        }
    }
    let fine =
        "admin = { \"session.save_path\" = \"5;/tmp\", open_basedir = \"/a:/b [c]\", x = \"$1\" }";
    model(&php("a.jp", &format!("pool = {{ {fine} }}")));
}

#[test]
fn what_a_pool_cannot_be_is_told_with_what_to_write() {
    let app = |more: &str| APP.replace("\"/srv/app\"", &format!("\"/srv/app\", {more}"));
    for (text, expected) in [
        (php("a.jp", "pool = { time = \"1500ms\" }"), "whole seconds"),
        (
            php("a.jp", "cgroup = { pids = 5 }\npool = { share = \"user\" }"),
            "leave `share` out",
        ),
        (
            site("a.jp", "", &[&format!("{PHP}\ncgroup = {{ pids = 5 }}")]),
            "`cgroup` of a rule does not bind a pool",
        ),
        (
            site("a.jp", "", &["handler = { php = false }"]),
            "`true` or a table",
        ),
        (
            php("a.jp", "").replace("root = \"/srv\"\n", ""),
            "no `root`",
        ),
        (
            site("a.jp", "", &[&app("ready = \"health\"")]),
            "no path to ask for",
        ),
        (
            site(
                "a.jp",
                "",
                &[&app("protocol = \"fastcgi\", ready = \"/x\"")],
            ),
            "`ready` is for HTTP",
        ),
        (
            site(
                "a.jp",
                "",
                &[&app("instances = 2").replace("\"puma\"", "\"-b\", \"unix:$socket\"")],
            ),
            "leave `$socket` out and take descriptor 3",
        ),
        (
            site("a.jp", "", &[&app("env = { LD_PRELOAD = \"x\" }")]),
            "never given",
        ),
        (
            format!("{}[pools]\nmail = \"localhost\"\n", php("a.jp", "")),
            "has no port",
        ),
        (
            format!("{}[pools]\nsee = [\"/\"]\n", php("a.jp", "")),
            "would show everything",
        ),
        (
            format!(
                "{}[pools]\ndirectory = \"/{}\"\n",
                php("a.jp", ""),
                "a".repeat(80)
            ),
            "more than 107 bytes",
        ),
    ] {
        let told = problems(&sources(&text));
        assert!(told.contains(expected), "{text}\n{told}");
        assert!(told.contains("1 problem\n"), "{text}\n{told}");
    }
    let text = format!("{LISTEN}{}", php("a.jp", ""));
    let sources = Sources::from_text("nagaya.toml", &text).with_php("8.2", "/a");
    let told = problems(&sources.with_include("b.toml", "[pools]\ndirectory = \"/srv\"\n"));
    assert!(told.contains("stands in the first file alone"), "{told}");
}

#[test]
fn a_pool_that_no_rule_has_is_told_of() {
    let (model, warnings) =
        load_and_warn(&sources(&site("a.jp", "pool = { min = 1 }", &[]))).unwrap();
    assert!(model.pools.is_empty() && model.sites[0].pool.share == Share::User);
    assert!(
        warnings.to_string().contains("`pool` says nothing"),
        "{warnings}"
    );
}

#[test]
fn no_program_runs_as_whoever_serves_where_there_are_pools() {
    let alice = php("a.jp", "user = \"alice\"");
    let cgi = |user: &str| site("b.jp", user, &["handler = { cgi = true }"]);
    let map = |user: &str| format!("[maps.m]\nprogram = [\"true\"]\n{user}\n");
    for (text, whose) in [
        (alice.clone(), ""),
        (php("a.jp", ""), "programs of site `a.jp`"),
        (php("a.jp", "user = \"www\""), "programs of site `a.jp`"),
        (alice.clone() + &cgi(""), "programs of site `b.jp`"),
        (alice.clone() + &cgi("user = \"bob\""), ""),
        (cgi(""), ""),
        (alice.clone() + &map(""), "the program of map `m`"),
        (alice + &map("user = \"bob\""), ""),
    ] {
        let text = format!("user = \"www\"\n{LISTEN}{text}");
        let mut sources = Sources::from_text("nagaya.toml", &text).with_php("8.2", "/a");
        assert!(
            load(&sources).is_ok(),
            "as somebody else the server becomes nobody: {text}"
        );
        sources.look_up_users(|_| Ok(()));
        let told = load(&sources)
            .err()
            .map_or(String::new(), |told| told.to_string());
        assert_eq!(told.is_empty(), whose.is_empty(), "{text}\n{told}");
        assert!(told.contains(whose), "{text}\n{told}");
    }
}

#[test]
fn a_setting_of_php_that_is_nearly_anothers_is_told_with_its_line() {
    let admin = "pool = { admin = { memory_limt = \"9M\", \"pm.max_children\" = 3, \"newrelic.appname\" = \"a\" } }";
    let ini = "[php.\"8.2\"]\nini = { opcache_enable = 1 }\n";
    let (_, warnings) = load_and_warn(&sources(&[&*php("a.jp", admin), ini].concat())).unwrap();
    let told = warnings.to_string();
    for expected in [
        "nagaya.toml:6:20",
        "did you mean `memory_limit`?",
        "`processes` says it here",
        "did you mean `opcache.enable`?",
    ] {
        assert!(told.contains(expected), "{expected}\n{told}");
    }
    assert_eq!(warnings.count(), 3, "{told}");
}

#[test]
fn memory_that_is_too_little_for_php_is_told_where_it_is_written() {
    let tenants = "[tenants.small]\ncgroup = { memory = \"8MiB\" }\n[tenants.large]\ncgroup = { memory = \"64MiB\" }\n";
    let little = "cgroup = { memory = \"8MiB\" }";
    let cgi = site(
        "c.jp",
        &format!("tenant = \"large\"\n{little}"),
        &["handler = { cgi = true }"],
    );
    for (site, place) in [
        (php("a.jp", "tenant = \"small\""), Some("nagaya.toml:4:21")),
        (
            php("a.jp", &format!("tenant = \"large\"\n{little}")),
            Some("nagaya.toml:11:21"),
        ),
        (php("a.jp", "tenant = \"large\""), None),
        (cgi, None),
    ] {
        let (_, warnings) = load_and_warn(&sources(&[tenants, &site].concat())).unwrap();
        let told = warnings.to_string();
        assert_eq!(
            warnings.count(),
            usize::from(place.is_some()),
            "{site}\n{told}"
        );
        assert!(told.contains(place.unwrap_or_default()), "{site}\n{told}");
    }
}

#[test]
fn a_setting_sent_with_requests_is_told_where_it_belongs() {
    let rule = "handler = { php = { params = { set = { PHP_VALUE = \"a=1\" } } } }";
    let (_, warnings) = load_and_warn(&sources(&site("a.jp", "", &[rule]))).unwrap();
    assert!(
        warnings.to_string().contains("`pool = { admin = "),
        "{warnings}"
    );
}

#[test]
fn a_pools_tenant_is_the_one_that_is_described() {
    let tenants = "[tenants.other]\n[tenants.t]\nweight = 3\n";
    let model = model(&[&*php("a.jp", "tenant = \"t\""), tenants].concat());
    let tenant = |pool: &Pool| (pool.tenant.clone(), pool.tenant_index);
    assert_eq!(
        model.pools.iter().map(tenant).collect::<Vec<_>>(),
        [("t".to_owned(), Some(1))]
    );
}
