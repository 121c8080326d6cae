//! What `.htaccess` files say of replies: types, fields, pages of failures.

use super::{ask, check, gateway};

#[test]
fn a_type_that_is_taken_away_is_not_told() {
    let gateway = gateway(&[("site/.htaccess", "RemoveType .txt\nDefaultLanguage ja\n")]);
    let plain = ask(&gateway, "a.test", "/plain.txt", "");
    assert_eq!((plain.status, plain.text()), (200, "plain".into()));
    assert_eq!(plain.head.field("Content-Type"), None);
    assert_eq!(plain.head.field("Content-Language"), Some("ja"));
}

#[test]
fn a_type_is_told_by_the_endings_before_one_that_says_something_else() {
    let gateway = gateway(&[
        (
            "site/.htaccess",
            "RemoveType .gz\nAddEncoding gzip .gz\nAddEncoding br .br\nAddLanguage de .de\n\
             <Files kept.*>\nAddType text/x-own .js\n</Files>\n",
        ),
        ("site/x.js.gz", "x"),
        ("site/x.css.br", "x"),
        ("site/x.de.html.bz2", "x"),
        ("site/x.html.de", "x"),
        ("site/kept.js.gz", "x"),
        ("site/x.gz", "x"),
    ]);
    for (path, kind, coding) in [
        ("/x.js.gz", "text/javascript", Some("gzip")),
        ("/x.css.br", "text/css", Some("br")),
        ("/x.de.html.bz2", "application/x-bzip2", None),
        ("/x.html.de", "text/html", None),
        ("/kept.js.gz", "text/x-own", Some("gzip")),
        ("/x.gz", "", Some("gzip")),
    ] {
        let reply = ask(&gateway, "a.test", path, "");
        let said = reply.head.field("Content-Type").unwrap_or_default();
        assert_eq!(said.split(';').next(), Some(kind), "{path}");
        assert_eq!(reply.head.field("Content-Encoding"), coding, "{path}");
    }
}

#[test]
fn fields_types_and_pages_of_failures_are_as_files_say() {
    let gateway = gateway(&[(
        "site/.htaccess",
        "Header set X-Said yes\nHeader always set X-Always yes\nAddType text/x-own .txt\n\
         ErrorDocument 404 /errors/404.html\nErrorDocument 403 \"closed, sorry\"\nAcceptPathInfo On\n\
         <Files front.txt>\nRequire all denied\n</Files>\n",
    )]);
    let plain = ask(&gateway, "a.test", "/plain.txt", "");
    assert_eq!(plain.head.field("X-Said"), Some("yes"));
    assert_eq!(plain.head.field("X-Always"), Some("yes"));
    let kind = plain.head.field("Content-Type").unwrap_or_default();
    assert!(kind.starts_with("text/x-own"), "{kind}");
    check(&gateway, "a.test", &[("/plain.txt/more", 200, "plain")]);
    let moved = ask(&gateway, "a.test", "/sub", "");
    assert_eq!(moved.head.field("X-Always"), Some("yes"));
    assert_eq!((moved.status, moved.head.field("X-Said")), (301, None));
    let none = ask(
        &gateway,
        "a.test",
        "/none",
        "If-Modified-Since: Fri, 27 Nov 2099 00:00:00 GMT\r\n",
    );
    assert_eq!((none.status, none.text()), (404, "nothing here".into()));
    let closed = ask(&gateway, "a.test", "/front.txt", "");
    assert_eq!(
        (closed.status, closed.text()),
        (403, "closed, sorry".into())
    );
    assert_eq!(closed.head.field("X-Always"), Some("yes"));
    assert_eq!(closed.head.field("X-Said"), None);
}

#[test]
fn a_failure_stands_whose_page_is_sent_elsewhere_but_by_a_rule() {
    let gateway = gateway(&[
        (
            "site/.htaccess",
            "ErrorDocument 404 /none/page\nErrorDocument 403 /closed/page\nRewriteEngine On\n\
             RewriteRule ^none/page$ /sub\nRedirect 303 /closed http://b.test\n\
             <Files plain.txt>\nRequire all denied\n</Files>\n",
        ),
        (
            "site/rules/.htaccess",
            "ErrorDocument 404 /rules/away\nErrorDocument 403 /rules/none\nRewriteEngine On\n\
             RewriteRule ^away$ http://b.test/ [R=301,L]\nRewriteRule ^none$ - [G]\n\
             <Files closed.txt>\nRequire all denied\n</Files>\n",
        ),
        ("site/sub/page.txt", "sub"),
        ("site/rules/closed.txt", "closed"),
    ]);
    for (path, status, location) in [
        ("/nothing", 404, None),
        ("/plain.txt", 403, None),
        ("/none/page", 301, Some("/sub/")),
        ("/closed/page", 303, Some("http://b.test/page")),
        // What a rule says of the page it says of the request, as in Apache.
        ("/rules/nothing", 301, Some("http://b.test/")),
        ("/rules/closed.txt", 410, None),
    ] {
        let reply = ask(&gateway, "a.test", path, "");
        let said = (reply.status, reply.head.field("Location"));
        assert_eq!(said, (status, location), "{path}");
    }
}

#[test]
fn a_failure_whose_page_is_refused_has_the_head_and_the_page_of_what_was_asked() {
    let gateway = gateway(&[
        (
            "site/.htaccess",
            "ErrorDocument 403 /closed/page\nHeader always set X-Root yes\n\
             <Files front.txt>\nRequire all denied\n</Files>\n",
        ),
        (
            "site/closed/.htaccess",
            "Require all denied\nHeader always set X-Closed yes\n",
        ),
        (
            "site/sub/.htaccess",
            "FallbackResource /front.txt\nErrorDocument 403 \"of the sub\"\n\
             Header always set X-Sub yes\n",
        ),
    ]);
    let seen = |path: &str| {
        let reply = ask(&gateway, "a.test", path, "");
        let fields = ["X-Root", "X-Closed", "X-Sub"];
        (
            reply.status,
            fields.map(|name| reply.head.field(name).is_some()),
            reply.text(),
        )
    };
    let (status, fields, _) = seen("/front.txt");
    assert_eq!((status, fields), (403, [true, false, false]));
    let (status, fields, text) = seen("/sub/none");
    assert_eq!((status, fields), (403, [true, false, true]));
    assert_eq!(text, "of the sub");
}

#[test]
fn pages_that_are_not_there_set_cookies_and_end_rules_for_themselves_alone() {
    let gateway = gateway(&[
        (
            "site/.htaccess",
            "DirectoryIndex none.html page.html\nRewriteEngine On\n\
             RewriteRule none\\.html$ - [CO=seen:yes:a.test]\n\
             RewriteRule page\\.html$ /plain.txt [END]\nRewriteRule ^plain\\.txt$ - [G]\n\
             Header always append X-Said first\nHeader onsuccess set X-Said then\n",
        ),
        ("site/cookies/page.txt", "text"),
        ("site/ends/page.html", "page"),
        ("site/cookies/index.txt", "index"),
        (
            "site/cookies/.htaccess",
            "DirectoryIndex none.html index.txt\n",
        ),
    ]);
    let seen = ask(&gateway, "a.test", "/cookies/", "");
    assert_eq!((seen.status, seen.text()), (200, "index".into()));
    let cookie = seen.head.field("Set-Cookie").unwrap_or_default();
    assert!(cookie.starts_with("seen=yes"), "{cookie}");
    let said = seen.head.fields.iter().filter(|(name, _)| name == "X-Said");
    let said: Vec<&str> = said.map(|(_, value)| value.as_str()).collect();
    assert_eq!(said, ["first", "then"]);
    // What a page's rules end they end for the page alone.
    assert_eq!(ask(&gateway, "a.test", "/ends/", "").status, 410);
    assert_eq!(ask(&gateway, "a.test", "/ends/page.html", "").status, 200);
}

#[test]
fn the_page_of_an_error_has_no_age() {
    let gateway = gateway(&[(
        "site/.htaccess",
        "ErrorDocument 404 /errors/404.html\nExpiresActive On\nExpiresByType text/html \"access plus 1 hour\"\n",
    )]);
    for (path, status, age) in [
        ("/none", 404, None),
        ("/errors/404.html", 200, Some("max-age=3600")),
    ] {
        let answer = ask(&gateway, "a.test", path, "");
        let fields = ["Cache-Control", "Expires"].map(|name| answer.head.field(name));
        assert_eq!((answer.status, fields[0]), (status, age), "{path}");
        assert_eq!(fields[1].is_some(), age.is_some(), "{path}");
    }
}
