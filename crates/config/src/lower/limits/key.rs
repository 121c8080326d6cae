//! What a limit counts by.
//!
//! The idea: a limit sees what passes where it stands. A key that names a level further out would
//! seem to count more than that, so it is refused; one further in gives each part its own count.

use super::{Forwards, Level};
use crate::keys::{self, limit};
use crate::lower::context::problem;
use crate::lower::expressions;
use crate::lower::fields::is_token;
use crate::lower::table::Table;
use crate::lower::value::Value;
use crate::model::LimitKey;

/// Longest name of a field or cookie, and longest text of a constant.
const TEXT_BYTES_MAX: usize = 64;

/// Keys that are a word.
const WORDS: &[(&str, LimitKey)] = &[
    ("process", LimitKey::Process),
    ("tenant", LimitKey::Tenant),
    ("site", LimitKey::Site),
    ("rule", LimitKey::Rule),
    ("upstream", LimitKey::Upstream),
    ("file", LimitKey::File),
    ("path", LimitKey::Path),
    ("client", LimitKey::Client),
];

/// Words of other programs, and the key that is meant.
const OTHERS: &[(&[&str], &str)] = &[
    (
        &[
            "ip",
            "addr",
            "address",
            "remote_addr",
            "binary_remote_addr",
            "src",
        ],
        "client",
    ),
    (&["uri", "url", "request_uri", "location"], "path"),
    (
        &["host", "vhost", "server", "server_name", "domain"],
        "site",
    ),
    (&["script", "script_filename", "request_filename"], "file"),
    (&["global", "all", "total"], "process"),
    (&["backend", "pool"], "upstream"),
];

/// The keys of a limit; that of its level where it names none, or none that can be.
pub(super) fn keys(table: &Table<'_>, level: Level) -> Vec<LimitKey> {
    let Some(value) = table.get("key") else {
        return vec![level.own_key()];
    };
    let elements = value.one_or_list();
    if elements.is_empty() {
        value.report_help(
            "`key` is an empty list",
            "leave it out to count everything together",
        );
    }
    if elements.len() > limit::KEYS_MAX {
        value.report(format!(
            "a limit counts by {} keys together at most",
            limit::KEYS_MAX
        ));
    }
    let mut found: Vec<LimitKey> = Vec::new();
    for element in &elements {
        let Some(key) = element.text().and_then(|text| read(element, text)) else {
            continue;
        };
        report_misplaced(element, &key, level);
        if found.contains(&key) {
            element.report(format!("`{}` stands twice in `key`", spell(&key)));
        } else {
            found.push(key);
        }
    }
    if found.is_empty() {
        found.push(level.own_key());
    }
    found
}

/// How a key is written in a configuration, without quotes: `file`, `header:x-api-key`.
#[must_use]
pub fn spell(key: &LimitKey) -> String {
    match key {
        LimitKey::Header(name) => format!("header:{name}"),
        LimitKey::Cookie(name) => format!("cookie:{name}"),
        LimitKey::Const(text) => format!("const:{text}"),
        LimitKey::Capture(group) => format!("${group}"),
        word => WORDS
            .iter()
            .find(|(_, key)| key == word)
            .map_or("", |(word, _)| word)
            .to_owned(),
    }
}

fn read(value: &Value<'_>, text: &str) -> Option<LimitKey> {
    if let Some((_, key)) = WORDS.iter().find(|(word, _)| *word == text) {
        return Some(key.clone());
    }
    if let Some(name) = group_name(text) {
        if let Some(group) = expressions::group(value, name) {
            return Some(LimitKey::Capture(group));
        }
        if name.bytes().all(|byte| byte.is_ascii_digit()) {
            let finding = expressions::no_group(value, name, 0..text.len());
            value.context.report(finding);
            return None;
        }
    }
    let Some((kind, rest)) = text.split_once(':') else {
        report_unknown(value, text);
        return None;
    };
    match kind {
        "header" => {
            token(value, rest, "field").map(|name| LimitKey::Header(name.to_ascii_lowercase()))
        }
        "cookie" => token(value, rest, "cookie").map(|name| LimitKey::Cookie(name.to_owned())),
        "const" => constant(value, rest),
        _ => {
            report_unknown(value, text);
            None
        }
    }
}

/// What a group of a regular expression is called: `$1`, `${name}`.
fn group_name(text: &str) -> Option<&str> {
    let name = text.strip_prefix('$')?;
    let braced = name.strip_prefix('{').and_then(|it| it.strip_suffix('}'));
    Some(braced.unwrap_or(name)).filter(|name| !name.is_empty())
}

fn token<'t>(value: &Value<'_>, name: &'t str, of: &str) -> Option<&'t str> {
    if name.len() <= TEXT_BYTES_MAX && is_token(name) {
        return Some(name);
    }
    value.report_help(
        format!("{name:?} cannot be a {of}'s name"),
        format!("as in `header:X-Api-Key` and `cookie:session`; {TEXT_BYTES_MAX} bytes at most"),
    );
    None
}

fn constant(value: &Value<'_>, text: &str) -> Option<LimitKey> {
    let fits = (1..=TEXT_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control);
    if !fits {
        value.report_help(
            format!("the text behind `const:` must have 1 to {TEXT_BYTES_MAX} bytes, without control characters"),
            "as in `const:/index.php`",
        );
        return None;
    }
    Some(LimitKey::Const(text.to_owned()))
}

fn report_unknown(value: &Value<'_>, text: &str) {
    let finding = problem(
        value.spot(),
        format!("`{text}` is nothing a limit counts by"),
    );
    let word = text.trim_start_matches('$').to_ascii_lowercase();
    let others = OTHERS.iter().find(|(words, _)| words.contains(&&*word));
    let known = WORDS.iter().map(|(word, _)| *word);
    let meant = others
        .map(|(_, meant)| *meant)
        .or_else(|| keys::nearest(text, known));
    let kind = text.split(':').next().unwrap_or_default();
    let meant_kind = text
        .contains(':')
        .then(|| keys::nearest(kind, ["header", "cookie", "const"].into_iter()))
        .flatten();
    value.context.report(match (meant_kind, meant) {
        (Some(kind), _) => {
            let rest = text.split_once(':').map_or("", |(_, rest)| rest);
            finding.meant(Some(&format!("{kind}:{rest}")))
        }
        (None, Some(meant)) => finding.meant(Some(meant)),
        (None, None) => finding.help(
            "`file`, `path`, `client`, `header:NAME`, `cookie:NAME`, `$1`, `const:TEXT`, or a level: `process`, \
             `tenant`, `site`, `rule`, `upstream`",
        ),
    });
}

/// Reports a key that does not exist, or means less than it says, where the limit stands.
fn report_misplaced(value: &Value<'_>, key: &LimitKey, level: Level) {
    let help = match (key, level) {
        (LimitKey::Process, Level::Tenant | Level::Site(_) | Level::Rule(..) | Level::Upstream) => {
            "put the limit on the top level, or leave `key` out"
        }
        (LimitKey::Tenant, Level::Site(_) | Level::Rule(..)) => {
            "put the limit on `[tenants.NAME]`, or leave `key` out"
        }
        (LimitKey::Rule, Level::Process | Level::Tenant | Level::Site(_) | Level::Upstream) => {
            "put the limit on a rule"
        }
        (LimitKey::Upstream, Level::Process | Level::Tenant | Level::Site(_)) => {
            "put the limit on `[upstreams.NAME]`, or on a rule that forwards"
        }
        (LimitKey::Upstream, Level::Rule(_, Forwards::No)) => {
            "this rule forwards to none; put the limit on one with `proxy` or `fastcgi`"
        }
        _ => return,
    };
    let message = format!(
        "a limit on {} cannot count by `{}`",
        level.words(),
        spell(key)
    );
    value.report_help(message, help);
}
