//! What a site says of its `.htaccess` files, and what is refused of it.

use config::Sources;
use config::model::{Handler, Model, SiteHtaccess, UnknownLines};
use htaccess::SectionContext;

use crate::written::{self, LISTEN};

fn sources(lines: &str) -> Sources {
    let text = format!("{LISTEN}[[sites]]\nhosts = [\"a.jp\"]\n{lines}\n");
    let sources = written::sources(&text);
    let sources = sources.with_php("8.2", "/usr/sbin/php-fpm8.2");
    sources.with_php("8.3", "/usr/sbin/php-fpm8.3")
}

/// What a site of these lines says; what is printed of it says the same.
fn model(lines: &str) -> Model {
    written::model_of(&sources(lines))
}

fn files(model: &Model) -> &SiteHtaccess {
    let files = model.sites[0].htaccess.as_ref();
    files.expect("files that count")
}

fn problems(lines: &str) -> String {
    written::problems(&sources(lines))
}

#[test]
fn files_count_only_where_a_site_says_so() {
    assert_eq!(model("root = \"/srv\"").sites[0].htaccess, None);
    let words = "[\"FileInfo\", \"Options=Indexes\", \"ExpiresActive\"]";
    let model = model(&format!(
        "root = \"/srv\"\nhtaccess = {{ override = {words} }}"
    ));
    let files = files(&model);
    assert_eq!(
        files.words,
        ["FileInfo", "Options=Indexes", "ExpiresActive"]
    );
    assert_eq!(files.unknown, UnknownLines::Log);
    assert!(files.handlers.is_empty());
    assert_eq!(model.htaccess_cached_bytes, 64 << 20);
}

#[test]
fn handlers_stand_for_versions_of_php_in_pools_of_their_own() {
    let model = model(
        "root = \"/srv\"\npool = { php = \"8.3\" }\n\
         htaccess = { override = [\"All\"], unknown = \"error\", handlers = { \"Application/x-httpd-ea-php82\" = \"8.2\" } }\n\
         rules = [{ match = { file = \"*.php\" }, handler = { php = true } }]",
    );
    let [(name, version, Handler::FastCgi(fastcgi))] = &files(&model).handlers[..] else {
        panic!("{:?}", files(&model).handlers);
    };
    assert_eq!(
        (&**name, &**version),
        ("application/x-httpd-ea-php82", "8.2")
    );
    assert_eq!(model.pools.len(), 2);
    let Some(Handler::FastCgi(usual)) = &model.sites[0].rules[0].handler else {
        panic!("no pool");
    };
    assert_ne!(fastcgi.pool, usual.pool);
}

#[test]
fn what_means_nothing_is_refused() {
    let root = "root = \"/srv\"\n";
    for (lines, said) in [
        (
            "htaccess = { override = [\"FileInfos\"] }",
            "FileInfos is neither a class nor a directive",
        ),
        (
            "htaccess = { override = [\"Options=Everything\"] }",
            "there is no option everything",
        ),
        ("htaccess = { unknown = \"log\" }", "`override` is missing"),
        (
            "htaccess = { override = [\"All\"], unknown = \"ignore\" }",
            "ignore",
        ),
        (
            "htaccess = { override = [\"All\"], handlers = { x = \"8.2\" } }",
            "no rule of this site has `php`",
        ),
        (
            "htaccess = { override = [\"All\"], handlers = { x = \"5.6\" } }\nrules = [{ handler = { php = true } }]\npool = { php = \"8.2\" }",
            "there is no PHP `5.6`",
        ),
    ] {
        let told = problems(&format!("{root}{lines}"));
        assert!(told.contains(said), "{lines}\n{told}");
    }
    let rootless = problems(
        "htaccess = { override = [\"All\"] }\nrules = [{ handler = { respond = { body = \"\" } } }]",
    );
    assert!(rootless.contains("the site has no files"), "{rootless}");
}

#[test]
fn sections_stand_in_the_order_in_which_they_are_merged() {
    let model = model(
        "root = \"/srv/site\"\nhtaccess = { override = [], directories = [\n\
         { path = \"/srv/site/a/b/\", text = \"Options -Indexes\" },\n\
         { path = \"/srv/site/a\", text = \"Require all granted\" },\n\
         { path = \"/\", text = \"Require all denied\" },\n\
         { path = \"/srv/site/a\", text = 'Require all denied' },\n\
         { path = \"/srv/site\", text = \"\", context = \"server\" },\n] }",
    );
    let sections = files(&model).directories.iter();
    let sections: Vec<_> = sections
        .map(|it| (&*it.directory, &*it.text, it.context))
        .collect();
    let directory = SectionContext::Directory;
    assert_eq!(
        sections,
        [
            ("/srv/site/", "", SectionContext::Server),
            ("/", "Require all denied", directory),
            ("/srv/site/a/", "Require all granted", directory),
            ("/srv/site/a/", "Require all denied", directory),
            ("/srv/site/a/b/", "Options -Indexes", directory),
        ]
    );
    assert!(files(&model).overrides.is_none());
}

#[test]
fn the_innermost_section_says_what_files_may_say() {
    let model = model(
        "root = \"/srv/site\"\nhtaccess = { override = [\"All\"], directories = [\n\
         { path = \"/srv/site/up\", override = [] },\n\
         { path = \"/srv/site/up/own\", override = [\"AuthConfig\"] },\n\
         { path = \"/srv/site/*/cache\", override = [\"None\"] },\n\
         { path = \"/srv/site/tmp\", text = \"Options -Indexes\" },\n] }",
    );
    let files = files(&model);
    assert!(files.obeys_files());
    for (directory, counts) in [
        ("/srv/site/", true),
        ("/srv/site/up/", false),
        ("/srv/site/up/deep/", false),
        ("/srv/site/up/own/", true),
        ("/srv/site/upper/", true),
        ("/srv/site/tmp/", true),
        ("/srv/site/tmp/cache/", false),
        ("/srv/site/tmp/cache/deep/", false),
        ("/srv/site/tmp/a/cache/", true),
        ("/srv/site/cache/", true),
    ] {
        let overrides = files.overrides_in(directory.as_bytes());
        assert_eq!(!overrides.is_none(), counts, "{directory}");
    }
    let said = problems(
        "root = \"/srv\"\nhtaccess = { override = [], directories = [{ path = '/srv' }] }",
    );
    assert!(said.contains("the section says nothing"), "{said}");
}

#[test]
fn a_site_without_files_has_what_its_virtual_host_says() {
    let section = |context: &str| {
        format!(
            "rules = [{{ handler = {{ respond = {{}} }} }}]\nhtaccess = {{ override = [], directories = [\n\
             {{ path = \"/\", text = \"Redirect gone /x\", context = \"{context}\" }}] }}"
        )
    };
    assert_eq!(files(&model(&section("server"))).directories.len(), 1);
    let said = problems(&section("directory"));
    assert!(said.contains("the site has no files"), "{said}");
}

#[test]
fn what_of_a_section_would_refuse_requests_is_refused_with_its_line() {
    let section = |path: &str, text: &str| {
        format!(
            "root = \"/srv\"\nhtaccess = {{ override = [], directories = [{{ path = {path}, text = {text} }}] }}"
        )
    };
    for (path, text, expected) in [
        (
            "'/srv'",
            "'''\nRequire all granted\n\nRequire moonphase full\n'''",
            ["nagaya.toml:9:", "line 3 of the text: Require"],
        ),
        (
            "'/srv'",
            "\"Options Frob\"",
            ["nagaya.toml:6:", "line 1 of the text: Options"],
        ),
        (
            "'/srv'",
            "'php_admin_value open_basedir /'",
            ["line 1 of the text: php_admin_value", "pool"],
        ),
        ("'srv'", "''", ["`srv` is no directory", "looks like"]),
        (
            "'/srv/../etc'",
            "''",
            ["`/srv/../etc` is no directory", "a"],
        ),
        (
            "'/srv/[a'",
            "''",
            ["`/srv/[a` is no directory", "one directory"],
        ),
    ] {
        let said = problems(&section(path, text));
        for part in expected {
            assert!(said.contains(part), "{part}\n{said}");
        }
    }
    let one = "{ path = '/srv', text = '' }, ".repeat(65);
    let said = problems(&format!(
        "root = \"/srv\"\nhtaccess = {{ override = [], directories = [{one}] }}"
    ));
    assert!(said.contains("65 sections of 0 bytes hold"), "{said}");
}

#[test]
fn what_of_a_section_is_left_out_is_warned_of() {
    let text = "root = \"/srv\"\nhtaccess = { override = [], directories = [{ path = '/srv', text = '''\nFrobnicate on\nphp_value a 1\n''' }] }";
    let (_, warnings) = config::judge(&sources(text), &config::LastGood::default())
        .unwrap_or_else(|wrong| panic!("{}", wrong.all));
    let said = warnings.to_string();
    for part in ["line 1 of the text", "Frobnicate", "line 2 of the text"] {
        assert!(said.contains(part), "{part}\n{said}");
    }
}

#[test]
fn what_is_kept_is_a_size() {
    let text = "[htaccess]\ncached = 50000\n".to_owned() + LISTEN + written::SITE;
    let said = written::problems(&written::sources(&text));
    assert!(said.contains("`cached` is a size"), "{said}");
    assert!(said.contains("it was a number of files"), "{said}");
    let text = text.replace("50000", "\"1GiB\"");
    let model = written::model(&text);
    assert_eq!(model.htaccess_cached_bytes, 1 << 30);
}
