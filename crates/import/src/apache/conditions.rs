//! What `RewriteCond` asks, as members of a `match`.

use htaccess::words::rewrite_arguments;

use super::ApacheLine;
use crate::draft::TomlItem;
use crate::words;

/// Members of a `match`.
type Members = Vec<(String, TomlItem)>;

/// Conditions of a rule.
#[derive(Default)]
pub(super) struct Conditions {
    members: Members,
    not: Members,
    pub(super) is_plain_http: bool,
}

impl Conditions {
    /// All of them in a `match`, with an expression for the path.
    pub(super) fn with_path(self, regex: Option<&str>) -> Members {
        let mut members = self.members;
        members.extend(regex.map(|it| ("path_regex".to_owned(), it.into())));
        if !self.not.is_empty() {
            members.push(("not".to_owned(), TomlItem::Table(self.not)));
        }
        members
    }
}

/// What stands before a rule; `None` where it is more than a `match` tells.
pub(super) fn conditions(asked: &[&ApacheLine]) -> Option<Conditions> {
    let mut all = Conditions::default();
    for line in asked {
        condition(line, &mut all)?;
    }
    Some(all)
}

fn condition(line: &ApacheLine, all: &mut Conditions) -> Option<()> {
    let (test, pattern, flags) = rewrite_arguments(&line.text)?;
    let [test, pattern, flags] = [test, pattern, flags.unwrap_or_default()]
        .map(|it| String::from_utf8_lossy(&it).into_owned());
    let flags = flags.trim_matches(['[', ']']).to_ascii_lowercase();
    let flags: Vec<&str> = flags.split(',').map(str::trim).collect();
    if flags.iter().any(|flag| ["or", "ornext"].contains(flag)) {
        return None;
    }
    let folds = flags.iter().any(|flag| ["nc", "nocase"].contains(flag));
    let is_plain = match test.as_str() {
        "%{HTTPS}" => ["off", "^off$", "!on", "!^on$", "!=on", "=off"].contains(&&*pattern),
        "%{SERVER_PORT}" => ["80", "^80$", "=80", "!443", "!^443$", "!=443"].contains(&&*pattern),
        "%{REQUEST_SCHEME}" => {
            ["http", "^http$", "=http", "!https", "!=https"].contains(&&*pattern)
        }
        _ => false,
    };
    if is_plain {
        all.is_plain_http = true;
        return Some(());
    }
    compared(&test, &pattern, folds, all)
}

fn compared(test: &str, pattern: &str, folds: bool, all: &mut Conditions) -> Option<()> {
    let (is_negated, pattern) = match pattern.strip_prefix('!') {
        Some(pattern) => (true, pattern),
        None => (false, pattern),
    };
    let whole = pattern.strip_prefix('=').map(words::escape);
    let pattern = whole.map_or_else(|| pattern.to_owned(), |it| format!("^{it}$"));
    if pattern.starts_with(['<', '>', '-']) {
        return None;
    }
    let regex = words::expression(&pattern, folds)?;
    let field = match test {
        "%{HTTP_HOST}" | "%{SERVER_NAME}" => "Host",
        "%{HTTP_USER_AGENT}" => "User-Agent",
        "%{HTTP_REFERER}" => "Referer",
        "%{HTTP_COOKIE}" => "Cookie",
        "%{REQUEST_URI}" if is_negated => return add("path_regex", regex.into(), true, all),
        _ => {
            let name = test.strip_prefix("%{HTTP:")?.strip_suffix('}')?;
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            (!name.is_empty() && name.bytes().all(fits)).then_some(name)?
        }
    };
    let found = TomlItem::table([("regex", regex.into())]);
    add("header", TomlItem::table([(field, found)]), is_negated, all)
}

/// Adds a condition; `None` where another of its kind is in the way.
fn add(name: &str, item: TomlItem, is_negated: bool, all: &mut Conditions) -> Option<()> {
    let members = match is_negated {
        true => &mut all.not,
        false => &mut all.members,
    };
    // Of conditions that must not hold, not all together must.
    let is_free = match is_negated {
        true => members.is_empty(),
        false => !members.iter().any(|(known, _)| known == name),
    };
    is_free.then(|| members.push((name.to_owned(), item)))
}
