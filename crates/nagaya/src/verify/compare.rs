//! What differs between two replies, and what always does.
//!
//! The idea: the old server is asked twice, and what differs between its own replies is noise:
//! fields by their names, words of a body by their places. A body is words and what parts them, so
//! that a token or a date in a page of one line hides nothing else. Where replies have more or fewer
//! words each time their lengths are compared alone. Not here: who asks, and what it comes of.

use std::collections::HashSet;

use wire::Fields;

use super::fetch::Reply;

/// Characters of either reply that are shown.
const SHOWN_MAX: usize = 120;
/// Fields that are compared as they are; others say when, by whom or over which connection.
const COMPARED: [&str; 22] = [
    "accept-ranges",
    "access-control-allow-credentials",
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-allow-origin",
    "allow",
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-range",
    "content-security-policy",
    "content-type",
    "link",
    "location",
    "permissions-policy",
    "referrer-policy",
    "refresh",
    "strict-transport-security",
    "www-authenticate",
    "x-content-type-options",
    "x-frame-options",
];

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
    Field(&'static str),
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
    pub(super) fn name(&self) -> &'static str {
        match self {
            Aspect::Status => "status",
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
        found.retain(|it| !self.aspects.contains(&it.what));
        // A body of another status, or of a redirect, says nothing more.
        if old.status == new.status && !(300..400).contains(&old.status) {
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

fn heads<'a>(old: &'a Reply, new: &'a Reply) -> impl Iterator<Item = Difference> + 'a {
    let status = (old.status != new.status).then(|| Difference {
        what: Aspect::Status,
        old: old.status.to_string(),
        new: new.status.to_string(),
    });
    // Who answers otherwise says other things, too: it is one difference.
    let others = status.is_none();
    let fields = COMPARED.into_iter().filter(move |_| others);
    let fields = fields.filter_map(move |name| {
        let [old, new] = [&old.fields, &new.fields].map(|fields| field(fields, name));
        (old != new).then_some(Difference {
            what: Aspect::Field(name),
            old,
            new,
        })
    });
    let [old_cookies, new_cookies] = [&old.fields, &new.fields].map(cookies);
    let cookies = (others && old_cookies != new_cookies).then_some(Difference {
        what: Aspect::Cookies,
        old: old_cookies,
        new: new_cookies,
    });
    status.into_iter().chain(fields).chain(cookies)
}

/// A field's values, as what is said with other spaces and letters is said.
fn field(fields: &Fields, name: &str) -> String {
    let values = fields.all_named(name.as_bytes());
    let values = values.map(|value| String::from_utf8_lossy(value).trim().to_owned());
    let said = values.collect::<Vec<_>>().join(", ");
    match name {
        "location" | "content-disposition" | "link" | "refresh" => excerpt(&said),
        _ => excerpt(&said.to_ascii_lowercase().replace([' ', '"'], "")),
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
    excerpt(&set.join(", "))
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
            [Aspect::Field("location")]
        );
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
