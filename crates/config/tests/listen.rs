//! Who is believed at a listener, and what is said where programs of sites could pose as them.

use config::{Sources, load};

use crate::written;

const SITE: &str = "[[sites]]\nhosts = [\"*\"]\nroot = \"/var/www\"\nuser = \"www-data\"\n";
const HANDLERS: [(&str, bool); 6] = [
    ("static = true", false),
    ("respond = { status = 200 }", false),
    ("proxy = \"http://127.0.0.1:9000\"", false),
    ("fastcgi = \"127.0.0.1:9000\"", true),
    ("cgi = true", true),
    ("app = { command = [\"a\"], directory = \"/a\" }", true),
];

/// What is wrong where sites run programs, and nothing where they do not.
fn check(listen: &str, expected: &str) {
    for (handler, runs_programs) in HANDLERS {
        let text =
            format!("[[listen]]\n{listen}\n{SITE}[[sites.rules]]\nhandler = {{ {handler} }}\n");
        let problems = load(&Sources::from_text("nagaya.toml", &text)).err();
        let told = problems.map_or(String::new(), |problems| problems.to_string());
        match runs_programs && !expected.is_empty() {
            true => assert!(told.contains(expected), "{text}\n{told}"),
            false => assert_eq!(told, "", "{text}"),
        }
    }
}

#[test]
fn senders_that_programs_of_sites_could_pose_as_are_refused() {
    let refused = "each could connect here and pose as any client";
    for (from, expected) in [
        ("\"10.0.0.0/8\"", ""),
        ("[\"192.0.2.1\", \"2001:db8::/32\"]", ""),
        ("\"127.0.0.1\"", refused),
        ("[\"10.0.0.0/8\", \"127.1.2.0/24\"]", refused),
        ("\"0.0.0.0/0\"", refused),
        ("\"::1\"", refused),
        ("\"::/0\"", refused),
    ] {
        let listen = format!("address = \"0.0.0.0:80\"\nproxy_protocol = {{ from = {from} }}");
        check(&listen, expected);
    }
    for (mode, expected) in [
        ("", refused),
        ("mode = \"0666\"", refused),
        ("mode = \"0662\"", refused),
        ("mode = \"0660\"", ""),
        ("mode = \"600\"", ""),
    ] {
        let listen =
            format!("address = \"unix:/run/x\"\nproxy_protocol = {{ from = \"unix\" }}\n{mode}");
        check(&listen, expected);
    }
}

#[test]
fn proxies_that_programs_of_sites_could_pose_as_are_warned_of() {
    for (proxies, handler, warned) in [
        ("[\"127.0.0.1\"]", "cgi = true", true),
        (
            "[\"10.0.0.0/8\", \"::1\"]",
            "fastcgi = \"127.0.0.1:9000\"",
            true,
        ),
        ("[\"10.0.0.0/8\"]", "cgi = true", false),
        ("[\"127.0.0.1\"]", "static = true", false),
    ] {
        let text = format!(
            "trusted_proxies = {proxies}\n[[listen]]\naddress = \"127.0.0.1:1\"\n{SITE}[[sites.rules]]\nhandler = {{ {handler} }}\n"
        );
        let told = written::warnings(&written::sources(&text));
        let is_told = told.contains("pose as any client by `X-Forwarded-For`");
        assert_eq!(is_told, warned, "{text}\n{told}");
    }
}
