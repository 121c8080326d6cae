//! Which of several places that say something has the last word.

use crate::site::{Site, get};

#[test]
fn a_place_within_replaces_access_and_adds_the_rest() {
    let site = Site::new("Require all denied\nHeader set a 1\nSetEnv X outer\nOptions -Indexes");
    let site = site.below("sub", "Require all granted\nHeader set b 2\nSetEnv X inner");
    let site = site.files(&["sub/b.html"]);
    let asked = site.ask("/sub/b.html");
    assert_eq!(asked.short(), "200");
    assert_eq!(asked.variable("X").as_deref(), Some("inner"));
    assert_eq!(site.short("/a"), "403");
    let both = Site::new("Require ip 10").below("sub", "AuthMerging And\nRequire method GET");
    assert_eq!(
        both.asked(&get("/sub/").from("10.1.1.1"), None).short(),
        "200"
    );
    assert_eq!(both.short("/sub/"), "403");
}

#[test]
fn any_line_of_2_2_within_replaces_all_of_those_outside() {
    let site = Site::new("Order allow,deny\nAllow from 10").below("sub", "Deny from 10.9");
    assert_eq!(site.short("/a"), "403");
    assert_eq!(site.short("/sub/"), "200", "its order is the default again");
}

#[test]
fn sections_of_files_come_after_all_plain_lines_and_conditions_last() {
    let site = Site::new("<Files \"b.html\">\nRequire all denied\n</Files>");
    let site = site
        .below("sub", "Require all granted")
        .files(&["sub/b.html", "sub/c.html"]);
    assert_eq!(
        site.short("/sub/b.html"),
        "403",
        "the outer section stands after the inner line"
    );
    assert_eq!(site.short("/sub/c.html"), "200");
    let site = Site::new(
        "<If \"true\">\nSetEnv X if\n</If>\n<Files *>\nSetEnv X files\n</Files>\nSetEnv X plain",
    );
    assert_eq!(site.ask("/a").variable("X").as_deref(), Some("if"));
}

#[test]
fn a_condition_within_another_comes_after_all_those_outside() {
    let within = "<If \"true\">\nSetEnv X outer\n<If \"true\">\nSetEnv X within\n</If>\n</If>\n";
    let site = Site::new(&format!("{within}<If \"true\">\nSetEnv X next\n</If>"));
    let site = site.below("sub", "<If \"true\">\nSetEnv X below\n</If>");
    for target in ["/a", "/sub/a"] {
        let asked = site.ask(target);
        assert_eq!(asked.variable("X").as_deref(), Some("within"), "{target}");
    }
}

#[test]
fn if_and_else_are_one_choice() {
    let text = "<If \"%{QUERY_STRING} == 'a'\">\nSetEnv X a\n</If>\n<ElseIf \"%{QUERY_STRING} == 'b'\">\nSetEnv X b\n</ElseIf>\n<Else>\nSetEnv X else\n</Else>";
    let site = Site::new(text);
    for (target, found) in [("/?a", "a"), ("/?b", "b"), ("/?c", "else")] {
        assert_eq!(site.ask(target).variable("X").as_deref(), Some(found));
    }
}

#[test]
fn sections_stand_in_each_other() {
    let site = Site::new(
        "<If \"%{QUERY_STRING} == 'a'\">\n<Files \"x.*\">\n<If \"%{HTTP_HOST} == 'example.jp'\">\nDeny from all\n</If>\n</Files>\n</If>",
    );
    let site = site.files(&["x.txt", "y.txt"]);
    // In a file `<Files>` in `<If>` does nothing in Apache, and what it says is about access.
    assert_eq!(site.short("/x.txt?a"), "500");
    assert_eq!(site.short("/y.txt?a"), "200");
    assert_eq!(site.short("/x.txt?b"), "200");
    let site = Site::new("<If \"true\">\n<Files *>\nSetEnv X y\n</Files>\n</If>");
    assert_eq!(site.ask("/x.txt").variable("X"), None);
    // That of the configuration counts.
    let site = Site::new("");
    let site = site.of_server("<If \"true\">\n<Files x.*>\nDeny from all\n</Files>\n</If>");
    assert_eq!(site.files(&["x.txt"]).short("/x.txt"), "403");
    let site = Site::new("<Files \"x*\">\n<Files \"*.txt\">\nDeny from all\n</Files>\n</Files>");
    let site = site.files(&["x.txt", "x.html"]);
    assert_eq!(
        (site.short("/x.txt"), site.short("/x.html")),
        ("403".into(), "200".into())
    );
}

#[test]
fn options_add_to_the_inherited_or_replace_them() {
    let lists = |outer: &str, inner: &str| {
        let site = Site::new(outer).below("sub", inner);
        let options = htaccess::AllowedOptions::NONE;
        site.ask("/sub/").settings.options(options).lists()
    };
    assert!(lists("Options +Indexes", ""));
    assert!(lists("Options Indexes", "Options +MultiViews"));
    assert!(!lists("Options Indexes", "Options FollowSymLinks"));
    assert!(!lists("Options +Indexes", "Options -Indexes"));
    assert!(lists("Options None", "Options +Indexes"));
    assert!(lists("Options -Indexes", "Options All"));
}

#[test]
fn what_a_file_takes_away_it_does_not_give() {
    let told = |outer: &str, inner: &str| {
        let site = Site::new(outer).below("sub", inner);
        let described = site.ask("/sub/x.gz").settings.describe(b"x.gz");
        (described.encodings.len(), described.media_type)
    };
    for both in [
        "RemoveEncoding .gz\nAddEncoding x-gzip .gz\nRemoveType gz\nAddType text/x .gz",
        "AddEncoding x-gzip .gz\nRemoveEncoding .gz\nAddType text/x .gz\nRemoveType gz",
    ] {
        assert_eq!(told("", both), (0, Some(None)), "{both}");
    }
    let given = told("RemoveEncoding .gz", "AddEncoding x-gzip .gz");
    assert_eq!(given, (1, None), "a directory within gives it again");
}

#[test]
fn names_of_files_are_globs_or_patterns() {
    for (section, hits, misses) in [
        ("<Files \"*.inc\">", "/a.inc", "/a.inc.txt"),
        ("<Files ~ \"^\\.ht\">", "/.htpasswd", "/x.ht"),
        (
            "<FilesMatch \"^(?!index).*\\.php$\">",
            "/other.php",
            "/index.php",
        ),
        ("<Files \"a?[b-d].txt\">", "/axc.txt", "/axe.txt"),
        (
            "<Files wp-config.php>",
            "/wp-config.php",
            "/wp-config.php.bak",
        ),
    ] {
        let end = if section.contains("Match") {
            "</FilesMatch>"
        } else {
            "</Files>"
        };
        let site = Site::new(&format!("{section}\nDeny from all\n{end}"));
        let site = site.files(&["a.inc", "index.php", "other.php", "wp-config.php"]);
        assert_eq!(site.short(hits), "403", "{section}");
        assert_eq!(site.short(misses), "200", "{section}");
    }
}

#[test]
fn modules_and_versions_choose_lines() {
    for (section, is_there) in [
        ("<IfModule mod_rewrite.c>", true),
        ("<IfModule rewrite_module>", true),
        ("<IfModule !mod_rewrite.c>", false),
        ("<IfModule mod_php.c>", true),
        ("<IfModule mod_php7.c>", true),
        ("<IfModule LiteSpeed>", false),
        ("<IfModule mod_security2.c>", false),
        ("<IfModule !mod_security2.c>", true),
        ("<IfVersion >= 2.4>", true),
        ("<IfVersion < 2.4>", false),
        ("<IfVersion ~ ^2\\.4>", true),
        ("<IfDefine DEBUG>", false),
        ("<IfDefine !DEBUG>", true),
    ] {
        let name = section
            .trim_start_matches('<')
            .split(' ')
            .next()
            .expect("a name");
        let site = Site::new(&format!("{section}\nSetEnv hit 1\n</{name}>"));
        assert_eq!(
            site.ask("/").variable("hit").is_some(),
            is_there,
            "{section}"
        );
    }
}

#[test]
fn directories_have_indexes_and_fallbacks() {
    let site = Site::new(
        "DirectoryIndex index.php\nDirectoryIndex index.html\nFallbackResource /index.php\nIndexIgnore *.bak .??*",
    );
    let settings = site.ask("/").settings;
    assert_eq!(
        settings.index(),
        Some(&[b"index.php".to_vec(), b"index.html".to_vec()][..])
    );
    assert_eq!(settings.fallback(), Some(&b"/index.php"[..]));
    assert!(settings.is_unlisted(b"x.bak") && settings.is_unlisted(b".git"));
    assert!(!settings.is_unlisted(b"x.html"));
    let inner =
        Site::new("DirectoryIndex a").below("sub", "DirectoryIndex b\nFallbackResource disabled");
    let settings = inner.ask("/sub/").settings;
    assert_eq!(settings.index(), Some(&[b"b".to_vec()][..]));
    assert_eq!(settings.fallback(), None);
}

#[test]
fn redirects_are_by_path_or_pattern_and_keep_the_query() {
    for (line, target, found) in [
        (
            "Redirect 301 /old /new",
            "/old/page?x=1",
            "301 http://example.jp/new/page?x=1",
        ),
        ("Redirect /old https://o.jp/new", "/older", "200"),
        (
            "Redirect permanent /old https://o.jp/new?y",
            "/old?x",
            "301 https://o.jp/new?y",
        ),
        (
            "RedirectMatch 302 ^/(\\d+)\\.html$ /n/$1",
            "/42.html",
            "302 http://example.jp/n/42",
        ),
        ("Redirect gone /old", "/old", "410"),
        ("Redirect 404 /old", "/old/x", "404"),
        ("RedirectMatch 403 \\.sql$", "/a.sql", "403"),
        ("RedirectPermanent /a /b", "/a", "301 http://example.jp/b"),
        (
            "Redirect 301 https://o.jp/all",
            "/whatever",
            "301 https://o.jp/all",
        ),
    ] {
        assert_eq!(Site::new(line).short(target), found, "{line}");
    }
    let site =
        Site::new("RewriteEngine On\nRewriteRule ^old$ /index.php [L]\nRedirect 301 /old /new");
    assert_eq!(
        site.short("/old"),
        "301 http://example.jp/new",
        "rules do not come before it"
    );
}

#[test]
fn error_documents_are_paths_urls_or_texts() {
    use htaccess::settings::ErrorDocument;
    let site = Site::new(
        "ErrorDocument 404 /404.php\nErrorDocument 403 \"Not here\"\nErrorDocument 500 https://o.jp/x\nErrorDocument 502 default",
    );
    let settings = site.ask("/").settings;
    assert!(
        matches!(settings.error_document(404), Some(ErrorDocument::Path(path)) if path == b"/404.php")
    );
    assert!(
        matches!(settings.error_document(403), Some(ErrorDocument::Text(text)) if text == b"Not here")
    );
    assert!(
        matches!(settings.error_document(500), Some(ErrorDocument::Url(url)) if url == b"https://o.jp/x")
    );
    assert!(matches!(
        settings.error_document(502),
        Some(ErrorDocument::Default)
    ));
    assert!(settings.error_document(400).is_none());
}

#[test]
fn php_values_are_taken_and_those_of_administrators_never() {
    let site = Site::new(
        "php_value upload_max_filesize 10M\nphp_flag display_errors off\nphp_value from none\nphp_value x 1",
    );
    let settings = site.ask("/").settings;
    let php: Vec<_> = settings.php().collect();
    assert_eq!(
        php,
        [
            ("display_errors", &b"0"[..]),
            ("from", b""),
            ("upload_max_filesize", b"10M"),
        ]
    );
    assert_eq!(
        Site::new("php_admin_value open_basedir /").short("/"),
        "403"
    );
}

#[test]
fn requirements_of_several_places_go_together_as_each_says() {
    let site = |lines: [&str; 3]| {
        let site = Site::new(lines[0]).below("a", lines[1]);
        site.below("a/b", lines[2])
    };
    let (all, none) = ("Require all granted", "Require all denied");
    let (and, or) = ("AuthMerging And\n", "AuthMerging Or\n");
    for (first, how, second, then, third, found) in [
        (all, and, all, and, all, "200"),
        (all, and, none, and, all, "403"),
        (none, and, all, or, all, "200"),
        (all, or, none, and, none, "403"),
        (none, or, none, or, all, "200"),
        (none, "", all, and, all, "200"),
        (none, and, all, "", all, "200"),
        (all, and, all, "AuthMerging Off\n", none, "403"),
        (
            "<Limit POST>\nRequire all denied\n</Limit>",
            and,
            all,
            and,
            all,
            "200",
        ),
        (
            "<Limit POST>\nRequire all denied\n</Limit>",
            or,
            none,
            or,
            none,
            "403",
        ),
        (
            all,
            and,
            "<Limit POST>\nRequire all denied\n</Limit>",
            and,
            all,
            "200",
        ),
    ] {
        let (second, third) = (format!("{how}{second}"), format!("{then}{third}"));
        let site = site([first, &second, &third]);
        assert_eq!(site.short("/a/b/"), found, "{first} / {second} / {third}");
    }
    let basic = "AuthType Basic\nAuthName x\nAuthUserFile /f\n";
    let users = Site::new(&format!("{basic}Require valid-user"));
    let users = users.below("a", "AuthMerging And\nRequire user anna");
    for (who, found) in [("anna", "200"), ("bert", "401"), ("", "401")] {
        let asked = users.asked(&get("/a/").with("Authorization", who), None);
        assert_eq!(asked.short(), found, "{who}");
    }
}

#[test]
fn the_innermost_redirects_are_asked_first_each_file_in_its_order() {
    let site = Site::new("Redirect 301 /a /outer-1\nRedirect 302 /a/b /outer-2");
    let site = site.below(
        "a",
        "RedirectMatch 303 b$ /inner-1\nRedirect 307 /a/b /inner-2",
    );
    assert_eq!(site.short("/a/b"), "303 http://example.jp/inner-1");
    assert_eq!(site.short("/a/c"), "301 http://example.jp/outer-1/c");
    let site = site.below(
        "a/b",
        "<Files *>\nRedirect 308 /a/b/x /section\n</Files>\nRedirect /a/b /plain",
    );
    assert_eq!(site.short("/a/b/x"), "308 http://example.jp/section");
    assert_eq!(site.short("/a/b/y"), "302 http://example.jp/plain/y");
}

#[test]
fn a_body_may_be_as_long_as_the_site_has_it_where_a_file_within_says_none() {
    let site = Site::new("LimitRequestBody 1000").below("a", "LimitRequestBody 0");
    assert_eq!(site.ask("/x").settings.body_bytes_max(), Some(1_000));
    assert_eq!(site.ask("/a/").settings.body_bytes_max(), None);
}
