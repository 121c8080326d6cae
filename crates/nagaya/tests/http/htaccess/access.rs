//! What `.htaccess` files keep closed, and for whom.

use std::time::Duration;

use testkit::eventually;

use super::{ask, check, gateway};

#[test]
fn a_directory_that_is_closed_is_closed_with_all_below_it() {
    let gateway = gateway(&[
        ("site/closed/.htaccess", "Require all denied\n"),
        ("site/closed/open/.htaccess", "Require all granted\n"),
        ("site/sub/.htaccess", "Order allow,deny\nDeny from all\n"),
    ]);
    check(
        &gateway,
        "a.test",
        &[
            ("/closed/x.txt", 403, ""),
            ("/closed/", 403, ""),
            ("/closed/none", 403, ""),
            ("/closed/open/x.txt", 200, "open"),
            ("/sub/page.txt", 403, ""),
            ("/sub/deep/page.txt", 403, ""),
            ("/plain.txt", 200, "plain"),
            ("/health", 200, "fine"),
        ],
    );
    check(&gateway, "off.test", &[("/closed/x.txt", 200, "closed")]);
}

#[test]
fn lines_about_access_that_are_not_understood_refuse_what_they_cover() {
    let gateway = gateway(&[
        (
            "site/.htaccess",
            "Frobnicate on\n<Files plain.txt>\nRequire moonphase full\n</Files>\n",
        ),
        ("site/sub/.htaccess", "Reqiure all denied\n"),
        ("site/closed/.htaccess", "Require all denied\n"),
    ]);
    check(
        &gateway,
        "a.test",
        &[
            ("/front.txt", 200, "front"),
            ("/plain.txt", 500, ""),
            ("/sub/page.txt", 500, ""),
        ],
    );
    // What is not allowed there is about access, and what is unknown refuses all.
    check(
        &gateway,
        "strict.test",
        &[("/closed/x.txt", 500, ""), ("/front.txt", 500, "")],
    );
}

#[test]
fn a_file_that_cannot_be_read_closes_its_directory() {
    let gateway = gateway(&[("site/sub/.htaccess/x", "a directory")]);
    check(
        &gateway,
        "a.test",
        &[("/sub/page.txt", 403, ""), ("/plain.txt", 200, "plain")],
    );
}

#[test]
fn a_file_that_is_being_written_opens_nothing() {
    let gateway = gateway(&[("site/sub/.htaccess", "Require all denied\n")]);
    let file = gateway.directory().path().join("site/sub/.htaccess");
    let status = || ask(&gateway, "a.test", "/sub/page.txt", "").status;
    assert_eq!(status(), 403);
    for (text, settled) in [("<Files page.txt>\nRequire all gran", 500), ("", 200)] {
        std::fs::write(&file, text).expect("a file");
        let first = status();
        assert!(first == 503 || first == settled, "{text}: {first}");
        eventually(Duration::from_secs(20), "a file that stands", || {
            (status() == settled).then_some(())
        });
    }
}

#[test]
fn the_file_that_answers_is_the_one_that_is_decided_about() {
    let gateway = gateway(&[(
        "site/.htaccess",
        "<Files secret.html>\nRequire all denied\n</Files>\n<Files index.html>\nRequire all denied\n</Files>\n",
    )]);
    check(
        &gateway,
        "tried.test",
        &[
            ("/secret", 403, ""),
            ("/secret.html", 403, ""),
            ("/", 403, ""),
            ("/none", 200, "front"),
        ],
    );
}

#[test]
fn links_are_not_followed_where_files_say_so() {
    let gateway = gateway(&[("site/sub/.htaccess", "Options -FollowSymLinks\n")]);
    let site = gateway.directory().path().join("site");
    for at in ["sub/link.txt", "link.txt"] {
        std::os::unix::fs::symlink(site.join("plain.txt"), site.join(at)).expect("a link");
    }
    check(
        &gateway,
        "a.test",
        &[
            ("/link.txt", 200, "plain"),
            ("/sub/link.txt", 403, ""),
            ("/sub/page.txt", 200, "page"),
        ],
    );
}

#[test]
fn who_is_asked_to_log_in_comes_in_with_the_right_password() {
    let gateway = gateway(&[
        (
            "site/sub/.htaccess",
            "AuthType Basic\nAuthName \"the sub\"\nAuthUserFile {dir}/users\nRequire valid-user\n",
        ),
        (
            "site/closed/.htaccess",
            "AuthType Basic\nAuthName gone\nAuthUserFile {dir}/none\nRequire valid-user\n",
        ),
    ]);
    let asked = ask(&gateway, "a.test", "/sub/page.txt", "");
    let challenge = asked.head.field("WWW-Authenticate").unwrap_or_default();
    assert_eq!(asked.status, 401);
    assert!(
        challenge.starts_with("Basic realm=\"the sub\""),
        "{challenge}"
    );
    let right = "Authorization: Basic YW5uOnNlY3JldA==\r\n";
    let wrong = "Authorization: Basic YW5uOndyb25n\r\n";
    assert_eq!(
        ask(&gateway, "a.test", "/sub/page.txt", right).text(),
        "page"
    );
    assert_eq!(ask(&gateway, "a.test", "/sub/page.txt", wrong).status, 401);
    assert_eq!(ask(&gateway, "a.test", "/closed/x.txt", right).status, 500);
}

#[test]
fn access_is_decided_once_where_the_same_lines_decide_about_where_it_leads() {
    let own = "SetEnvIf Request_URI ^/(old|far|err|$) ok\nRequire env ok\nErrorDocument 403 /front.txt\n\
               RewriteEngine On\nRewriteRule ^old$ /plain.txt\nRewriteRule ^old-(.*)$ /$1\n\
               RewriteRule ^far$ /sub/page.txt\n<Files secret.html>\nHeader set X-A b\n</Files>\n";
    let gateway = gateway(&[
        ("site/.htaccess", own),
        ("site/closed/.htaccess", "Require all denied\n"),
        ("site/sub/deep/.htaccess", "Header set X-A b\n"),
    ]);
    check(
        &gateway,
        "a.test",
        &[
            ("/old", 200, "plain"),
            ("/plain.txt", 403, "front"),
            ("/far", 200, "page"),
            ("/", 200, "start"),
            ("/index.html", 403, "front"),
            // A section or a file more is another ground.
            ("/old-secret.html", 403, ""),
            ("/old-closed/x.txt", 403, ""),
            ("/old-sub/deep/page.txt", 403, ""),
        ],
    );
}

#[test]
fn access_is_decided_again_beyond_a_page_that_has_a_section_its_directory_has_not() {
    for (section, status) in [
        ("", 200),
        ("<If \"-f %{REQUEST_FILENAME}\">\n</If>\n", 403),
        ("<Files \"*.*\">\nHeader set X-A b\n</Files>\n", 403),
        ("<If \"true\">\nHeader set X-A b\n</If>\n", 200),
    ] {
        let own = "SetEnvIf Request_URI ^/shown/ ok\nRequire env ok\nRewriteEngine On\n\
                   RewriteRule ^shown/index.html$ /plain.txt\n";
        let gateway = gateway(&[
            ("site/.htaccess", &format!("{own}{section}")),
            ("site/shown/index.html", "shown"),
        ]);
        let asked = ask(&gateway, "a.test", "/shown/", "");
        assert_eq!(asked.status, status, "{section}");
        let explain = ["htaccess", "explain", "http://a.test/shown/"];
        let (_, said, complained) = gateway.command(&explain);
        assert_eq!(said.contains("403"), status == 403, "{said}{complained}");
    }
}
