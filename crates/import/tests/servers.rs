//! Servers put together by hosts and addresses.

use import::{Fate, ImportOptions, Imported, Listening, nginx};

fn read(text: &str) -> Imported {
    let imported = nginx(text.as_bytes(), &ImportOptions::default()).unwrap();
    crate::properties::passes(&imported);
    imported
}

fn site<'i>(imported: &'i Imported, name: &str) -> &'i str {
    let mut files = imported.files.iter();
    let file = files.find(|file| file.name == name);
    file.map_or_else(
        || panic!("no {name} in {:#?}", imported.files),
        |file| &file.text,
    )
}

const TLS: &str = "server { listen 443 ssl; server_name a.example www.a.example; root /srv/a; ssl_certificate /etc/ssl/a.pem; \
    ssl_certificate_key /etc/ssl/a.key; }\n";

#[test]
fn a_server_that_only_redirects_to_tls_is_a_key_of_the_site_it_redirects_to() {
    for redirect in [
        "server { listen 80; server_name a.example www.a.example; return 301 https://$host$request_uri; }",
        "server { listen 80; server_name a.example; location / { return 301 https://$host$request_uri; } \
         location /.well-known/acme-challenge/ { root /var/www; } }",
        "server { if ($host = www.a.example) { return 301 https://$host$request_uri; } listen 80; server_name www.a.example; \
         return 404; }",
        "server { listen 80; server_name a.example; rewrite ^ https://$host$request_uri? permanent; }",
    ] {
        let imported = read(&format!("{TLS}{redirect}"));
        let text = site(&imported, "a.example");
        assert!(text.contains("redirect = true"), "{redirect}\n{text}");
        assert!(
            text.contains("certificate = \"/etc/ssl/a.pem\", key = \"/etc/ssl/a.key\""),
            "{text}"
        );
        assert_eq!(imported.files.len(), 2, "{redirect}");
        assert!(
            !imported
                .lines
                .iter()
                .any(|line| line.note.is_empty() && line.fate > Fate::Different)
        );
    }
}

#[test]
fn of_two_servers_that_only_redirect_one_has_the_host() {
    let server = |port: u16| {
        format!(
            "server {{ listen {port}; server_name b.example; return 301 https://$host$request_uri; }}\n"
        )
    };
    let imported = read(&format!("{}{}", server(80), server(8080)));
    let sites = imported
        .files
        .iter()
        .filter(|file| file.text.contains("[[sites]]"));
    assert_eq!(sites.count(), 1);
}

#[test]
fn a_site_that_was_there_with_tls_alone_is_not_opened_without() {
    let imported = read(&format!(
        "{TLS}server {{ listen 80; server_name b.example; root /srv/b; }}"
    ));
    assert!(site(&imported, "a.example").contains("redirect = true"));
    assert!(!site(&imported, "b.example").contains("redirect = true"));
}

#[test]
fn two_servers_that_say_the_same_are_one_site_and_two_that_do_not_are_none() {
    let plain = "server { listen 80; server_name a.example www.a.example; root /srv/a; }";
    let imported = read(&format!("{TLS}{plain}"));
    assert!(!site(&imported, "a.example").contains("redirect = true"));
    let other = plain.replace("/srv/a", "/srv/other");
    let imported = read(&format!("{TLS}{other}"));
    assert!(
        !imported
            .files
            .iter()
            .any(|file| file.text.contains("[[sites]]")),
        "{:#?}",
        imported.files
    );
    assert!(
        imported
            .lines
            .iter()
            .any(|line| line.note.contains("two servers have `a.example`"))
    );
}

#[test]
fn what_only_some_networks_reached_stays_closed_to_others() {
    let public = "server { listen 80; server_name b.example; root /srv/b; }\n";
    let local = "server { listen 127.0.0.1:8080; server_name a.example; root /srv/a; }\n";
    let inner = "server { listen 10.0.0.1:80; server_name c.example; root /srv/c; }\n";
    let imported = read(&format!("{public}{local}{inner}"));
    assert!(site(&imported, "a.example").contains("allow = [\"127.0.0.0/8\", \"::1\"]"));
    assert!(site(&imported, "c.example").contains("deny = \"all\""));
    assert!(!site(&imported, "b.example").contains("allow = ["));
    // Where nobody else is served they may stay as they are.
    assert!(!site(&read(local), "a.example").contains("allow = ["));
}

#[test]
fn only_a_server_that_says_so_takes_hosts_that_nobody_names() {
    let default = read("server { listen 80 default_server; server_name a.example; root /srv/a; }");
    assert!(site(&default, "a.example").contains("hosts = [\"a.example\", \"*\"]"));
    let unnamed = read("server { listen 80; server_name _; root /srv/a; }");
    assert!(site(&unnamed, "any").contains("hosts = [\"*\"]"));
    let first = read("server { listen 80; server_name a.example; root /srv/a; }");
    assert!(site(&first, "a.example").contains("hosts = [\"a.example\"]"));
    assert!(first.lines.iter().any(|line| line.note.contains("421")));
}

#[test]
fn listeners_are_those_that_were_read_or_wanted() {
    let text =
        format!("{TLS}server {{ listen 80; listen [::]:80; server_name b.example; root /srv/b; }}");
    let shared = |listening| {
        let options = ImportOptions {
            listening,
            ..ImportOptions::default()
        };
        let imported = nginx(text.as_bytes(), &options).unwrap();
        let shared = imported
            .files
            .into_iter()
            .find(|file| file.name == import::SHARED);
        shared.map(|file| file.text).unwrap_or_default()
    };
    let read = shared(Listening::AsRead);
    assert!(
        read.contains("address = \"0.0.0.0:443\"\ntls = true"),
        "{read}"
    );
    assert!(read.contains("address = \"[::]:80\"\n"), "{read}");
    let wanted = shared(Listening::At(vec![("127.0.0.1:8080".to_owned(), false)]));
    assert!(
        wanted.contains("127.0.0.1:8080") && !wanted.contains(":443"),
        "{wanted}"
    );
    assert_eq!(shared(Listening::Unsaid), "");
}
