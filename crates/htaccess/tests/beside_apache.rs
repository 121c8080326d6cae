//! What Apache itself was seen to do where rules, redirects and variables meet.

use crate::site::{Site, get};

const ENGINE: &str = "RewriteEngine On\n";

#[test]
fn a_redirect_takes_the_query_that_rules_have_left() {
    let rule = "RewriteRule ^old/(.*)$ /new?name=$1\n";
    let site = Site::new(&format!("{ENGINE}{rule}Redirect 307 /old /there"));
    assert_eq!(
        site.short("/old/a?x=1"),
        "307 http://example.jp/there/a?name=a"
    );
}

#[test]
fn a_fragment_takes_the_query_of_a_path_with_it() {
    let site = Site::new(&format!("{ENGINE}RewriteRule ^old$ /new#part\n"));
    assert_eq!(site.short("/old?x=1"), "-> /new");
    let site = Site::new(&format!("{ENGINE}RewriteRule ^old$ /new?a=b#part\n"));
    assert_eq!(site.short("/old"), "-> /new?a=b");
    // Where the client is sent to the slash first, nothing begins anew.
    let site = Site::new(&format!("{ENGINE}RewriteRule ^sub$ /new#part\n")).files(&["sub/"]);
    let asked = site.ask("/sub?x=1");
    assert_eq!(asked.query.as_deref(), Some("x=1"));
}

#[test]
fn a_variable_that_is_taken_away_stays_where_the_request_has_set_it() {
    let site = Site::new("SetEnvIf Request_URI ^/a SEEN=yes\nUnsetEnv SEEN OUTER\nSetEnv OUTER x");
    let asked = site.ask("/a");
    assert_eq!(asked.variable("SEEN").as_deref(), Some("yes"));
    let site = Site::new("SetEnv OUTER x").below("sub", "UnsetEnv OUTER");
    assert_eq!(site.ask("/sub/a").variable("OUTER"), None);
}

#[test]
fn files_read_of_a_variable_what_was_asked_and_programs_what_is_set_in_any_case() {
    let site = Site::new("SetEnv SEEN no\nSetEnvIf Request_URI ^/a SEEN=yes");
    let of = |target: &str| {
        let asked = site.ask(target);
        let mut told = asked.variables.iter();
        let told = told.find(|(name, _)| name == b"SEEN");
        let told = told.map(|(_, value)| String::from_utf8_lossy(value).into_owned());
        (asked.variable("SEEN"), told)
    };
    let both = |read: &str, told: &str| (Some(read.to_owned()), Some(told.to_owned()));
    assert_eq!(of("/a"), both("yes", "no"));
    assert_eq!(of("/b"), both("no", "no"));
}

#[test]
fn for_a_path_that_nobody_could_ask_for_no_file_holds() {
    let rule = "RewriteRule ^x/(.*)$ /y/$1 [B,L]\nErrorDocument 404 /page\n";
    let site = Site::new(&format!("{ENGINE}{rule}"));
    let page = |target: &str| {
        let asked = site.ask(target);
        (asked.short(), asked.settings.error_document(404).is_some())
    };
    assert_eq!(page("/x/a/b"), ("404".to_owned(), false));
    assert_eq!(page("/x/a"), ("-> /y/a".to_owned(), true));
}

#[test]
fn an_expression_without_groups_leaves_those_of_the_one_before() {
    let denies = |expression: &str| {
        let site = Site::new(&format!("<If \"{expression}\">\nRequire all denied\n</If>"));
        site.short("/abc") == "403"
    };
    assert!(denies(
        "%{REQUEST_URI} =~ /a(.)/ && 'xy' =~ /x/ && $1 == 'b'"
    ));
    assert!(denies("'abc' =~ /bc/ && $0 == ''"));
    assert!(denies("'abc' =~ /a(.)/ && !('xy' =~ /(z)/) && $1 == ''"));
}

#[test]
fn a_page_of_a_directory_is_rewritten_though_end_was_met() {
    let text = format!("{ENGINE}RewriteRule ^index\\.html$ /front.html [L]\n");
    let site = Site::new(&text).files(&["index.html", "front.html"]);
    let mut page = get("/index.html");
    page.has_ended = true;
    assert_eq!(site.asked(&page, None).short(), "200");
    page.is_page = true;
    let asked = site.asked(&page, None);
    assert_eq!(asked.short(), "-> /front.html");
    assert!(asked.has_ended, "what follows is not rewritten");
}

#[test]
fn the_first_cookie_of_a_name_is_set() {
    let rules = "RewriteRule ^ - [CO=a:1:example.jp]\nRewriteRule ^ - [CO=a:2:example.jp]\n";
    let site = Site::new(&format!("{ENGINE}{rules}"));
    let cookies = site.ask("/").cookies;
    assert_eq!(cookies, ["a=1; path=/; domain=example.jp"]);
}
