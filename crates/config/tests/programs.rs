//! What a configuration says of programs: whose they are, what they are told, what binds them.

use crate::written::{self, LISTEN, model, problems};
use config::model::{Handler, Protocol, Rlimits, Site};
use config::{Sources, load_and_warn};

/// A site called `host` with `lines` and the handlers, a rule each.
fn site(host: &str, lines: &str, rules: &[&str]) -> String {
    let rules: String = rules
        .iter()
        .map(|rule| format!("[[sites.rules]]\n{rule}\n"))
        .collect();
    format!("[[sites]]\nhosts = [\"{host}\"]\nroot = \"/srv\"\n{lines}\n{rules}")
}

fn handlers(site: &Site) -> Vec<&Handler> {
    site.rules
        .iter()
        .filter_map(|rule| rule.handler.as_ref())
        .collect()
}

#[test]
fn an_address_of_fastcgi_is_one_upstream_however_often_it_is_used() {
    let named = "[upstreams.php]\nprotocol = \"fastcgi\"\nservers = [\"127.0.0.1:9000\"]\n";
    let rules = [
        "handler = { fastcgi = \"php\" }",
        "handler = { fastcgi = \"127.0.0.1:9000\" }",
        "handler = { fastcgi = { address = \"127.0.0.1:9000\", root = \"/app\" } }",
        "handler = { fastcgi = \"unix:/run/php.sock\" }",
        "handler = { proxy = \"unix:/run/php.sock\" }",
    ];
    let text = format!("{LISTEN}{named}{}", site("a.jp", "", &rules));
    let model = model(&text);
    let upstreams = model.upstreams.iter();
    let facts: Vec<_> = upstreams
        .map(|upstream| (&*upstream.name, upstream.protocol, upstream.keepalive))
        .collect();
    assert_eq!(
        facts,
        [
            ("php", Protocol::FastCgi, 16),
            ("fastcgi:127.0.0.1:9000", Protocol::FastCgi, 16),
            ("fastcgi:unix:/run/php.sock", Protocol::FastCgi, 16),
            ("unix:/run/php.sock", Protocol::Http, 256),
        ]
    );
    let chosen = handlers(&model.sites[0]).into_iter();
    let chosen: Vec<usize> = chosen
        .map(|handler| match handler {
            Handler::FastCgi(fastcgi) => fastcgi.upstream,
            Handler::Proxy(proxy) => proxy.upstream().unwrap(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(chosen, [0, 1, 1, 2, 3]);
}

#[test]
fn bodies_lie_between_slow_clients_and_programs_unless_told_otherwise() {
    let rules = [
        "handler = { fastcgi = \"127.0.0.1:9000\" }",
        "handler = { fastcgi = { address = \"127.0.0.1:9000\", buffer_request = false, buffer_reply = false } }",
        "handler = { cgi = true }",
        "handler = { cgi = { buffer_request = false, buffer_reply = \"1MiB\" } }",
        "handler = { proxy = \"http://127.0.0.1:9001\" }",
        "handler = { proxy = { upstream = \"http://127.0.0.1:9001\", buffer_reply = false } }",
        "handler = { proxy = { upstream = \"http://127.0.0.1:9001\", buffer_reply = \"8MiB\" } }",
    ];
    let model = model(&format!("{LISTEN}{}", site("a.jp", "", &rules)));
    let facts: Vec<_> = handlers(&model.sites[0])
        .into_iter()
        .map(|handler| match handler {
            Handler::FastCgi(it) => (it.buffer_request, Some(it.buffer_reply_bytes)),
            Handler::Cgi(cgi) => (cgi.buffer_request, Some(cgi.buffer_reply_bytes)),
            Handler::Proxy(proxy) => (proxy.buffer_request, proxy.buffer_reply),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        facts,
        [
            (true, Some(64 << 20)),
            (false, Some(0)),
            (true, Some(64 << 20)),
            (false, Some(1 << 20)),
            (false, None),
            (false, Some(0)),
            (false, Some(8 << 20)),
        ]
    );
}

#[test]
fn a_program_is_limited_as_its_rule_says_and_not_at_all_by_default() {
    let all = "handler = { cgi = { timeout = \"1m\", cpu_time = \"2m\", memory = \"1GiB\", files = 64, processes = 9, file_size = 0 } }";
    let rules = ["handler = { cgi = true }", all];
    let model = model(&format!("{LISTEN}{}", site("a.jp", "", &rules)));
    let [Handler::Cgi(plain), Handler::Cgi(bound)] = handlers(&model.sites[0])[..] else {
        panic!("{model:?}");
    };
    assert_eq!(
        (plain.timeout_ms, plain.limits),
        (600_000, Rlimits::default())
    );
    let limits = Rlimits {
        cpu_s: Some(120),
        memory_bytes: Some(1 << 30),
        files: Some(64),
        processes: Some(9),
        file_size_bytes: Some(0),
    };
    assert_eq!((bound.timeout_ms, bound.limits), (60_000, limits));
}

#[test]
fn variables_are_set_and_left_out_in_the_order_written() {
    let rule = "handler = { cgi = { params = { set = { B = \"$host\", A = \"1\\n2\" }, remove = [\"SERVER_SOFTWARE\"] } } }";
    let model = model(&format!("{LISTEN}{}", site("a.jp", "", &[rule])));
    let [Handler::Cgi(cgi)] = handlers(&model.sites[0])[..] else {
        panic!("{model:?}");
    };
    let facts: Vec<_> = cgi
        .params
        .iter()
        .map(|(name, value)| (&**name, value.is_some()))
        .collect();
    assert_eq!(
        facts,
        [("B", true), ("A", true), ("SERVER_SOFTWARE", false)]
    );
}

#[test]
fn a_site_belongs_to_its_first_host_or_to_the_tenant_it_names() {
    let tenants = "[tenants.shop]\n[tenants.\"b.jp\"]\ncgroup = { pids = 9 }\n";
    let sites = [
        site("a.jp", "tenant = \"shop\"", &[]),
        site("b.jp", "", &[]),
        site("*.c.jp", "", &[]),
        site("[::1]", "", &[]),
        site("*", "", &[]),
    ];
    let model = model(&format!("{LISTEN}{tenants}{}", sites.concat()));
    let facts = model.sites.iter();
    let facts: Vec<_> = facts
        .map(|site| (&*site.tenant, site.tenant_index))
        .collect();
    assert_eq!(
        facts,
        [
            ("shop", Some(0)),
            ("b.jp", Some(1)),
            ("*.c.jp", None),
            ("[::1]", None),
            ("*", None)
        ]
    );
    assert!(model.tenants[0].cgroup.is_none());
    assert_eq!(model.tenants[1].cgroup.as_ref().unwrap().pids, Some(9));
}

#[test]
fn a_tenant_is_just_a_name_where_none_is_described() {
    let model = model(&format!(
        "{LISTEN}{}",
        site("a.jp", "tenant = \"anybody\"", &[])
    ));
    assert_eq!(model.sites[0].tenant, "anybody");
    assert_eq!(model.sites[0].tenant_index, None);
}

#[test]
fn a_tenant_described_in_two_files_is_told_with_both() {
    let text = format!("{LISTEN}{}[tenants.shop]\n", site("a.jp", "", &[]));
    let sources = Sources::from_text("nagaya.toml", &text).with_include("b.toml", "[tenants.shop]");
    let told = problems(&sources);
    assert!(told.contains("tenant `shop` is described twice"), "{told}");
    assert!(told.contains("nagaya.toml:"), "{told}");
}

#[test]
fn the_nearest_level_says_whether_a_limit_is_required() {
    const GROUP: &str = "cgroup = { cpu = \"10%\" }";
    let rule = |required: &str| format!("handler = {{ cgi = true }}\n{GROUP}\n{required}");
    for (process, tenant, site_level, rule_level, expected) in [
        ("", "", "", "", [true, true, true]),
        ("cgroup_required = false", "", "", "", [false, false, false]),
        (
            "cgroup_required = false",
            "cgroup_required = true",
            "",
            "",
            [true, true, true],
        ),
        (
            "",
            "cgroup_required = false",
            "",
            "cgroup_required = true",
            [false, false, true],
        ),
        ("", "", "cgroup_required = false", "", [true, false, false]),
        ("", "", "", "cgroup_required = false", [true, true, false]),
    ] {
        let site = site(
            "a.jp",
            &format!("tenant = \"t\"\n{GROUP}\n{site_level}"),
            &[&rule(rule_level)],
        );
        let text = format!("{process}\n{LISTEN}[tenants.t]\n{GROUP}\n{tenant}\n{site}");
        let model = model(&text);
        let site = &model.sites[0];
        let groups = [
            &model.tenants[0].cgroup,
            &site.cgroup,
            &site.rules[0].cgroup,
        ];
        let facts = groups.map(|group| group.as_ref().unwrap().required);
        assert_eq!(facts, expected, "{text}");
    }
}

#[test]
fn limits_are_read_to_the_units_they_are_kept_in() {
    let cgroup = "cgroup = { cpu = \"12.5%\", burst = \"12ms\", cpu_weight = 5, memory = \"2MiB\", memory_high = \"1MiB\", pids = 3, io = [{ device = \"/dev/vda\", read = \"1MiB\" }, { device = \"data\", write_ops = 7 }] }";
    let model = model(&format!("{LISTEN}{}", site("a.jp", cgroup, &[])));
    let group = model.sites[0].cgroup.as_deref().unwrap();
    assert_eq!(group.cpu_millicores, Some(125));
    assert_eq!(group.cpu_burst_us, Some(12_000));
    assert_eq!(group.memory_bytes, Some(2 << 20));
    assert_eq!(group.memory_high_bytes, Some(1 << 20));
    assert_eq!((group.cpu_weight, group.pids), (Some(5), Some(3)));
    let devices: Vec<_> = group.io.iter().map(|io| io.device.to_str()).collect();
    assert_eq!(devices, [Some("/dev/vda"), Some("/data")]);
    assert_eq!(group.io[0].read_bytes, Some(1 << 20));
    assert_eq!(group.io[1].write_ops, Some(7));
}

#[test]
fn a_cgroup_beside_static_files_is_no_error() {
    let rule = "handler = { static = true }\ncgroup = { cpu = \"10%\" }";
    let model = model(&format!("{LISTEN}{}", site("a.jp", "", &[rule])));
    assert!(model.sites[0].rules[0].cgroup.is_some());
}

#[test]
fn what_is_hardly_meant_is_told_and_served_all_the_same() {
    let cgi = ["handler = { cgi = true }"];
    let php = ["handler = { fastcgi = \"127.0.0.1:9000\" }"];
    let cases = [
        (site("a", "cgroup = { cpu = \"10%\" }", &cgi), ""),
        (
            site("a", "cgroup = { cpu = \"10%\" }", &php),
            "`cgroup` binds nothing",
        ),
        (
            site("a", "cgroup = { cpu = \"10\" }", &cgi),
            "did you mean `\"10%\"`?",
        ),
        (
            site("a", "cgroup = { cpu = \"150%\" }", &cgi),
            "more than the one core of this machine",
        ),
    ];
    for (text, expected) in cases {
        let told = warnings(&format!("{LISTEN}{text}"));
        assert_eq!(told.is_empty(), expected.is_empty(), "{text}\n{told}");
        assert!(told.contains(expected), "{text}\n{told}");
        assert!(!told.contains("error"), "{told}");
    }
}

#[test]
fn words_of_other_programs_are_answered_with_what_to_write() {
    let cases = [
        (
            "handler = { fastcgi = \"/run/php.sock\" }",
            "write `unix:/run/php.sock`",
        ),
        (
            "handler = { fastcgi = \"127.0.0.1\" }",
            "add the port, as in `127.0.0.1:9000`",
        ),
        (
            "handler = { fastcgi = \"unix:/run/php.sock;\" }",
            "write `unix:/run/php.sock`",
        ),
        (
            "handler = { php = \"127.0.0.1:9000\" }",
            "is named by `fastcgi = \"unix:/PATH\"`",
        ),
        (
            "handler = { cgi = true }\ncgroup = { cpu = \"0.01%\" }",
            "1%",
        ),
    ];
    for (rule, expected) in cases {
        let text = format!("{LISTEN}{}", site("a.jp", "", &[rule]));
        let told = problems(&Sources::from_text("nagaya.toml", &text));
        assert!(told.contains(expected), "{rule}\n{told}");
        assert!(told.contains("1 problem\n"), "{rule}\n{told}");
    }
    let single = "[[sites]]\nhosts = [\"a.jp\"]\nroot = \"/srv\"\n[sites.rules]\n";
    let text = format!("{LISTEN}{single}handler = {{ cgi = true }}\n");
    let told = problems(&Sources::from_text("nagaya.toml", &text));
    assert!(told.contains("write `[[sites.rules]]`"), "{told}");
}

const ADMIN: &str = "PHP_ADMIN_VALUE = \"open_basedir=/srv\"";

/// A site whose PHP is run by this server, with settings by FastCGI.
fn setting(host: &str, lines: &str, server: &str) -> String {
    let params = format!("params = {{ set = {{ {ADMIN} }} }}");
    let rule = format!("handler = {{ fastcgi = {{ address = \"{server}\", {params} }} }}");
    site(host, lines, &[&rule])
}

/// A site whose PHP is run by this server.
fn plain(host: &str, lines: &str, server: &str) -> String {
    site(
        host,
        lines,
        &[&format!("handler = {{ fastcgi = \"{server}\" }}")],
    )
}

fn warnings(text: &str) -> String {
    written::warnings(&written::sources(text))
}

#[test]
fn a_setting_of_php_is_refused_where_another_site_shares_the_server() {
    let named = "[upstreams.php]\nprotocol = \"fastcgi\"\n\
                 servers = [\"10.0.0.1:9000\", { address = \"unix:/run/php.sock\" }]\n";
    for (one, other) in [
        ("unix:/run/php.sock", "unix:/run/php.sock"),
        ("unix:/run/php.sock", "unix://run/./x/../php.sock"),
        ("unix:/run/php.sock", "php"),
        ("php", "10.0.0.1:9000"),
        ("127.0.0.1:9000", "localhost:9000"),
        ("[::ffff:10.0.0.1]:9000", "php"),
        ("php.test:9000", "PHP.test:9000"),
    ] {
        for text in [
            [setting("a.jp", "", one), plain("b.jp", "", other)],
            [plain("b.jp", "", one), setting("a.jp", "", other)],
        ] {
            let text = format!("{LISTEN}{named}{}", text.concat());
            let said = problems(&Sources::from_text("nagaya.toml", &text));
            for part in [
                "`PHP_ADMIN_VALUE` of site `a.jp` would stay in the processes of",
                "for later requests of site `b.jp`",
                "`b.jp` asks it, too",
                "write it into the pool's file, as `php_admin_value[memory_limit] = 256M`",
                "\n1 problem\n",
            ] {
                assert!(said.contains(part), "{one}, {other}: no {part:?} in {said}");
            }
            for place in ["open_basedir", "fastcgi = "] {
                assert!(said.contains(place), "{place}: {said}");
            }
        }
    }
}

#[test]
fn a_setting_of_php_is_found_wherever_it_is_written() {
    let rule = "handler = { fastcgi = \"unix:/run/php.sock\" }";
    let of_rule = format!("env = {{ {ADMIN} }}\n{rule}");
    let without_handler = format!("match = {{ path = \"/a\" }}\nenv = {{ {ADMIN} }}");
    let left_out = format!(
        "env = {{ {ADMIN} }}\nhandler = {{ fastcgi = {{ address = \"unix:/run/php.sock\", params = {{ remove = [\"PHP_ADMIN_VALUE\"] }} }} }}"
    );
    let env = format!("env = {{ {ADMIN} }}");
    let cgi =
        format!("match = {{ path = \"/c\" }}\nenv = {{ {ADMIN} }}\nhandler = {{ cgi = true }}");
    let other = plain("b.jp", "", "unix:/run/php.sock");
    for (site, count) in [
        (site("a.jp", "", &[&of_rule]), 1),
        (site("a.jp", &env, &[rule]), 1),
        (site("a.jp", "", &[&without_handler, rule, rule]), 1),
        (site("a.jp", "", &[&left_out]), 0),
        (site("a.jp", "", &[&cgi, rule]), 0),
    ] {
        let text = format!("{LISTEN}{site}{other}");
        let found = load_and_warn(&Sources::from_text("nagaya.toml", &text));
        let found = found.map_or_else(
            |problems| problems.count(),
            |(_, warnings)| warnings.count(),
        );
        assert_eq!(found, count, "{text}");
    }
}

#[test]
fn a_setting_of_php_in_a_pool_of_the_sites_own_is_a_warning() {
    let apart = [
        setting("a.jp", "", "unix:/run/a.sock"),
        plain("b.jp", "", "unix:/run/b.sock"),
        plain("c.jp", "", "10.0.0.1:9000"),
        setting("d.jp", "", "10.0.0.1:9001"),
    ];
    let said = warnings(&format!("{LISTEN}{}", apart.concat()));
    let part = "`PHP_ADMIN_VALUE` stays in the process of php-fpm that got it";
    assert_eq!(said.matches(part).count(), 2, "{said}");
    assert!(said.contains("php_admin_value["), "{said}");
    let others = said.matches("warning: ").count();
    assert_eq!(others, 2, "{said}");
}

#[test]
fn sites_of_different_users_that_share_php_are_told_that_user_is_not_phps() {
    let of = |host: &str, user: &str, socket: &str| {
        let line = match user {
            "" => String::new(),
            user => format!("user = \"{user}\""),
        };
        plain(host, &line, &format!("unix:/run/{socket}.sock"))
    };
    for (sites, expected) in [
        (
            [("alice", "php"), ("bob", "php"), ("bob", "php")],
            "sites `0.jp` (user `alice`) and `1.jp` (user `bob`) have their pages run by",
        ),
        (
            [("", "php"), ("", "php"), ("bob", "php")],
            "and `2.jp` (user `bob`) have their pages run by",
        ),
        (
            [("alice", "php"), ("", "php"), ("", "other")],
            "sites `0.jp` (user `alice`) and `1.jp` (user `",
        ),
        ([("alice", "a"), ("bob", "b"), ("", "c")], ""),
        ([("alice", "a"), ("alice", "a"), ("", "b")], ""),
        ([("", "php"), ("", "php"), ("", "php")], ""),
    ] {
        let sites = sites.iter().enumerate();
        let sites = sites.map(|(at, (user, socket))| of(&format!("{at}.jp"), user, socket));
        let text = format!("{LISTEN}{}", sites.collect::<String>());
        let said = warnings(&text);
        let count = usize::from(!expected.is_empty());
        assert_eq!(
            said.matches("`user` is not PHP's").count(),
            count,
            "{text}{said}"
        );
        assert!(said.contains(expected), "{text}{said}");
    }
}
