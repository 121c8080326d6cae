//! What a site says of its `.htaccess` files, and what is refused of it.

use config::model::{Handler, Model, SiteHtaccess, UnknownLines};
use config::{Sources, dump, load};

use crate::written::LISTEN;

fn sources(lines: &str) -> Sources {
    let text = format!("{LISTEN}[[sites]]\nhosts = [\"a.jp\"]\n{lines}\n");
    let sources = Sources::from_text("nagaya.toml", &text);
    let sources = sources.with_php("8.2", "/usr/sbin/php-fpm8.2");
    sources.with_php("8.3", "/usr/sbin/php-fpm8.3")
}

/// What a site of these lines says; what is printed of it says the same.
fn model(lines: &str) -> Model {
    let model = load(&sources(lines)).unwrap_or_else(|problems| panic!("{lines}\n{problems}"));
    let printed = dump(&model);
    let again = load(&Sources::from_text("nagaya.toml", &printed));
    let again = again.unwrap_or_else(|problems| panic!("{printed}\n{problems}"));
    assert_eq!(again, model, "{printed}");
    model
}

fn files(model: &Model) -> &SiteHtaccess {
    let files = model.sites[0].htaccess.as_ref();
    files.expect("files that count")
}

fn problems(lines: &str) -> String {
    load(&sources(lines)).expect_err(lines).to_string()
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
    assert_eq!(model.htaccess_cached, 20_000);
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
