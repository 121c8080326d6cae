//! Where `.htaccess` files lead: rules, redirects, pages of directories.

use super::{ask, check, gateway};

#[test]
fn rules_of_the_site_hold_for_the_path_that_files_lead_to() {
    let gateway = gateway(&[(
        "site/.htaccess",
        "RewriteEngine On\nRewriteRule ^open/(.*)$ /closed/$1 [L]\nRewriteRule ^fine/(.*)$ /sub/$1 [L]\n",
    )]);
    check(&gateway, "a.test", &[("/open/x.txt", 200, "closed")]);
    check(
        &gateway,
        "kept.test",
        &[
            ("/open/x.txt", 403, ""),
            ("/closed/x.txt", 403, ""),
            ("/fine/page.txt", 200, "page"),
            // A directory without a page, for which a rule answers.
            ("/empty/", 200, "a rule"),
            ("/sub/deep/", 403, ""),
        ],
    );
    let moved = ask(&gateway, "kept.test", "//sub", "");
    let location = moved.head.field("Location");
    assert_eq!((moved.status, location), (301, Some("/sub/")));
}

#[test]
fn rules_lead_to_a_front_controller_and_redirect() {
    let gateway = gateway(&[(
        "site/.htaccess",
        "RewriteEngine On\nRewriteRule ^old/(.*)$ /sub/$1 [R=301,L]\nRewriteRule ^closed/ - [F]\n\
         RewriteRule ^no-content$ - [R=204,L]\nRewriteRule ^fine$ - [R=200,L]\n\
         RewriteCond %{REQUEST_FILENAME} !-f\nRewriteCond %{REQUEST_FILENAME} !-d\nRewriteRule . /front.txt [L]\n",
    )]);
    check(
        &gateway,
        "a.test",
        &[
            ("/", 200, "start"),
            ("/plain.txt", 200, "plain"),
            ("/2026/11/a-post/", 200, "front"),
            ("/sub/none?x=y", 200, "front"),
            ("/closed/x.txt", 403, ""),
            ("/no-content", 204, ""),
            ("/fine", 200, ""),
        ],
    );
    let moved = ask(&gateway, "a.test", "/old/page.txt?a=b", "");
    assert_eq!(moved.status, 301);
    let location = moved.head.field("Location").expect("a place");
    assert!(location.ends_with("/sub/page.txt?a=b"), "{location}");
}

#[test]
fn directories_have_the_pages_and_slashes_that_files_say() {
    let gateway = gateway(&[
        ("site/sub/.htaccess", "DirectoryIndex none.html first.txt\n"),
        ("site/empty/.htaccess", "Options +Indexes\n"),
    ]);
    check(
        &gateway,
        "a.test",
        &[
            ("/sub/", 200, "first"),
            ("/empty/", 200, ""),
            ("/sub/deep/", 403, ""),
        ],
    );
    let moved = ask(&gateway, "a.test", "/sub?a=b", "");
    let location = moved.head.field("Location");
    assert_eq!((moved.status, location), (301, Some("/sub/?a=b")));
}

#[test]
fn where_files_name_pages_of_a_directory_those_of_the_site_are_not_looked_for() {
    let gateway = gateway(&[
        ("site/.htaccess", "DirectoryIndex none.html\n"),
        (
            "site/sub/.htaccess",
            "DirectoryIndex none.html first.txt\nFallbackResource /front.txt\n",
        ),
    ]);
    check(
        &gateway,
        "a.test",
        &[
            ("/", 403, ""),
            // The first one is missing, and that is answered for.
            ("/sub/", 200, "front"),
        ],
    );
}

#[test]
fn pages_that_a_directory_may_have_take_steps_of_the_same_purse() {
    let names: Vec<String> = (0..64).map(|at| format!("none{at}")).collect();
    let names = format!("DirectoryIndex {}\n", names.join(" "));
    let lines = "SetEnvIf Host x x\n".repeat(1_000);
    let asks = "AuthType Basic\nAuthName x\nAuthUserFile {dir}/users\nRequire valid-user\n";
    let section = |lines: &str| format!("{names}<Files none*>\n{lines}</Files>\n");
    let (long, asking) = (section(&lines), section(asks));
    let gateway = gateway(&[
        ("site/sub/.htaccess", &long),
        ("site/closed/.htaccess", &asking),
    ]);
    check(
        &gateway,
        "a.test",
        &[("/sub/none1", 404, ""), ("/sub/", 500, "")],
    );
    // Of many that ask for a password few have it compared.
    let wrong = "Authorization: Basic YW5uOndyb25n\r\n";
    assert_eq!(ask(&gateway, "a.test", "/closed/none1", wrong).status, 401);
    assert_eq!(ask(&gateway, "a.test", "/closed/", wrong).status, 500);
}

#[test]
fn what_rules_take_out_of_a_path_may_be_any_letters_in_a_query() {
    let rule = "RewriteEngine On\nRewriteRule ^item/(.*)$ /front.txt?name=$1 [L]\n";
    let gateway = gateway(&[("site/.htaccess", rule)]);
    let path = "/item/%E6%97%A5%E6%9C%AC";
    check(&gateway, "a.test", &[(path, 200, "front")]);
}

#[test]
fn pages_of_directories_are_no_paths_that_a_request_is_sent_on_to() {
    let mut rules = "RewriteEngine On\n".to_owned();
    let mut files = Vec::new();
    for at in 0..=11 {
        let to = at + 1;
        if at < 11 {
            rules += &format!("RewriteRule ^d{at}/index.html$ /d{to}/ [L]\n");
        }
        files.push((format!("site/d{at}/index.html"), format!("page {at}")));
    }
    files.push(("site/.htaccess".to_owned(), rules));
    let files: Vec<_> = files
        .iter()
        .map(|(name, text)| (&**name, &**text))
        .collect();
    let gateway = gateway(&files);
    check(
        &gateway,
        "a.test",
        &[("/d2/", 200, "page 11"), ("/d1/", 500, "")],
    );
    let explain = |url: &str| gateway.command(&["htaccess", "explain", url]).1;
    let ends = [
        ("/d2/", "it stands"),
        ("/d1/", "sent it elsewhere 10 times"),
    ];
    for (path, end) in ends {
        let said = explain(&format!("http://a.test{path}"));
        assert!(said.contains(end), "{path}: {said}");
    }
}

#[test]
fn a_redirect_names_the_port_that_the_client_named() {
    let gateway = gateway(&[(
        "site/.htaccess",
        "Redirect /one /two\nRedirectMatch ^/three$ /four\nRewriteEngine On\nRewriteRule ^five$ /six [R]\n\
         RewriteCond %{SERVER_PORT} =8080\nRewriteRule ^port$ - [F]\n",
    )]);
    for (host, origin) in [
        ("a.test", "http://a.test"),
        ("a.test:80", "http://a.test"),
        ("a.test:8080", "http://a.test:8080"),
    ] {
        for (path, to) in [("/one", "/two"), ("/three", "/four"), ("/five", "/six")] {
            let moved = ask(&gateway, host, path, "");
            let expected = format!("{origin}{to}");
            assert_eq!(moved.head.field("Location"), Some(&*expected), "{host}");
        }
    }
    check(&gateway, "a.test:8080", &[("/port", 403, "")]);
    check(&gateway, "a.test", &[("/port", 404, "")]);
}
