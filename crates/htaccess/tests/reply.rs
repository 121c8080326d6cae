//! The head of a reply.

use crate::site::{Site, answered, get};

fn edited(text: &str, status: u16, fields: &[(&str, &str)]) -> Vec<String> {
    let reply = Site::new(text).asked(
        &get("/").with("X-Asked", "yes"),
        Some(answered(status, fields)),
    );
    let reply = reply.reply.expect("it is edited");
    let all = reply.always.iter().chain(&reply.fields);
    let line = |(name, value): &(Vec<u8>, Vec<u8>)| {
        format!(
            "{}: {}",
            String::from_utf8_lossy(name),
            String::from_utf8_lossy(value)
        )
    };
    all.map(line).collect()
}

#[test]
fn fields_are_set_added_merged_edited_and_taken_away() {
    for (line, found) in [
        ("Header set A 2", &["A: 2"][..]),
        ("Header setifempty A 2", &["A: 1"]),
        ("Header setifempty B 2", &["A: 1", "B: 2"]),
        ("Header add A 2", &["A: 1", "A: 2"]),
        ("Header append A 2", &["A: 1, 2"]),
        ("Header merge A 1", &["A: 1"]),
        ("Header merge A 2", &["A: 1, 2"]),
        ("Header unset A", &[]),
        ("Header edit A ^(.)$ x$1y", &["A: x1y"]),
        ("Header edit* A . zz", &["A: zz"]),
        ("Header echo ^X-As", &["A: 1", "X-Asked: yes"]),
        (
            "Header set B \"%t %% %{V}e\"\nSetEnv V w",
            &["A: 1", "B: t=1795766709000000 % w"],
        ),
        ("Header set B expr=%{REQUEST_METHOD}", &["A: 1", "B: GET"]),
        ("Header set B 1 env=V", &["A: 1"]),
        ("Header set B 1 env=!V", &["A: 1", "B: 1"]),
        (
            "Header set B 1 \"expr=%{REQUEST_STATUS} -eq 200\"",
            &["A: 1", "B: 1"],
        ),
        (
            "Header set B 1 \"expr=%{resp:A} == '1'\"",
            &["A: 1", "B: 1"],
        ),
        (
            "Header set Content-Length 7\nHeader unset Transfer-Encoding",
            &["A: 1"],
        ),
    ] {
        assert_eq!(edited(line, 200, &[("A", "1")]), found, "{line}");
    }
}

#[test]
fn there_are_two_tables() {
    let both = "Header always set A outer\nHeader onsuccess set B inner";
    assert_eq!(edited(both, 200, &[]), ["A: outer", "B: inner"]);
    assert_eq!(edited(both, 404, &[]), ["A: outer"]);
    // One takes nothing from the other: unset in one, set in the other.
    let text = "Header onsuccess unset X\nHeader always set X 1";
    assert_eq!(edited(text, 200, &[("X", "program's")]), ["X: 1"]);
}

#[test]
fn a_value_that_breaks_out_of_its_field_is_left_out() {
    let text = "SetEnvIf Request_URI .+ V=$0\nHeader set A \"%{V}e\"";
    let site = Site::new(text);
    let asked = site.asked(&get("/x%0D%0AEvil:%201"), Some(answered(200, &[])));
    assert_eq!(asked.reply.expect("edited").fields, []);
}

#[test]
fn ages_are_said_by_type() {
    let text = "ExpiresActive On\nExpiresByType image/png \"access plus 1 month\"\nExpiresByType text/* A60\nExpiresDefault \"modification plus 2 weeks 1 day\"";
    let of = |media_type: &str| {
        let fields = edited(text, 200, &[("Content-Type", media_type)]);
        fields
            .into_iter()
            .filter(|it| it.starts_with("Cache"))
            .collect::<String>()
    };
    assert_eq!(of("image/png"), "Cache-Control: max-age=2592000");
    assert_eq!(of("text/css; charset=utf-8"), "Cache-Control: max-age=60");
    assert_eq!(
        of("video/mp4"),
        format!(
            "Cache-Control: max-age={}",
            1_795_000_000 + 15 * 86_400 - 1_795_766_709
        )
    );
    let expires = edited(text, 200, &[("Content-Type", "text/html")]);
    assert!(
        expires.contains(&"Expires: Fri, 27 Nov 2026 08:06:09 GMT".to_owned()),
        "{expires:?}"
    );
    let said = edited(
        text,
        200,
        &[("Content-Type", "text/html"), ("Expires", "0")],
    );
    assert_eq!(said.len(), 2, "what a program says itself stands");
}

#[test]
fn fields_of_the_request_are_edited_for_those_who_answer() {
    let site = Site::new("RequestHeader set A 1\nRequestHeader unset X-Asked");
    let asked = site.asked(&get("/").with("X-Asked", "yes"), None);
    assert_eq!(
        asked.request_fields,
        [
            (b"Host".to_vec(), b"example.jp".to_vec()),
            (b"A".to_vec(), b"1".to_vec())
        ]
    );
}

#[test]
fn files_are_what_their_endings_say() {
    let text = "AddType application/wasm .wasm\nAddCharset utf-8 .html\nAddEncoding gzip .gz\nAddLanguage ja .ja\nRemoveType .tar\nAddHandler application/x-httpd-ea-php82 .php";
    let settings = Site::new(text).ask("/").settings;
    assert_eq!(
        settings.describe(b"x.wasm").media_type,
        Some(Some(b"application/wasm".to_vec()))
    );
    let page = settings.describe(b"index.html.ja.gz");
    assert_eq!(page.charset.as_deref(), Some(&b"utf-8"[..]));
    assert_eq!(
        (page.language.as_deref(), page.encodings),
        (Some(&b"ja"[..]), vec![b"gzip".to_vec()])
    );
    assert_eq!(settings.describe(b"x.tar").media_type, Some(None));
    assert_eq!(
        settings.describe(b"x.php").handler,
        Some(Some(b"application/x-httpd-ea-php82".to_vec()))
    );
}

#[test]
fn where_a_redirect_leads_is_told_for_as_long_as_a_page_and_an_error_is_not() {
    let text = "ExpiresActive On\nExpiresDefault A60\nHeader set A b";
    let of = |status: u16| {
        let mut own = answered(status, &[]);
        own.is_own_error = true;
        let reply = Site::new(text).asked(&get("/"), Some(own)).reply;
        reply.expect("it is edited").fields.len()
    };
    // `Cache-Control` and `Expires`, and not `A`.
    assert_eq!((of(301), of(404)), (2, 0));
}

#[test]
fn a_page_that_sends_elsewhere_is_fresh_for_as_long_as_html() {
    let text =
        "ExpiresActive On\nExpiresDefault \"access plus 1 year\"\nExpiresByType text/html A0";
    let site = Site::new(text);
    let mut own = answered(301, &[]);
    own.is_own_error = true;
    let reply = site.asked(&get("/sub"), Some(own)).reply.expect("edited");
    let is_control = |(name, _): &&(Vec<u8>, Vec<u8>)| name == b"Cache-Control";
    let control = reply.fields.iter().find(is_control);
    assert_eq!(
        control.map(|(_, value)| value.as_slice()),
        Some(&b"max-age=0"[..])
    );
}

#[test]
fn the_page_of_an_error_has_no_age_and_a_page_that_fails_has_one() {
    let text = "ExpiresActive On\nExpiresByType text/html \"access plus 1 hour\"";
    let of = |is_error_page: bool| {
        let mut page = answered(404, &[("Content-Type", "text/html")]);
        (page.is_own_error, page.is_error_page) = (false, is_error_page);
        let reply = Site::new(text).asked(&get("/none"), Some(page)).reply;
        reply.expect("it is edited").fields.len()
    };
    // Beside its type.
    assert_eq!((of(true), of(false)), (1, 3));
}
