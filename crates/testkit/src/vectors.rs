//! Vectors: rows of bytes and what must come of them, kept as TOML beside the tests.
//!
//! The idea: a row says what is sent, what the client gets and what the upstream sees, and says
//! nothing about how it is sent; runners choose the cuts. Unknown keys, missing keys and repeated
//! ids are errors, so a row cannot silently test nothing.
//!
//! A request row gives `bytes` as they are, or the parts that differ from a plain request: `line` or
//! `target`, `host`, `fields`, `content` (`chunked` for chunked content). It says `status` (one, or a
//! list of which any will do) or `replies` (one a request); `close`, unless `after = "either"`; and
//! what the upstream `sees`: `"nothing"`, `"anything"`, or a request line and fields. `doubt` stands
//! for a status, a close, and an upstream that sees no finished request.
//! In every text `<<FF00>>` stands for those octets and `<<ab*900>>` for `ab` 900 times.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

/// The site a row without a `Host` of its own goes to, forwarded to the recording upstream: one for
/// each combination of `slashes = "keep"` and `encoded_slash = "keep"`.
#[must_use]
pub fn host_of_site(keep_slashes: bool, keep_encoded_slash: bool) -> &'static str {
    match (keep_slashes, keep_encoded_slash) {
        (false, false) => "app.test",
        (true, false) => "slashes.test",
        (false, true) => "encoded.test",
        (true, true) => "both.test",
    }
}

/// The sites request rows speak of, for a gateway whose upstream `app` is the one that records.
pub const SITES: &str = r#"
[[sites]]
hosts = ["app.test", "*.app.test"]
rules = [{ handler = { proxy = "app" } }]
[[sites]]
hosts = ["slashes.test"]
slashes = "keep"
rules = [{ handler = { proxy = "app" } }]
[[sites]]
hosts = ["encoded.test"]
encoded_slash = "keep"
rules = [{ handler = { proxy = "app" } }]
[[sites]]
hosts = ["both.test"]
slashes = "keep"
encoded_slash = "keep"
rules = [{ handler = { proxy = "app" } }]
[[sites]]
hosts = ["plain.test"]
[[sites.rules]]
match = { path = "/moved" }
handler = { redirect = "http://elsewhere.test$path" }
[[sites.rules]]
match = { path = "/denied" }
deny = ["127.0.0.0/8"]
handler = { respond = { status = 200, body = "never" } }
[[sites.rules]]
handler = { respond = { status = 200, body = "plain" } }
[[sites]]
hosts = ["files.test"]
root = "{dir}"
[[sites]]
hosts = ["canary.test"]
rules = [{ handler = { respond = { status = 200, body = "canary" } } }]
"#;

/// A row about a request.
#[derive(Debug, Clone)]
pub struct RequestRow {
    /// Unique name, `file/id`.
    pub id: String,
    /// The rule it is about.
    pub rule: String,
    /// What the client sends.
    pub bytes: Vec<u8>,
    /// The client sends nothing more after `bytes` and says so.
    pub finish: bool,
    /// For each reply, the statuses that are right; 0 stands for an end without a reply.
    pub replies: Vec<Vec<u16>>,
    /// What becomes of the connection.
    pub after: After,
    /// What the upstream sees.
    pub sees: Sees,
    /// Repeated slashes are kept by the site (`slashes = "keep"`).
    pub keep_slashes: bool,
    /// Encoded slashes are kept by the site (`encoded_slash = "keep"`).
    pub keep_encoded_slash: bool,
    /// The parts of the head that are checked one by one.
    pub faces: Faces,
}

/// What becomes of the connection after a row's replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// It is closed; nothing more is answered.
    Closes,
    /// It answers the next request.
    Keeps,
    /// Either, as long as the next request is answered with its own reply or not at all.
    Either,
}

/// What the upstream sees of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sees {
    /// Not one byte.
    Nothing,
    /// At most the beginning of a request, never a finished one.
    Unfinished,
    /// Not checked.
    Anything,
    /// One request for each reply of an accepted request; these things hold for the first.
    Request(SeenRequest),
}

/// What holds for a forwarded request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeenRequest {
    /// Its request line.
    pub line: Option<String>,
    /// Fields it has exactly once with this value, names in any case.
    pub fields: Vec<(String, String)>,
    /// Fields it must not have, names in lower case.
    pub lacks: Vec<String>,
    /// Text that occurs nowhere in what it saw.
    pub never: Vec<String>,
    /// Its body.
    pub body: Option<Vec<u8>>,
}

/// Parts of an accepted head. `None` is not checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Faces {
    /// Decoded path, for matching and files.
    pub path: Option<Vec<u8>>,
    /// Path as forwarded.
    pub wire: Option<Vec<u8>>,
    /// Query; `Some(None)` means there is none.
    pub query: Option<Option<Vec<u8>>>,
    /// Canonical host.
    pub host: Option<String>,
}

/// A row about an upstream's reply.
#[derive(Debug, Clone)]
pub struct ReplyRow {
    /// Unique name, `file/id`.
    pub id: String,
    /// The rule it is about.
    pub rule: String,
    /// Method of the request. Default GET.
    pub method: String,
    /// What the upstream sends.
    pub reply: Vec<u8>,
    /// The upstream closes after it. Default no.
    pub closes: bool,
    /// Statuses the client may see; 0 stands for an end without a reply.
    pub statuses: Vec<u16>,
    /// Body the client gets, where it matters.
    pub body: Option<Vec<u8>>,
    /// The client sees the reply come to its proper end. Default yes.
    pub complete: bool,
    /// Fields the client gets exactly once with this value.
    pub has: Vec<(String, String)>,
    /// Fields the client must not get, in lower case.
    pub lacks: Vec<String>,
    /// Text that occurs nowhere in what the client gets.
    pub never: Vec<String>,
    /// Whether the next request uses the same upstream connection; `None` is not checked.
    pub reused: Option<bool>,
}

impl RequestRow {
    /// Whether the reply to the first request has no body whatever its fields say.
    #[must_use]
    pub fn is_head(&self) -> bool {
        self.bytes.starts_with(b"HEAD ")
    }

    /// Places worth cutting the bytes at: all of them in a short row; in a long one those around
    /// line ends, blanks and colons of its beginning and end, and some between.
    #[must_use]
    pub fn cuts(&self, dense: usize) -> Vec<usize> {
        let length = self.bytes.len();
        let near_edge = |at: usize| at < dense / 2 || at + dense / 2 > length;
        let stride = (length / 40).max(1);
        let telling = |at: usize| {
            let byte = self.bytes[at];
            let before = self.bytes[at - 1];
            [byte, before].iter().any(|byte| b"\r\n :".contains(byte))
        };
        (1..length)
            .filter(|&at| length <= dense || at % stride == 0 || (near_edge(at) && telling(at)))
            .collect()
    }
}

/// Reads every request row of the named directories below `root`.
///
/// # Panics
/// On any mistake in them.
#[must_use]
pub fn requests(root: &Path, directories: &[&str]) -> Vec<RequestRow> {
    read(root, directories, request)
}

/// Reads every reply row of the named directories below `root`.
///
/// # Panics
/// On any mistake in them.
#[must_use]
pub fn replies(root: &Path, directories: &[&str]) -> Vec<ReplyRow> {
    read(root, directories, |row, _| reply(row))
}

pub(crate) fn read<T>(
    root: &Path,
    directories: &[&str],
    lower: impl Fn(&mut Keys<'_>, &str) -> T,
) -> Vec<T> {
    let mut rows = Vec::new();
    let mut ids = BTreeSet::new();
    for directory in directories {
        for file in files(&root.join(directory)) {
            let text = std::fs::read_to_string(&file).expect("read a vector file");
            let shown = file.display();
            let table = DeTable::parse(&text).unwrap_or_else(|error| panic!("{shown}: {error}"));
            let list = table
                .get_ref()
                .get("row")
                .and_then(|rows| rows.get_ref().as_array());
            let list = list.unwrap_or_else(|| panic!("{shown}: no [[row]]"));
            for row in list {
                let line = text[..row.span().start].matches('\n').count() + 1;
                let table = row.get_ref().as_table();
                let table = table.unwrap_or_else(|| panic!("{shown}:{line}: not a table"));
                let mut keys = Keys::new(table, format!("{shown}:{line}"), directory);
                let id = keys.id.clone();
                assert!(
                    ids.insert(id),
                    "{shown}:{line}: id {} occurs twice",
                    keys.id
                );
                rows.push(lower(&mut keys, directory));
                keys.finish();
            }
        }
    }
    rows
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let list = std::fs::read_dir(directory);
    let list = list.unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut files: Vec<_> = list
        .map(|entry| entry.expect("list vectors").path())
        .filter(|path| path.extension().is_some_and(|end| end == "toml"))
        .collect();
    files.sort();
    files
}

fn request(keys: &mut Keys<'_>, directory: &str) -> RequestRow {
    let keep_slashes = keys.choice("slashes", "merge", "keep");
    let keep_encoded_slash = keys.choice("encoded_slash", "refuse", "keep");
    let site = host_of_site(keep_slashes, keep_encoded_slash);
    let (bytes, body_framed) = request_bytes(keys, site);
    let doubt = keys.take("doubt").map(|value| keys.statuses(value));
    let doubted = doubt.is_some();
    let replies = doubt.map_or_else(|| keys.status_lists(), |statuses| vec![statuses]);
    let accepts = |statuses: &Vec<u16>| statuses.iter().any(|status| (200..400).contains(status));
    let sees = match (doubted, replies.iter().any(accepts)) {
        (true, true) => Sees::Anything,
        (true, false) => Sees::Unfinished,
        (false, accepted) => sees(keys, accepted),
    };
    debug_assert!(!doubted || body_framed, "only a body can be in doubt");
    RequestRow {
        id: keys.id.clone(),
        rule: keys.text("rule").unwrap_or_else(|| keys.fail("no rule")),
        finish: keys.flag("finish").unwrap_or(false),
        after: after(keys, directory, doubted, &sees),
        sees,
        keep_slashes,
        keep_encoded_slash,
        faces: Faces {
            path: keys.bytes("path"),
            wire: keys.bytes("wire"),
            query: keys
                .bytes("query")
                .map(|query| (query != b"(none)").then_some(query)),
            host: keys.text("canonical"),
        },
        bytes,
        replies,
    }
}

fn after(keys: &mut Keys<'_>, directory: &str, doubted: bool, sees: &Sees) -> After {
    let either = keys.choice("after", "", "either");
    match keys.flag("close") {
        Some(true) => After::Closes,
        Some(false) => After::Keeps,
        None if doubted && *sees == Sees::Unfinished => After::Closes,
        None if directory == "h1" && !either && !doubted => keys.fail("close is not said"),
        None => After::Either,
    }
}

/// The request: as it stands, or a plain one with the parts the row is about; and whether it was
/// given a chunked body.
fn request_bytes(keys: &mut Keys<'_>, site: &str) -> (Vec<u8>, bool) {
    if let Some(bytes) = keys.bytes("bytes") {
        return (bytes, false);
    }
    let chunked = keys.bytes("chunked");
    let mut fields = keys.bytes("fields").unwrap_or_default();
    let body_framed = chunked.is_some();
    if body_framed {
        fields.extend(b"Transfer-Encoding: chunked");
    }
    let content = keys.bytes("content").or(chunked);
    let method: &[u8] = if content.is_some() { b"POST " } else { b"GET " };
    let line = keys.bytes("line").unwrap_or_else(|| {
        let target = keys.bytes("target").unwrap_or_else(|| b"/".to_vec());
        [method, &target, b" HTTP/1.1"].concat()
    });
    let host = keys.bytes("host").unwrap_or_else(|| site.into());
    let end: &[u8] = if fields.is_empty() { b"" } else { b"\r\n" };
    let content = content.unwrap_or_default();
    let parts = [&line, b"\r\nHost: ".as_slice(), &host, b"\r\n", &fields];
    let bytes = [&parts.concat(), end, b"\r\n", &content].concat();
    (bytes, body_framed)
}

fn sees(keys: &mut Keys<'_>, accepted: bool) -> Sees {
    let lines = match keys.take("sees") {
        Some(DeValue::String(text)) if text == "nothing" => return Sees::Nothing,
        Some(DeValue::String(text)) if text == "anything" => return Sees::Anything,
        Some(DeValue::Array(lines)) => lines
            .iter()
            .map(|line| unescape(line.get_ref().as_str()?))
            .map(|line| Some(String::from_utf8_lossy(&line?).into_owned()))
            .map(|line| line.unwrap_or_else(|| keys.fail("bad line in sees")))
            .collect(),
        Some(_) => keys.fail("sees is \"nothing\", \"anything\" or a list of lines"),
        None => Vec::new(),
    };
    if !accepted {
        return Sees::Nothing;
    }
    let mut lines = lines.into_iter();
    Sees::Request(SeenRequest {
        line: lines.next(),
        fields: lines.map(|line| split_field(keys, &line)).collect(),
        lacks: keys.list("lacks"),
        never: keys.list("never"),
        body: keys.bytes("body"),
    })
}

fn split_field(keys: &Keys<'_>, line: &str) -> (String, String) {
    let Some((name, value)) = line.split_once(": ") else {
        keys.fail(&format!("`{line}` is no field"))
    };
    (name.to_lowercase(), value.to_owned())
}

fn reply(keys: &mut Keys<'_>) -> ReplyRow {
    let has = keys.list("has");
    ReplyRow {
        id: keys.id.clone(),
        rule: keys.text("rule").unwrap_or_else(|| keys.fail("no rule")),
        method: keys.text("method").unwrap_or_else(|| "GET".into()),
        reply: keys.bytes("reply").unwrap_or_else(|| keys.fail("no reply")),
        closes: keys.flag("closes").unwrap_or(false),
        statuses: keys.status_lists().concat(),
        body: keys.bytes("body"),
        complete: keys.flag("complete").unwrap_or(true),
        has: has.iter().map(|line| split_field(keys, line)).collect(),
        lacks: keys.list("lacks"),
        never: keys.list("never"),
        reused: keys.flag("reused"),
    }
}

/// The keys of one row, ticked off as they are read.
pub(crate) struct Keys<'a> {
    pub(crate) id: String,
    place: String,
    values: BTreeMap<&'a str, &'a DeValue<'a>>,
}

impl<'a> Keys<'a> {
    fn new(table: &'a DeTable<'a>, place: String, directory: &str) -> Self {
        let values = table
            .iter()
            .map(|(key, value)| (key.get_ref().as_ref(), value.get_ref()))
            .collect();
        let mut keys = Self {
            id: String::new(),
            place,
            values,
        };
        let id = keys.text("id").unwrap_or_else(|| keys.fail("no id"));
        keys.id = format!("{directory}/{id}");
        keys
    }

    pub(crate) fn fail<T>(&self, what: &str) -> T {
        panic!("{} ({}): {what}", self.place, self.id)
    }

    fn finish(&self) {
        if let Some(key) = self.values.keys().next() {
            self.fail(&format!("unknown key {key}"))
        }
    }

    pub(crate) fn take(&mut self, key: &str) -> Option<&'a DeValue<'a>> {
        self.values.remove(key)
    }

    pub(crate) fn text(&mut self, key: &str) -> Option<String> {
        let value = self.take(key)?;
        let text = value.as_str();
        Some(text.unwrap_or_else(|| self.fail(key)).to_owned())
    }

    pub(crate) fn bytes(&mut self, key: &str) -> Option<Vec<u8>> {
        let text = self.text(key)?;
        Some(unescape(&text).unwrap_or_else(|| self.fail(&format!("bad << >> in {key}"))))
    }

    pub(crate) fn flag(&mut self, key: &str) -> Option<bool> {
        let value = self.take(key)?;
        Some(value.as_bool().unwrap_or_else(|| self.fail(key)))
    }

    pub(crate) fn list(&mut self, key: &str) -> Vec<String> {
        let Some(value) = self.take(key) else {
            return Vec::new();
        };
        let list = value.as_array().unwrap_or_else(|| self.fail(key));
        list.iter()
            .map(|item| item.get_ref().as_str().unwrap_or_else(|| self.fail(key)))
            .map(str::to_owned)
            .collect()
    }

    fn choice(&mut self, key: &str, default: &str, other: &str) -> bool {
        match self.text(key) {
            None => false,
            Some(text) if text == default => false,
            Some(text) if text == other => true,
            Some(text) => self.fail(&format!("{key} = {text}")),
        }
    }

    /// `status = 200`, `status = [400, 501]` (either), or `replies = [200, 400]` (in order).
    fn status_lists(&mut self) -> Vec<Vec<u16>> {
        if let Some(value) = self.take("status") {
            return vec![self.statuses(value)];
        }
        let Some(list) = self.take("replies").and_then(DeValue::as_array) else {
            return self.fail("no status and no replies");
        };
        list.iter()
            .map(|status| self.statuses(status.get_ref()))
            .collect()
    }

    pub(crate) fn statuses(&self, value: &DeValue<'_>) -> Vec<u16> {
        let one = |value: &DeValue<'_>| {
            let status = value
                .as_integer()
                .and_then(|text| text.as_str().parse().ok());
            status.unwrap_or_else(|| self.fail("bad status"))
        };
        match value.as_array() {
            Some(list) => list.iter().map(|status| one(status.get_ref())).collect(),
            None => vec![one(value)],
        }
    }
}

/// Fills in `<<FF>>` and `<<text*times>>`; `None` when one of them makes no sense.
fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("<<") {
        let (inside, after) = after.split_once(">>")?;
        bytes.extend(before.as_bytes());
        if let Some((unit, times)) = inside.rsplit_once('*') {
            bytes.extend(unit.repeat(times.parse().ok()?).as_bytes());
        } else {
            for digits in inside.as_bytes().chunks(2) {
                let digits = std::str::from_utf8(digits).ok()?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
            }
        }
        rest = after;
    }
    bytes.extend(rest.as_bytes());
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_and_repetitions_are_filled_in() {
        assert_eq!(unescape("a<<FF00>>b"), Some(b"a\xff\x00b".to_vec()));
        assert_eq!(unescape("<<xy*3>>."), Some(b"xyxyxy.".to_vec()));
        assert_eq!(unescape("<<zz>>"), None);
        assert_eq!(unescape("<<41"), None);
    }
}
