//! Cases of the scripts' API: a script, the request it is run for, and what must come of it.
//!
//! The idea: one table, two runners. A case's script writes what it found as the reply's body, so
//! the same row is true of a made-up request in a test of the crate and of a real one over HTTP.
//!
//! A row has `ruby`, an expression whose `inspect` is written, or `script`, which writes itself; or
//! `raises`, what the exception of `ruby` begins with, as `Class: message`. `rewrite`,
//! `header_filter` and `body_filter` are scripts of other phases. `says` is the reply's body; `status`
//! (200), `has` and `lacks` (fields) are the rest of the reply. The request has a `method` (GET, or
//! POST with a `body`), a `target` (`/a.php?x=1`) and `fields`. `only = "trial"` and
//! `only = "server"` are for what cannot be seen, or made up, elsewhere.
//! In every text `{host}`, `{root}` and `{port}` stand for what the runner has.

use std::path::Path;

use crate::vectors::{self, Keys};

/// A row.
#[derive(Debug, Clone)]
pub struct ScriptCase {
    /// Unique name: lower-case letters, digits and hyphens.
    pub id: String,
    /// The request's method.
    pub method: String,
    /// Its path and query.
    pub target: String,
    /// Its fields beside `Host` and `Content-Length`.
    pub fields: Vec<(String, String)>,
    /// Its body.
    pub body: Option<String>,
    /// Script of the phase `rewrite`.
    pub rewrite: Option<String>,
    /// Script of the phase `content`.
    pub content: String,
    /// Script of the phase `header_filter`.
    pub header_filter: Option<String>,
    /// Script of the phase `body_filter`.
    pub body_filter: Option<String>,
    /// The reply's status.
    pub status: u16,
    /// The reply's body.
    pub says: Says,
    /// Fields the reply has with this value.
    pub has: Vec<(String, String)>,
    /// Fields the reply has not.
    pub lacks: Vec<String>,
    /// The one runner it is for.
    pub only: Option<String>,
}

/// What is known of a reply's body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Says {
    /// It is this.
    Just(String),
    /// It begins with this.
    Begins(String),
    /// Nothing.
    Anything,
}

impl Says {
    /// Whether a body is as told.
    #[must_use]
    pub fn holds(&self, body: &[u8]) -> bool {
        match self {
            Self::Just(text) => body == text.as_bytes(),
            Self::Begins(text) => body.starts_with(text.as_bytes()),
            Self::Anything => true,
        }
    }
}

impl ScriptCase {
    /// The host the case's request is for.
    #[must_use]
    pub fn host(&self) -> String {
        format!("{}.test", self.id)
    }

    /// Fills in what stands in braces: each name with its value.
    #[must_use]
    pub fn filled(mut self, values: &[(&str, &str)]) -> Self {
        let host = self.host();
        let fill = |text: &mut String| {
            *text = text.replace("{host}", &host);
            for (name, value) in values {
                *text = text.replace(name, value);
            }
        };
        fill(&mut self.content);
        let others = [
            &mut self.rewrite,
            &mut self.header_filter,
            &mut self.body_filter,
        ];
        others.into_iter().flatten().for_each(fill);
        self.has.iter_mut().for_each(|(_, value)| fill(value));
        if let Says::Just(text) | Says::Begins(text) = &mut self.says {
            fill(text);
        }
        self
    }
}

/// Reads every case below `root`, a directory of vectors.
///
/// # Panics
/// On any mistake in them.
#[must_use]
pub fn cases(root: &Path) -> Vec<ScriptCase> {
    vectors::read(root, &["ruby"], |keys, _| case(keys))
}

fn case(keys: &mut Keys<'_>) -> ScriptCase {
    let id = keys.id.trim_start_matches("ruby/").to_owned();
    let plain = |letter: char| matches!(letter, 'a'..='z' | '0'..='9' | '-');
    if !id.chars().all(plain) {
        keys.fail::<()>("an id has lower-case letters, digits and hyphens");
    }
    let body = keys.text("body");
    let method = if body.is_some() { "POST" } else { "GET" };
    let (content, raises) = content(keys);
    let status = keys.take("status").map(|value| keys.statuses(value));
    let says = keys.text("says").map(Says::Just);
    ScriptCase {
        id,
        method: keys.text("method").unwrap_or_else(|| method.to_owned()),
        target: keys.text("target").unwrap_or_else(|| "/a.php?x=1".into()),
        fields: pairs(keys, "fields"),
        body,
        rewrite: keys.text("rewrite"),
        content,
        header_filter: keys.text("header_filter"),
        body_filter: keys.text("body_filter"),
        status: status.map_or(200, |list| list.first().copied().unwrap_or(200)),
        says: says.or(raises).unwrap_or(Says::Anything),
        has: pairs(keys, "has"),
        lacks: keys.list("lacks"),
        only: keys.text("only"),
    }
}

/// The script of `content`, and what an exception it writes begins with.
fn content(keys: &mut Keys<'_>) -> (String, Option<Says>) {
    let raises = keys.text("raises").map(Says::Begins);
    match (keys.text("ruby"), keys.text("script"), &raises) {
        (Some(ruby), None, None) => (format!("Nginx.rputs(({ruby}).inspect)"), None),
        (Some(ruby), None, Some(_)) => {
            let tried = format!(
                "begin\n({ruby})\nNginx.rputs('nothing was raised')\nrescue Exception => raised\n\
                 Nginx.rputs(\"#{{raised.class}}: #{{raised.message}}\")\nend"
            );
            (tried, raises)
        }
        (None, Some(script), None) => (script, None),
        _ => keys.fail("either ruby, perhaps with raises, or script"),
    }
}

fn pairs(keys: &mut Keys<'_>, key: &str) -> Vec<(String, String)> {
    let list = keys.list(key);
    let pairs = list.iter().map(|line| line.split_once(": "));
    let pairs = pairs.map(|pair| pair.map(|(name, value)| (name.to_owned(), value.to_owned())));
    pairs
        .collect::<Option<_>>()
        .unwrap_or_else(|| keys.fail("a field is `Name: value`"))
}
