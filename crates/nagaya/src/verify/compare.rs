//! What differs between two replies, and what always does.
//!
//! The idea: the old server is asked twice, and what differs between its own replies is noise:
//! fields by their names, words of a body by their places. A body is words and what parts them, so
//! that a token or a date in a page of one line hides nothing else. Where replies have more or fewer
//! words each time their lengths are compared alone. Not here: who asks, and what it comes of.

use std::collections::{BTreeSet, HashSet};

use wire::Fields;

use super::fetch::Reply;

/// Characters of either reply that are shown.
const SHOWN_MAX: usize = 120;
/// Fields that say when, by whom, how or over which connection, and so are another's each time; all
/// others are compared.
const UNCOMPARED: [&str; 20] = [
    "age",
    "alt-svc",
    "connection",
    "content-length",
    "content-location",
    "date",
    "etag",
    "expires",
    "keep-alive",
    "last-modified",
    "server",
    "set-cookie",
    "status",
    "tcn",
    "transfer-encoding",
    "upgrade",
    "vary",
    "via",
    "x-cache",
    "x-request-id",
];
/// Bytes of a page that a server makes of an error by itself.
const ERROR_PAGE_BYTES_MAX: usize = 2048;

/// Something that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) what: Aspect,
    pub(super) old: String,
    pub(super) new: String,
}

/// Where replies differ.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Aspect {
    Status,
    /// Whether the certificate is for the host.
    Certificate,
    /// A field, by its name in small letters.
    Field(String),
    /// The names and attributes of cookies.
    Cookies,
    Body,
    /// Of a body that is never twice the same.
    Length,
    /// There was no whole reply.
    NoReply,
}

impl Aspect {
    /// What it is called.
    pub(super) fn name(&self) -> &str {
        match self {
            Aspect::Status => "status",
            Aspect::Certificate => "certificate",
            Aspect::Field(name) => name,
            Aspect::Cookies => "cookies",
            Aspect::Body => "body",
            Aspect::Length => "length of the body",
            Aspect::NoReply => "no reply",
        }
    }
}

/// What varies in a reply of the old server, by that of the same question.
#[derive(Debug, Default)]
pub(super) struct Noise {
    aspects: HashSet<Aspect>,
    /// Which of its words; `None` where other replies have more or fewer.
    words: Option<HashSet<usize>>,
}

impl Noise {
    /// What varies in the first of two replies of one server to the same question.
    pub(super) fn between(one: &Reply, other: &Reply) -> Noise {
        let aspects = heads(one, other).map(|it| it.what).collect();
        let varying = || {
            let (one, other) = (words(&one.body), words(&other.body));
            let pairs = one.iter().zip(&other).enumerate();
            let varying = pairs.filter(|(_, (one, other))| one != other);
            (one.len() == other.len()).then(|| varying.map(|(at, _)| at).collect())
        };
        let words = match one.body == other.body {
            true => Some(HashSet::new()),
            false if is_text(one) && is_text(other) => varying(),
            false => None,
        };
        Noise { aspects, words }
    }

    /// Adds what varies in the same reply beside another one.
    pub(super) fn add(&mut self, other: Noise) {
        self.aspects.extend(other.aspects);
        self.words = match (self.words.take(), other.words) {
            (Some(mut words), Some(more)) => {
                words.extend(more);
                Some(words)
            }
            _ => None,
        };
    }

    /// Where the new server's reply differs from that of the old one's beyond this.
    pub(super) fn differences(&self, old: &Reply, new: &Reply) -> Vec<Difference> {
        let mut found: Vec<Difference> = heads(old, new).collect();
        // A body of another status, of a redirect, or of an error that is each server's own, says
        // nothing more.
        let is_redirect = (300..400).contains(&old.status);
        let is_own = is_redirect || (is_error_page(old) && is_error_page(new));
        let is_of_body = |it: &Aspect| match it {
            Aspect::Field(name) if name == "content-type" => is_own,
            // Nobody asks for a part of an error.
            Aspect::Field(name) if name == "accept-ranges" => old.status >= 400,
            _ => false,
        };
        found.retain(|it| !self.aspects.contains(&it.what) && !is_of_body(&it.what));
        if old.status == new.status && !is_own {
            let body = match &self.words {
                Some(varying) => body(old, new, varying),
                None => length(old, new),
            };
            found.extend(body);
        }
        found
    }
}

fn body(old: &Reply, new: &Reply, varying: &HashSet<usize>) -> Option<Difference> {
    if old.body == new.body {
        return None;
    }
    if !is_text(old) || !is_text(new) {
        let bytes = |reply: &Reply| format!("{} bytes", reply.body.len());
        return Some(Difference {
            what: Aspect::Body,
            old: bytes(old),
            new: bytes(new),
        });
    }
    let (old, new) = (words(&old.body), words(&new.body));
    let differs = |at: &usize| !varying.contains(at) && old.get(*at) != new.get(*at);
    let at = (0..old.len().max(new.len())).find(differs)?;
    Some(from(at, &old, &new))
}

/// The difference that begins at a word, with the few before it.
fn from(at: usize, old: &[&[u8]], new: &[&[u8]]) -> Difference {
    let shown = |words: &[&[u8]]| {
        let words = words.get(at.saturating_sub(4)..).unwrap_or_default();
        let bytes = words.iter().take(SHOWN_MAX).copied();
        let text = bytes.collect::<Vec<_>>().concat();
        excerpt(&String::from_utf8_lossy(&text))
    };
    Difference {
        what: Aspect::Body,
        old: shown(old),
        new: shown(new),
    }
}

fn length(old: &Reply, new: &Reply) -> Option<Difference> {
    let (shorter, longer) = match old.body.len() <= new.body.len() {
        true => (old.body.len(), new.body.len()),
        false => (new.body.len(), old.body.len()),
    };
    // A fifth is what lists of changing things differ by; small ones by some words.
    let is_like = longer - shorter <= (longer / 5).max(64);
    (!is_like).then(|| Difference {
        what: Aspect::Length,
        old: format!("{} bytes", old.body.len()),
        new: format!("{} bytes", new.body.len()),
    })
}

/// Whether a reply is what a server says of an error where nobody has told it what to say: its title
/// is the status. Of HEAD it has nothing.
fn is_error_page(reply: &Reply) -> bool {
    let title = format!("<title>{} ", reply.status);
    let body = &reply.body;
    let is_titled = || body.windows(title.len()).any(|it| it == title.as_bytes());
    let is_small = body.len() <= ERROR_PAGE_BYTES_MAX;
    reply.status >= 400 && (body.is_empty() || (is_small && is_titled()))
}

fn heads<'a>(old: &'a Reply, new: &'a Reply) -> impl Iterator<Item = Difference> + 'a {
    let status = (old.status != new.status).then(|| Difference {
        what: Aspect::Status,
        old: old.status.to_string(),
        new: new.status.to_string(),
    });
    // Who answers otherwise says other things, too: it is one difference.
    let others = status.is_none();
    let certificates = old.certificate.zip(new.certificate);
    let certificate = certificates
        .filter(|(old, new)| old != new)
        .map(|(old, new)| Difference {
            what: Aspect::Certificate,
            old: old.to_owned(),
            new: new.to_owned(),
        });
    let names = old.fields.iter().chain(new.fields.iter());
    let names = names.map(|it| String::from_utf8_lossy(it.name).to_ascii_lowercase());
    let names: BTreeSet<String> = names.filter(|_| others).collect();
    let names = names.into_iter();
    let names = names.filter(|name| !UNCOMPARED.contains(&name.as_str()));
    let fields = names.filter_map(move |name| {
        let [old, new] = [old, new].map(|reply| match name.as_str() {
            "location" => absolute(&old.url, &field(&reply.fields, &name)),
            _ => field(&reply.fields, &name),
        });
        (old != new).then(|| texts(Aspect::Field(name), &old, &new))
    });
    let [old_cookies, new_cookies] = [&old.fields, &new.fields].map(cookies);
    let is_other = others && old_cookies != new_cookies;
    let cookies = is_other.then(|| texts(Aspect::Cookies, &old_cookies, &new_cookies));
    let heads = status.into_iter().chain(certificate);
    heads.chain(fields).chain(cookies)
}

/// Texts that differ, from shortly before the place where they do.
fn texts(what: Aspect, old: &str, new: &str) -> Difference {
    let pairs = old.chars().zip(new.chars());
    let alike = pairs.take_while(|(old, new)| old == new).count();
    let skipped = match alike < SHOWN_MAX {
        true => 0,
        false => alike - SHOWN_MAX / 2,
    };
    let [old, new] = [old, new].map(|text| {
        let rest: String = text.chars().skip(skipped).collect();
        let mark = if skipped == 0 { "" } else { "…" };
        excerpt(&format!("{mark}{rest}"))
    });
    Difference { what, old, new }
}

/// Where a client that asked for a URL goes, by a `Location` that may leave out what the URL has.
fn absolute(url: &str, location: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return location.to_owned();
    };
    let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let path = path.split('?').next().unwrap_or_default();
    let directory = path.rfind('/').and_then(|at| path.get(..=at));
    let begin = location.split(['/', '?', '#']).next().unwrap_or_default();
    match location.chars().next() {
        None => String::new(),
        _ if begin.contains(':') => location.to_owned(),
        Some('/') if location.starts_with("//") => format!("{scheme}:{location}"),
        Some('/') => format!("{scheme}://{host}{location}"),
        Some('?' | '#') => format!("{scheme}://{host}{path}{location}"),
        Some(_) => format!("{scheme}://{host}{}{location}", directory.unwrap_or("/")),
    }
}

/// A field's values, as what is said with other spaces and letters is said.
fn field(fields: &Fields, name: &str) -> String {
    let values = fields.all_named(name.as_bytes());
    let values = values.map(|value| String::from_utf8_lossy(value).trim().to_owned());
    let said = values.collect::<Vec<_>>().join(", ");
    let plainly = || said.to_ascii_lowercase().replace([' ', '"'], "");
    match name {
        "location" | "content-disposition" | "link" | "refresh" => said,
        "content-type" => without_default_charset(&plainly()).to_owned(),
        // In which a browser writes what it asks for; more than ASCII is for nobody before RFC 7617.
        "www-authenticate" => plainly().replace(",charset=utf-8", ""),
        _ => plainly(),
    }
}

/// A media type without the charset that is meant where none is said: of texts, but for pages and
/// plain ones, whose charset a browser guesses.
fn without_default_charset(kind: &str) -> &str {
    match kind.split(';').next() {
        Some("text/html" | "text/plain") => kind,
        _ => kind.strip_suffix(";charset=utf-8").unwrap_or(kind),
    }
}

/// The names of the cookies that are set, and what they are bound to; values are another's each time.
fn cookies(fields: &Fields) -> String {
    let mut set: Vec<String> = fields
        .all_named(b"set-cookie")
        .map(|value| {
            let text = String::from_utf8_lossy(value).to_ascii_lowercase();
            let mut parts = text.split(';').map(str::trim);
            let name = parts.next().and_then(|pair| pair.split('=').next());
            let mut bound: Vec<&str> = parts
                .filter(|part| !part.starts_with("expires=") && !part.starts_with("max-age="))
                .collect();
            bound.sort_unstable();
            format!("{} ({})", name.unwrap_or_default(), bound.join("; "))
        })
        .collect();
    set.sort_unstable();
    set.join(", ")
}

fn is_text(reply: &Reply) -> bool {
    let kind = field(&reply.fields, "content-type");
    let words = ["text/", "json", "xml", "javascript"];
    let is_packed = !field(&reply.fields, "content-encoding").is_empty();
    !is_packed && words.iter().any(|word| kind.contains(word))
}

/// Runs of letters, digits and what numbers and names are made of, and single bytes between them.
fn words(body: &[u8]) -> Vec<&[u8]> {
    let is_inner =
        |byte: &u8| byte.is_ascii_alphanumeric() || *byte >= 0x80 || b"_-.%+/=".contains(byte);
    body.chunk_by(|one, other| is_inner(one) && is_inner(other))
        .collect()
}

/// The beginning of a text, on one line, with nothing that moves a cursor.
fn excerpt(text: &str) -> String {
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut shown: String = line.chars().take(SHOWN_MAX).collect();
    if line.chars().nth(SHOWN_MAX).is_some() {
        shown.push('…');
    }
    report::harmless(&shown)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reply(status: u16, fields: &[(&str, &str)], body: &str) -> Reply {
        let mut reply = Reply {
            status,
            body: body.as_bytes().to_vec(),
            ..Reply::default()
        };
        for (name, value) in fields {
            reply.fields.push(name.as_bytes(), value.as_bytes());
        }
        reply
    }

    fn page(body: &str) -> Reply {
        reply(200, &[("Content-Type", "text/html")], body)
    }

    fn found(old: &Reply, again: &Reply, new: &Reply) -> Vec<Aspect> {
        let found = Noise::between(old, again).differences(old, new);
        found.into_iter().map(|it| it.what).collect()
    }

    #[test]
    fn a_token_that_varies_hides_nothing_else_of_a_page_of_one_line() {
        let body = |token: &str, rest: &str| {
            page(&format!(
                "<form><input name=\"t\" value=\"{token}\"><p>{rest}</p></form>"
            ))
        };
        let (old, again) = (body("a81f", "text"), body("99c2", "text"));
        assert_eq!(found(&old, &again, &body("77aa", "text")), []);
        assert_eq!(found(&old, &again, &body("77aa", "test")), [Aspect::Body]);
        assert_eq!(found(&old, &old, &body("77aa", "text")), [Aspect::Body]);
    }

    #[test]
    fn what_is_said_in_another_way_is_the_same() {
        let old = reply(200, &[("Content-Type", "text/html; charset=UTF-8")], "x");
        let new = reply(200, &[("content-type", "text/html;charset=\"utf-8\"")], "x");
        assert_eq!(found(&old, &old, &new), []);
        let css = |kind: &str| reply(200, &[("Content-Type", kind)], "x");
        let (plain, said) = (css("text/css"), css("text/css; charset=utf-8"));
        assert_eq!(found(&plain, &plain, &said), []);
        let (plain, said) = (css("text/html"), css("text/html; charset=utf-8"));
        let kind = Aspect::Field("content-type".into());
        assert_eq!(found(&plain, &plain, &said), [kind]);
        let cookie = |value: &str| reply(200, &[("Set-Cookie", value)], "");
        let (one, other) = (
            cookie("s=1; Path=/; HttpOnly"),
            cookie("s=2; httponly; path=/"),
        );
        assert_eq!(found(&one, &one, &other), []);
        assert_eq!(found(&one, &one, &cookie("s=2; Path=/")), [Aspect::Cookies]);
    }

    #[test]
    fn another_status_is_one_difference_and_a_redirect_has_no_page() {
        let denied = reply(403, &[("Content-Type", "text/plain")], "no");
        assert_eq!(found(&page("yes"), &page("yes"), &denied), [Aspect::Status]);
        let to = |place: &str, page: &str| reply(302, &[("Location", place)], page);
        assert_eq!(
            found(&to("/a", "Found"), &to("/a", "Found"), &to("/a", "")),
            []
        );
        assert_eq!(
            found(&to("/a", ""), &to("/a", ""), &to("/b", "")),
            [Aspect::Field("location".into())]
        );
    }

    #[test]
    fn where_a_redirect_leads_is_told_in_full_or_not() {
        let to = |place: &str| Reply {
            url: "http://a.test/wiki/page?x=1".into(),
            ..reply(301, &[("Location", place)], "")
        };
        let old = to("http://a.test/wiki/other");
        for same in ["//a.test/wiki/other", "/wiki/other", "other"] {
            assert_eq!(found(&old, &old, &to(same)), [], "{same}");
        }
        let query = to("http://a.test/wiki/page?y");
        assert_eq!(found(&query, &query, &to("?y")), []);
        let location = [Aspect::Field("location".into())];
        for other in [
            "https://a.test/wiki/other",
            "/other",
            "/wiki/other/",
            "a:other",
        ] {
            assert_eq!(found(&old, &old, &to(other)), location, "{other}");
        }
    }

    #[test]
    fn a_field_that_is_lost_is_a_difference_whatever_it_is_called() {
        let with = |fields: &[(&str, &str)]| reply(200, fields, "x");
        let old = with(&[("X-Walls", "thick"), ("Server", "old"), ("Date", "now")]);
        let field = |name: &str| [Aspect::Field(name.into())];
        assert_eq!(found(&old, &old, &with(&[])), field("x-walls"));
        assert_eq!(found(&with(&[]), &with(&[]), &old), field("x-walls"));
        let policy = |end: &str| with(&[("X-Walls", &format!("{}{end}", "thick ".repeat(40)))]);
        assert_eq!(
            found(&policy("a"), &policy("a"), &policy("b")),
            field("x-walls")
        );
        let [difference] =
            &Noise::between(&policy("a"), &policy("a")).differences(&policy("a"), &policy("b"))[..]
        else {
            panic!("one field differs");
        };
        assert!(difference.old.ends_with("thicka") && difference.new.ends_with("thickb"));
        // One that is another each time says nothing.
        let again = with(&[("X-Walls", "thin")]);
        assert_eq!(found(&old, &again, &with(&[("X-Walls", "new")])), []);
    }

    #[test]
    fn errors_are_said_in_each_servers_own_words_and_pages_of_the_site_are_its_own() {
        let error = |kind: &str, body: &str| reply(404, &[("Content-Type", kind)], body);
        let old = error(
            "text/html; charset=iso-8859-1",
            "<html><head>\n<title>404 Not Found</title></head>no such URL</html>",
        );
        let new = error("text/html", "<!doctype html><title>404 Not Found</title>id");
        assert_eq!(found(&old, &old, &new), []);
        let page = error("text/html", "<title>Nothing here, says the site</title>");
        let [kind, body] = [Aspect::Field("content-type".into()), Aspect::Body];
        assert_eq!(found(&old, &old, &page), [kind, body.clone()]);
        assert_eq!(found(&page, &page, &new), [body]);
    }

    #[test]
    fn a_certificate_for_another_host_is_a_difference() {
        let shown = |certificate| Reply {
            certificate,
            ..page("x")
        };
        let (fine, wrong) = (
            shown(Some("is for this host")),
            shown(Some("is for another host")),
        );
        assert_eq!(found(&fine, &fine, &wrong), [Aspect::Certificate]);
        assert_eq!(found(&fine, &fine, &shown(None)), []);
    }

    #[test]
    fn a_body_that_has_no_shape_is_compared_by_its_length() {
        let list = |count: usize| page(&"<li>x".repeat(count));
        assert_eq!(found(&list(100), &list(101), &list(98)), []);
        assert_eq!(found(&list(100), &list(101), &list(40)), [Aspect::Length]);
    }

    #[test]
    fn files_that_are_no_text_are_the_same_bytes_or_differ() {
        let image = |body: &str| reply(200, &[("Content-Type", "image/png")], body);
        assert_eq!(
            found(&image("abc"), &image("abc"), &image("abd")),
            [Aspect::Body]
        );
    }

    proptest! {
        #[test]
        fn a_server_beside_itself_never_differs(
            one in proptest::collection::vec("[a-c<> ]{0,6}", 0..40),
            other in proptest::collection::vec("[a-c<> ]{0,6}", 0..40),
        ) {
            let (one, other) = (page(&one.concat()), page(&other.concat()));
            prop_assert_eq!(found(&one, &other, &one), []);
            prop_assert_eq!(found(&one, &one, &one), []);
        }

        #[test]
        fn one_more_word_is_always_found(words in proptest::collection::vec("[a-z]{1,6}", 1..40), at in 0..40_usize) {
            let old = page(&words.join(" "));
            let mut words = words;
            words.insert(at.min(words.len()), "Other".into());
            prop_assert_eq!(found(&old, &old, &page(&words.join(" "))), [Aspect::Body]);
        }
    }
}
