//! nginx's locations within each other and those for what is led there, and for which hosts an `if` is.

use std::fmt::Write as _;

use import::{Fate, ImportOptions, nginx};

use crate::nginx::import;
use crate::properties::passes;
use crate::{said, site_of};

const INSIDE: &str = "location / { try_files $uri /index.php$is_args$args; }
    location ~ ^/index\\.php(/|$) { fastcgi_pass unix:/run/php.sock; internal; }
    location ~ \\.php$ { return 404; }";

#[test]
fn what_is_led_to_a_location_with_internal_is_answered_there_and_nobody_comes_from_outside() {
    let (imported, site) = import(INSIDE);
    let led = "handler = { fastcgi = \"unix:/run/php.sock\" }\nrewrite = [{ from = \"^\", to = \"/index.php\" }]";
    assert!(site.contains(led), "{site}");
    let kept = "match = { path_regex = \"^/index\\\\.php(/|$)\" }\ndeny = \"all\"";
    assert!(site.contains(kept), "{site}");
    assert_eq!(said(&imported, "internal").0, Fate::Different);
    // Where it has no handler, or one that is not had, it is closed.
    for (is, becomes) in [
        ("fastcgi_pass unix:/run/php.sock;", ""),
        (
            "fastcgi_pass unix:/run/php.sock",
            "uwsgi_pass unix:/run/php.sock",
        ),
    ] {
        let (_, site) = import(&INSIDE.replace(is, becomes));
        assert!(!site.contains("fastcgi ="), "{site}");
        let led = "deny = \"all\"\nrewrite = [{ from = \"^\", to = \"/index.php\" }]";
        assert!(site.contains(led), "{site}");
    }
}

/// What an `if` asks of a host, and what is asked of the field.
const HOSTS: &[(&str, &str)] = &[
    ("= in.example", "^in\\\\.example\\\\.?(?::[0-9]+)?$"),
    ("~ ^admin\\.", "^admin\\\\."),
    (
        "~* ^(a|b)\\.example$",
        "(?:^(a|b)\\\\.example)\\\\.?(?::[0-9]+)?$",
    ),
];

#[test]
fn a_host_is_compared_in_any_letters_and_with_any_port() {
    for (asked, expected) in HOSTS {
        let (_, site) = import(&format!("if ($host {asked}) {{ return 403; }}"));
        let expected =
            format!("match = {{ header = {{ Host = {{ regex = \"(?i){expected}\" }} }} }}");
        assert!(site.contains(&expected), "{expected}\n{site}");
    }
    // Where an expression ends at the host's end, and not at that of the field, is not known.
    let (imported, site) = import("if ($host ~ ^a$|^b$) { return 403; }");
    assert!(site.contains("deny = \"all\""), "{site}");
    assert_eq!(said(&imported, "if").0, Fate::NotCarried);
}

#[test]
fn a_variable_that_something_sets_has_more_than_one_value() {
    let (_, site) = import("set $early 1; if ($early) { return 403; }");
    assert!(site.contains("deny = \"all\""), "{site}");
}

#[test]
fn locations_that_are_told_by_too_many_others_are_closed_in_time() {
    let mut body = "location ~ z { deny all; }".to_owned();
    for _ in 0..7 {
        let mut level = format!("location ~ y {{ {body} }}");
        for at in 0..20 {
            let _ = write!(
                level,
                "location /p{at}/ {{ location ~ x{at} {{ deny all; }} }}"
            );
        }
        body = level;
    }
    let (imported, site) = import(&body);
    assert!(
        site.contains("deny = \"all\"") && !site.contains("[[sites.rules]]"),
        "{site}"
    );
    assert_eq!(said(&imported, "location").0, Fate::NotCarried);
}

#[test]
fn braces_in_texts_and_comments_of_lua_end_nothing() {
    let (imported, site) = import(
        "location /lua { access_by_lua_block { local a, b = \"\\\"{\", '}' -- that'll {\n --[==[ { ]] ]==] c = [[ } ]] } }
         location /after { return 410; }",
    );
    assert!(site.contains("match = { path = \"/after*\" }"), "{site}");
    assert_eq!(said(&imported, "access_by_lua_block").0, Fate::NotCarried);
}

#[test]
fn what_a_program_is_told_twice_is_said_once() {
    let (_, site) = import(
        "location ~ \\.php$ { fastcgi_param A b; fastcgi_param A c; fastcgi_pass 127.0.0.1:9000; }",
    );
    assert!(site.contains("params = { set = { A = \"c\" } }"), "{site}");
}

#[test]
fn an_index_is_of_the_exact_location_of_its_path() {
    let (_, site) = import(
        "location = /a/index.html { } location ~ \\.html$ { auth_basic x; auth_basic_user_file /etc/pw; }",
    );
    let led = "match = { file = \"*.html\", path = \"*/\", not = { file = \"/srv/a/a/index.html\" } }\nauth =";
    assert!(site.contains(led), "{site}");
}

#[test]
fn an_upstream_without_a_server_that_can_be_asked_is_forwarded_to_by_nobody() {
    for servers in ["", "server 127.0.0.1:1 down;", "server nowhere:0x;"] {
        let location = "location / { proxy_pass http://app/; }";
        let text = format!(
            "http {{ upstream app {{ {servers} }} server {{ listen 80; server_name a.example; {location} }} }}"
        );
        let imported = nginx(text.as_bytes(), &ImportOptions::default()).unwrap();
        passes(&imported);
        assert!(!site_of(&imported).contains("proxy"), "{servers}");
        assert_eq!(said(&imported, "proxy_pass").0, Fate::NotCarried);
    }
}
