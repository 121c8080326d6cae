//! What a site lets its files say.

use crate::site::Site;
use htaccess::Overrides;
use htaccess::overrides::Unknown;

#[test]
fn classes_options_and_single_directives_are_allowed() {
    for (words, text, found) in [
        (&["FileInfo"][..], "Require all denied", "500"),
        (&["AuthConfig"], "Require all denied", "403"),
        (&["Limit"], "Deny from all", "403"),
        (&["Require"], "Require all denied", "403"),
        (&["AuthConfig"], "Redirect /a http://x/", "200"),
        (&["FileInfo"], "Redirect /a http://x/", "302 http://x/"),
        (&["Redirect"], "Redirect /a http://x/", "302 http://x/"),
        (&["Options=Indexes,MultiViews"], "Options -Indexes", "200"),
        (&["Options=Indexes"], "Options +ExecCGI", "500"),
        (&["All"], "Options +ExecCGI", "200"),
        (&["FileInfo"], "Options -Indexes", "500"),
        (&["FileInfo"], "ExpiresActive On", "200"),
        (&["None"], "Header set a b", "200"),
        (&["None"], "RewriteEngine On\nRewriteRule ^ - [F]", "500"),
        (&["None"], "RewriteEngine On\nRewriteRule ^ /x", "200"),
        (&["FileInfo"], "php_flag engine off", "500"),
        (&["FileInfo"], "php_flag \"engine\" off", "500"),
        (&["FileInfo"], "php_value memory_limit 1M", "200"),
        (
            &["None"],
            "<RequireAll>\nRequire all denied\n</RequireAll>",
            "500",
        ),
    ] {
        assert_eq!(
            Site::new(text).overrides(words).short("/a"),
            found,
            "{words:?}: {text}"
        );
    }
}

#[test]
fn what_is_left_out_may_be_an_error_and_nonfatal_says_of_which() {
    let short = |words: &[&str], text: &str| {
        let overrides = Overrides::new(words.iter().copied(), Unknown::Error).expect("words");
        htaccess::compile(text.as_bytes(), &overrides)
            .problems
            .iter()
            .any(|it| it.refuses)
    };
    assert!(short(&["FileInfo"], "ExpiresActive On"));
    assert!(!short(
        &["FileInfo", "Nonfatal=Override"],
        "ExpiresActive On"
    ));
    assert!(short(&["All", "Nonfatal=Override"], "Nonsense On"));
    assert!(!short(&["All", "Nonfatal=Unknown"], "Nonsense On"));
    assert!(
        short(&["FileInfo", "Nonfatal=All"], "Require all denied"),
        "never about access"
    );
}

#[test]
fn words_that_mean_nothing_are_named() {
    for (word, part) in [
        ("Fileinfos", "neither"),
        ("Options=Index", "option"),
        ("Nonfatal=x", "All"),
    ] {
        let error = Overrides::new([word], Unknown::Log).expect_err("it means nothing");
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_word_that_was_meant_is_told() {
    let problems = Site::new("ErrorDocumnet 404 /x").problems();
    assert!(
        problems[0].text.contains("ErrorDocument perhaps"),
        "{problems:?}"
    );
    assert_eq!((problems[0].line, problems[0].refuses), (1, false));
}
