//! What a configuration says of sites that rows make, and of plans.

use config::model::{Acceptor, Condition, Handler, TemplatePart};

use crate::written::{self, model};

const HEAD: &str = r#"
[[listen]]
address = "127.0.0.1:8080"
[directories.customers]
source = "sqlite:/srv/rows.db"
query = "SELECT tenant FROM domains WHERE host = $host"
[plans.small]
weight = 3
limits = [{ concurrent = 10, queue = 50 }]
[tenants.own]
plan = "small"
limits = [{ name = "mine", key = "client", rate = "5/s" }]
[[sites]]
hosts = ["own.jp"]
tenant = "own"
root = "/srv"
"#;

const SITE: &str = r#"
[[sites]]
hosts = { directory = "customers" }
tenant = "$row.tenant"
user = "$row.user"
plan = "${row.plan}"
root = "/var/www/$row.user"
"#;

fn problem(text: &str) -> String {
    written::problems(&written::sources(&format!("{HEAD}{text}")))
}

#[test]
fn a_site_of_rows_has_their_columns_in_its_texts() {
    let model = model(&format!(
        "{HEAD}{SITE}[[sites.rules]]\nmatch = {{ row = \"upstream\" }}\n\
         handler = {{ proxy = \"$row.upstream\", allow = [\"10.0.0.0/8\"] }}\n\
         reply_headers = {{ set = {{ X-Plan = \"${{row.plan}}.$row.note!\" }} }}\n"
    ));
    let site = &model.sites[1];
    let rows = site.rows.as_deref().expect("rows");
    assert_eq!((rows.directory, &*rows.name), (0, "customers"));
    assert!(rows.has_user && site.hosts.is_empty() && site.root.is_none());
    assert_eq!(site.name(), "directory:customers");
    let root = rows.root.as_ref().expect("a root");
    assert_eq!(root.path.parts.len(), 2);
    assert_eq!(root.path, root.within);
    let rule = &site.rules[0];
    assert_eq!(rule.conditions, [Condition::Row("upstream".into())]);
    let Some(Handler::Proxy(proxy)) = &rule.handler else {
        panic!("{rule:?}");
    };
    assert_eq!((proxy.row(), proxy.allow.len()), (Some("upstream"), 1));
    let (_, value) = &rule.settings.reply_headers.set[0];
    let expected = [
        TemplatePart::Row("plan".into()),
        TemplatePart::Text(".".into()),
        TemplatePart::Row("note".into()),
        TemplatePart::Text("!".into()),
    ];
    assert_eq!(value.parts, expected);
}

#[test]
fn a_written_tenant_has_its_plans_limits_and_weight_beside_its_own() {
    let model = model(HEAD);
    let tenant = &model.tenants[0];
    assert_eq!(tenant.weight, 3);
    let names: Vec<&str> = tenant.limits.iter().map(|limit| &*limit.name).collect();
    assert_eq!(names, ["mine", "tenant"]);
}

#[test]
fn a_plan_says_whether_its_tenants_may_look() {
    let blind = HEAD.replace("weight = 3", "console = false");
    assert!(model(HEAD).tenants[0].console && model(HEAD).plans[0].console);
    assert!(!model(&blind).tenants[0].console);
    let own = blind.replace("[tenants.own]", "[tenants.own]\nconsole = true");
    assert!(model(&own).tenants[0].console && !model(&own).plans[0].console);
}

#[test]
fn a_console_of_rows_shows_the_rows_tenant_alone() {
    let recorded = HEAD.replace(
        "[plans",
        "[recorder]\ndirectory = \"/var/lib/figures\"\n[plans",
    );
    let text = |console: &str| {
        let rule = format!(
            "rules = [{{ match = {{ path = \"/stats/*\" }}, allow = [\"127.0.0.1\"], handler = {{ console = {console} }} }}]"
        );
        format!("{recorded}{}", with(&rule))
    };
    let model = model(&text("\"$tenant\""));
    assert!(matches!(
        model.sites[1].rules[0].handler,
        Some(Handler::Console(_))
    ));
    for console in [
        "true",
        "{ tenants = [\"own\"] }",
        "{ tenants = [\"$tenant\", \"own\"] }",
    ] {
        let problem = written::problems(&written::sources(&text(console)));
        assert!(
            problem.contains("shows the tenant of the row, and nobody else"),
            "{problem}"
        );
    }
}

/// Each is refused with these words.
fn refused(texts: &[(&str, &str)]) {
    for (text, why) in texts {
        let problem = problem(text);
        assert!(problem.contains(why), "{text}\n{problem}");
    }
}

/// A site of rows that says this, too.
fn with(more: &str) -> String {
    format!("{SITE}{more}\n")
}

/// One that has this handler.
fn handled(handler: &str) -> String {
    with(&format!("rules = [{{ handler = {{ {handler} }} }}]"))
}

#[test]
fn what_rows_do_not_have_yet_is_refused_in_a_sentence() {
    refused(&[
        (&with("mounts = []"), "`mounts` is not there yet"),
        (&with("pool = { min = 1 }"), "`min` is not there yet"),
        (
            &with("pool = { share = \"site\" }"),
            "`share` is not there yet",
        ),
        (&with("cgroup = { pids = 5 }"), "`cgroup` is not there yet"),
        (
            &with("tls = { client_ca = \"a.pem\" }"),
            "`client_ca` is not there yet",
        ),
        (
            &with("log = { error = \"/srv/e\" }"),
            "`error` is not there yet",
        ),
        (
            &handled("app = { command = [\"./a\"] }"),
            "`app` is not there yet",
        ),
        (
            &handled("fastcgi = \"127.0.0.1:9000\""),
            "`fastcgi` is not there yet",
        ),
        (
            "[plans.x]\nlimits = [{ on = \"handshake\", rate = \"1/s\" }]\n",
            "not there yet",
        ),
    ]);
}

#[test]
fn programs_of_rows_have_pools_whose_php_a_column_may_say() {
    let php = "[php.\"8.2\"]\nprogram = \"/bin/true\"\n[php.\"8.3\"]\nprogram = \"/bin/false\"\n";
    let rule = "[[sites.rules]]\nmatch = { file = \"*.php\" }\nhandler = { php = true }\n";
    let with = |pool: &str| model(&format!("{php}{HEAD}{SITE}{pool}\n{rule}"));
    let said = with("pool = { php = \"$row.php\", processes = 2 }");
    let site = &said.sites[1];
    assert_eq!(site.pool.php_column(), Some("php"));
    assert!(site.has_pools_of_rows() && said.pools.is_empty());
    assert_eq!(said.php.len(), 2, "a row may name each");
    let said = with("pool = { php = \"8.3\" }");
    assert_eq!(said.sites[1].pool.php_column(), None);
    assert_eq!(said.php.len(), 1);
    for (text, why) in [
        (
            format!("{php}{SITE}pool = {{ php = \"8.$row.php\" }}\n{rule}"),
            "a column says all",
        ),
        (
            format!("{php}{SITE}pool = {{ php = \"7\" }}\n{rule}"),
            "there is no PHP `7`",
        ),
        (format!("{php}{SITE}{rule}"), "say which PHP"),
        (
            format!(
                "{php}[[sites]]\nhosts = {{ directory = \"customers\" }}\ntenant = \"$row.t\"\npool = {{ php = \"8.3\" }}\nrules = [{{ handler = {{ php = true }} }}]\n"
            ),
            "need a `root` and `user",
        ),
    ] {
        let problem = problem(&text);
        assert!(problem.contains(why), "{text}\n{problem}");
    }
}

#[test]
fn a_plans_cgroup_is_its_tenants_who_have_none() {
    let text = HEAD.replace("weight = 3", "weight = 3\ncgroup = { pids = 5 }");
    let model = model(&text);
    let pids = |cgroup: &Option<Box<config::model::Cgroup>>| cgroup.as_ref()?.pids;
    assert_eq!(pids(&model.plans[0].cgroup), Some(5));
    assert_eq!(pids(&model.tenants[0].cgroup), Some(5));
}

#[test]
fn what_rows_cannot_say_is_refused_in_a_sentence() {
    let site = "[[sites]]\nhosts = { directory = \"customers\" }\n";
    let other = "[[sites]]\nhosts = [\"b.jp\"]\n";
    refused(&[
        (&format!("{SITE}{SITE}"), "make another site"),
        (
            &site.replace("customers", "customer"),
            "did you mean `customers`",
        ),
        (
            &format!("{site}tenant = \"t\"\nroot = \"/srv\"\n"),
            "names no column",
        ),
        (site, "`tenant` is missing"),
        (
            &format!("{site}tenant = \"$row.t\"\nroot = \"/srv/$row.user\"\n"),
            "needs `user",
        ),
        (&handled("proxy = \"$row.upstream\""), "`allow` is missing"),
        (&handled("proxy = \"http://$row.upstream/\""), ""),
        (
            &handled("redirect = \"https://$row.to/\""),
            "may say to which host",
        ),
        (
            &handled("respond = { body = \"${row.a-b}\" }"),
            "no name of a column",
        ),
        (
            &format!("{other}rules = [{{ handler = {{ respond = {{ body = \"$row.a\" }} }} }}]\n"),
            "no row makes this",
        ),
        (
            &format!("{other}plan = \"small\"\nroot = \"/srv\"\n"),
            "`plan` stands on sites of a directory",
        ),
        ("[tenants.b]\nplan = \"smal\"\n", "did you mean `small`"),
        ("[plans.\"a b\"]\n", "cannot be a plan's name"),
    ]);
}

const ORDERING: &str = r#"
[acme.le]
directory = "https://ca.example/directory"
on_demand = { directory = "customers", tenant = 5 }
"#;

#[test]
fn certificates_of_rows_are_named_by_a_column_or_ordered_for_names_that_have_one() {
    let tls = "tls = { certificate = \"$row.cert\", acme = \"le\", redirect = true }\n";
    let model = model(&format!("{HEAD}{ORDERING}{SITE}{tls}"));
    let site = &model.sites[1];
    let rows = site.rows.as_deref().expect("rows");
    assert_eq!(rows.certificate.as_deref(), Some("cert"));
    assert_eq!(model.acceptor_of(site), Some(Acceptor::Directory(0)));
    let hosts = model.demanded_hosts().expect("there are some");
    assert_eq!(hosts.covering("a.example").map(|it| it.site), Some(1));
    assert!(hosts.covering("own.jp").is_none());
    let map = ORDERING.replace("directory = \"customers\"", "map = \"m\"");
    let map = format!("[maps.m]\nprogram = [\"true\"]\n{map}");
    let other = "[[sites]]\nhosts = [\"*\"]\nroot = \"/srv\"\ntls = { acme = \"le\" }\n";
    let both = map.replace("acme.le", "acme.other");
    refused(&[
        (
            &with("tls = { certificate = \"a.pem\" }"),
            "is a column of it",
        ),
        (
            &format!("{map}{SITE}tls = {{ acme = \"le\" }}\n"),
            "orders nothing for directory `customers`",
        ),
        (
            &format!(
                "{ORDERING}{both}{SITE}tls = {{ acme = \"le\" }}\n{}",
                other.replace("le", "other")
            ),
            "the default site has names ordered on demand",
        ),
        (
            &ORDERING.replace("customers", "customer"),
            "did you mean `customers`",
        ),
        (
            &ORDERING.replace("tenant", "map = \"m\", tenant"),
            "`map` says nothing beside",
        ),
    ]);
}

#[test]
fn a_plan_says_of_pools_what_sites_of_its_tenants_do_not_say() {
    let php = "[php.\"8.3\"]\nprogram = \"/bin/false\"\n";
    let plan = "weight = 3\npool = { processes = 2, time = \"30s\" }";
    let head = HEAD.replace("weight = 3", plan);
    let site = |host: &str, more: &str| {
        format!(
            "[[sites]]\nhosts = [\"{host}\"]\ntenant = \"own\"\nroot = \"/srv\"\n{more}\
             rules = [{{ handler = {{ php = true }} }}]\n"
        )
    };
    let own = site("b.jp", "pool = { processes = 5 }\n");
    let model = model(&format!("{php}{head}{}{own}{SITE}", site("a.jp", "")));
    let said = |at: usize| {
        let pool = &model.sites[at].pool;
        (pool.processes, pool.requests, pool.time_ms)
    };
    assert_eq!(said(1), (2, 4_000, 30_000));
    assert_eq!(said(2), (5, 4_000, 30_000));
    assert_eq!(said(3), (8, 4_000, 300_000), "a row's plan is not known");
    let pool = model.plans[0].pool;
    assert_eq!((pool.processes, pool.requests), (Some(2), None));
    refused(&[("[plans.x]\npool = { php = \"8.3\" }\n", "php")]);
}
