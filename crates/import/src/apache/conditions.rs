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
    /// Further expressions for the path.
    paths: Vec<String>,
    pub(super) unless: Vec<&'static str>,
    pub(super) is_plain_http: bool,
    pub(super) is_unknown: bool,
}

impl Conditions {
    /// All of them in a `match`, with an expression for the path.
    pub(super) fn with_path(self, regex: Option<&str>) -> Option<Members> {
        let mut members = self.members;
        let mut not = self.not;
        let mut paths: Vec<String> = regex
            .map(str::to_owned)
            .into_iter()
            .chain(self.paths)
            .collect();
        let first = (!paths.is_empty()).then(|| paths.remove(0));
        members.extend(first.map(|it| ("path_regex".to_owned(), it.into())));
        match paths.as_slice() {
            [] => {}
            // Twice not is so.
            [second] if not.is_empty() => {
                let inner = TomlItem::table([("path_regex", second.as_str().into())]);
                not.push(("not".to_owned(), inner));
            }
            _ => return None,
        }
        if !not.is_empty() {
            members.push(("not".to_owned(), TomlItem::Table(not)));
        }
        Some(members)
    }
}

/// What stands before a rule.
pub(super) fn conditions(asked: &[&ApacheLine]) -> Conditions {
    let mut all = Conditions::default();
    for line in asked {
        if condition(line, &mut all).is_none() {
            all.is_unknown = true;
        }
    }
    all
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
    let is_file = [
        "%{REQUEST_FILENAME}",
        "%{DOCUMENT_ROOT}%{REQUEST_URI}",
        "%{DOCUMENT_ROOT}/%{REQUEST_URI}",
        "%{SCRIPT_FILENAME}",
        "%{DOCUMENT_ROOT}%{REQUEST_FILENAME}",
        "%{DOCUMENT_ROOT}/%{REQUEST_FILENAME}",
    ]
    .contains(&test.as_str());
    match (is_file, pattern.as_str()) {
        (true, "!-f") => all.unless.push("file"),
        (true, "!-d") => all.unless.push("directory"),
        (true, "!-l") => {}
        (true, _) => return None,
        _ => return compared(&test, &pattern, folds, all),
    }
    Some(())
}

fn compared(test: &str, pattern: &str, folds: bool, all: &mut Conditions) -> Option<()> {
    let is_plain = match test {
        "%{HTTPS}" => ["off", "^off$", "!on", "!^on$", "!=on", "=off"].contains(&pattern),
        "%{SERVER_PORT}" => ["80", "^80$", "=80", "!443", "!^443$", "!=443"].contains(&pattern),
        "%{REQUEST_SCHEME}" => ["http", "^http$", "=http", "!https", "!=https"].contains(&pattern),
        _ => false,
    };
    if is_plain {
        all.is_plain_http = true;
        return Some(());
    }
    let (is_negated, pattern) = match pattern.strip_prefix('!') {
        Some(pattern) => (true, pattern),
        None => (false, pattern),
    };
    if pattern.starts_with(['=', '<', '>', '-']) {
        return None;
    }
    let field = match test {
        "%{HTTP_HOST}" | "%{SERVER_NAME}" => "Host",
        "%{HTTP_USER_AGENT}" => "User-Agent",
        "%{HTTP_REFERER}" => "Referer",
        "%{HTTP_COOKIE}" => "Cookie",
        "%{REQUEST_METHOD}" => {
            let names = pattern.trim_matches(['^', '$']).trim_matches(['(', ')']);
            let names: Vec<String> = names.split('|').map(str::to_owned).collect();
            let is_name =
                |it: &String| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_uppercase());
            let item = names
                .iter()
                .all(is_name)
                .then(|| TomlItem::texts(names.iter().cloned()))?;
            return add("method", item, is_negated, all);
        }
        "%{REQUEST_URI}" => {
            let regex = words::expression(pattern, folds)?;
            return match is_negated {
                true => add("path_regex", regex.into(), true, all),
                false => {
                    all.paths.push(regex);
                    Some(())
                }
            };
        }
        _ => {
            let name = test.strip_prefix("%{HTTP:")?.strip_suffix('}')?;
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            (!name.is_empty() && name.bytes().all(fits)).then_some(name)?
        }
    };
    let regex = words::expression(pattern, folds)?;
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
