//! What an `if` asks, as members of a `match`.

use crate::draft::TomlItem;
use crate::words;

/// Members of a `match`.
pub(super) type Members = Vec<(String, TomlItem)>;

/// What an `if` asks.
#[derive(Default)]
pub(super) struct IfAsked {
    pub(super) members: Members,
    pub(super) is_negated: bool,
    pub(super) unless: Vec<&'static str>,
    /// Whether it asks for requests without TLS.
    pub(super) is_plain_http: bool,
}

/// Adds an expression for the path to a `match`, which may have one.
pub(super) fn and_regex(mut members: Members, regex: &str) -> Option<Members> {
    if let Some((_, first)) = members
        .iter()
        .find(|(name, _)| name == "path_regex")
        .cloned()
    {
        if members.iter().any(|(name, _)| name == "not") {
            return None;
        }
        members.retain(|(name, _)| name != "path_regex");
        let inner = TomlItem::table([("path_regex", first)]);
        let not = TomlItem::table([("not", inner)]);
        members.push(("not".to_owned(), not));
    }
    members.push(("path_regex".to_owned(), regex.into()));
    Some(members)
}

/// A `match` of a location and an `if`.
pub(super) fn with_asked(mut members: Members, asked: &IfAsked) -> Option<Members> {
    if asked.is_plain_http {
        return None;
    }
    if asked.is_negated {
        members.push(("not".to_owned(), TomlItem::Table(asked.members.clone())));
        return Some(members);
    }
    for (name, item) in &asked.members {
        match item {
            TomlItem::Text(regex) if name == "path_regex" => members = and_regex(members, regex)?,
            _ if members.iter().any(|(known, _)| known == name) => return None,
            item => members.push((name.clone(), item.clone())),
        }
    }
    Some(members)
}

/// What an `if` asks; `None` where no `match` does.
pub(super) fn condition(text: &str) -> Option<IfAsked> {
    let inner = text.trim().strip_prefix('(')?.strip_suffix(')')?.trim();
    let mut words = inner.splitn(3, ' ').map(str::trim);
    let (first, second, third) = (words.next()?, words.next(), words.next());
    let file_test = |test: &str| match test {
        "!-f" => Some(vec!["file"]),
        "!-d" => Some(vec!["directory"]),
        "!-e" => Some(vec!["file", "directory"]),
        _ => None,
    };
    if let (Some(unless), Some("$request_filename"), None) = (file_test(first), second, third) {
        return Some(IfAsked {
            unless,
            ..IfAsked::default()
        });
    }
    let name = first.strip_prefix('$')?;
    let (operator, value) = (second?, third?.trim_matches(['"', '\'']));
    let is_plain_http = matches!(
        (name, operator, value),
        ("scheme", "=", "http")
            | ("scheme", "!=", "https")
            | ("https", "=", "" | "off")
            | ("https", "!=", "on")
            | ("server_port", "=", "80")
    );
    if is_plain_http {
        return Some(IfAsked {
            is_plain_http,
            ..IfAsked::default()
        });
    }
    let (is_negated, operator) = match operator.strip_prefix('!') {
        Some(rest) => (true, rest),
        None => (false, operator),
    };
    let members = compared(name, operator, value)?;
    Some(IfAsked {
        members,
        is_negated,
        ..IfAsked::default()
    })
}

/// What a variable is compared with.
fn compared(name: &str, operator: &str, value: &str) -> Option<Members> {
    let text_match = || match operator {
        "=" => words::glob(value).map(TomlItem::Text),
        "~" | "~*" => {
            let regex = words::expression(value, operator == "~*")?;
            Some(TomlItem::table([("regex", regex.into())]))
        }
        _ => None,
    };
    let one = |kind: &str, member: &str| {
        let item = TomlItem::Table(vec![(member.to_owned(), text_match()?)]);
        Some(vec![(kind.to_owned(), item)])
    };
    let members = match name {
        "request_method" => {
            let methods = match operator {
                "=" => vec![value.to_owned()],
                _ => value
                    .trim_start_matches('^')
                    .trim_end_matches('$')
                    .trim_matches(['(', ')'])
                    .split('|')
                    .map(str::to_owned)
                    .collect(),
            };
            let is_method =
                |it: &String| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_uppercase());
            if !methods.iter().all(is_method) {
                return None;
            }
            vec![("method".to_owned(), TomlItem::texts(methods))]
        }
        "host" | "http_host" => one("header", "Host")?,
        "uri" | "document_uri" => match operator {
            "=" => vec![("path".to_owned(), words::glob(value)?.into())],
            _ => vec![(
                "path_regex".to_owned(),
                words::expression(value, operator == "~*")?.into(),
            )],
        },
        "remote_addr" if operator == "=" => {
            vec![(
                "client".to_owned(),
                words::spell_network(&words::network(value)?).into(),
            )]
        }
        name => match (
            name.strip_prefix("http_"),
            name.strip_prefix("cookie_"),
            name.strip_prefix("arg_"),
        ) {
            (Some(field), ..) if !field.is_empty() => one("header", &field.replace('_', "-"))?,
            (_, Some(cookie), _) if !cookie.is_empty() => one("cookie", cookie)?,
            (.., Some(query)) if !query.is_empty() => one("query", query)?,
            _ => return None,
        },
    };
    Some(members)
}
