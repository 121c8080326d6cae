//! What an `if` asks, as members of a `match`.

use super::template::Piece;
use super::{Http, Scope};
use crate::draft::{TomlItem, member};
use crate::words;

/// Members of a `match`.
pub(super) type Members = Vec<(String, TomlItem)>;

/// What an `if` asks.
#[derive(Debug, Default)]
pub(super) struct IfAsked {
    pub(super) members: Members,
    pub(super) is_negated: bool,
    pub(super) unless: Vec<&'static str>,
    /// Whether it asks for requests without TLS.
    pub(super) is_plain_http: bool,
    /// Whether it never holds here.
    pub(super) is_never: bool,
}

/// Adds members of which not all may hold.
pub(super) fn and_not(members: &mut Members, not: Members) {
    let not = TomlItem::Table(not);
    match members.iter_mut().find(|(name, _)| name == "not") {
        None => members.push(member("not", not)),
        Some((_, TomlItem::List(all))) => all.push(not),
        Some((_, only)) => *only = TomlItem::List(vec![only.clone(), not]),
    }
}

/// Adds a member; where there is one of that name both must hold, and the new one's groups count.
pub(super) fn and(members: &mut Members, name: &str, item: TomlItem) {
    match (name, item) {
        ("not", TomlItem::Table(not)) => and_not(members, not),
        (name, item) => match members.iter_mut().find(|(known, _)| known == name) {
            None => members.push((name.to_owned(), item)),
            Some((_, known)) => {
                let first = std::mem::replace(known, item);
                let not = TomlItem::table([(name, first)]);
                and_not(members, vec![member("not", not)]);
            }
        },
    }
}

/// A `match` of a location and an `if`.
pub(super) fn with_asked(mut members: Members, asked: &IfAsked) -> Members {
    match asked.is_negated {
        true => and_not(&mut members, asked.members.clone()),
        false => {
            for (name, item) in &asked.members {
                and(&mut members, name, item.clone());
            }
        }
    }
    members
}

impl<'a> Http<'a> {
    /// What an `if` asks in a block, of a server with these hosts; `None` where no `match` does.
    pub(super) fn condition(
        &self,
        text: &str,
        scope: &Scope<'a>,
        hosts: &[String],
    ) -> Option<IfAsked> {
        let inner = text.trim().strip_prefix('(')?.strip_suffix(')')?.trim();
        let mut words = inner.splitn(3, ' ').map(str::trim);
        let (first, second, third) = (words.next()?, words.next(), words.next());
        if let (Some(unless), Some(file), None) = (file_test(first), second, third) {
            let is_asked_for = [
                "$request_filename",
                "$document_root$uri",
                "$document_root$fastcgi_script_name",
            ];
            return is_asked_for.contains(&file).then(|| IfAsked {
                unless,
                ..IfAsked::default()
            });
        }
        let name = first.strip_prefix('$')?;
        // An empty text in quotes is no word here.
        let empty = second.filter(|it| ["=", "!="].contains(it)).map(|_| "");
        let value = third.map(|it| it.trim_matches(['"', '\''])).or(empty);
        if let Some(known) = self.constants.get(name) {
            let is_never = match (second, value) {
                (None, _) => ["", "0"].contains(&known.as_str()),
                (Some("="), Some(value)) => known != value,
                (Some("!="), Some(value)) => known == value,
                _ => return None,
            };
            return is_never.then(|| IfAsked {
                is_never,
                ..IfAsked::default()
            });
        }
        if (name, second) == ("invalid_referer", None) {
            let valid: Vec<&str> = scope
                .all(&["valid_referers"])
                .iter()
                .flat_map(|line| line.words.iter().map(String::as_str))
                .collect();
            let members = foreign_referers(&valid, hosts)?;
            scope
                .all(&["valid_referers"])
                .iter()
                .for_each(|line| self.ledger.carried(line.id));
            return Some(IfAsked {
                members,
                ..IfAsked::default()
            });
        }
        compared(name, second?, value?)
    }

    /// A text with the variables in it that can have one value only.
    pub(super) fn settled(&self, text: &str) -> String {
        let is_known = |name: &String| text.contains(name.as_str());
        if !self.constants.keys().any(is_known) {
            return text.to_owned();
        }
        let pieces = super::template::pieces(text).into_iter();
        let pieces = pieces.map(|piece| match piece {
            Piece::Text(text) => text.to_owned(),
            Piece::Variable(name) => match self.constants.get(name) {
                Some(value) => value.clone(),
                None => format!("${{{name}}}"),
            },
        });
        pieces.collect()
    }
}

fn file_test(test: &str) -> Option<Vec<&'static str>> {
    match test {
        "!-f" => Some(vec!["file"]),
        "!-d" => Some(vec!["directory"]),
        "!-e" => Some(vec!["file", "directory"]),
        _ => None,
    }
}

/// What `$invalid_referer` asks.
fn foreign_referers(valid: &[&str], hosts: &[String]) -> Option<Members> {
    let of_name = |name: &str| {
        let (host, path) = name.split_at(name.find('/').unwrap_or(name.len()));
        let host = words::escape(host).replace("\\*", "[^/]*");
        let end = match path {
            "" => "(?:[/?#]|$)".to_owned(),
            path => words::escape(path),
        };
        format!("^https?://{host}(?::[0-9]+)?{end}")
    };
    let mut regexes = Vec::new();
    for word in valid {
        match word.strip_prefix('~') {
            Some(regex) => regexes.push(match regex.strip_prefix('^') {
                Some(rest) => format!("^https?://(?:{rest})"),
                None => format!("^https?://.*(?:{regex})"),
            }),
            None => match *word {
                "none" => {}
                "blocked" => regexes.push("^(?!https?://)".to_owned()),
                "server_names" => regexes.extend(hosts.iter().map(|host| of_name(host))),
                name => regexes.push(of_name(name)),
            },
        }
    }
    let mut members = Members::new();
    if valid.contains(&"none") {
        let there = TomlItem::table([("Referer", TomlItem::Flag(true))]);
        members.push(member("header", there));
    }
    if !regexes.is_empty() {
        let regex = words::expression(&regexes.join("|"), true)?;
        let text = TomlItem::table([("regex", regex.into())]);
        let header = TomlItem::table([("Referer", text)]);
        and_not(&mut members, vec![member("header", header)]);
    }
    (!members.is_empty()).then_some(members)
}

/// What a variable is compared with.
fn compared(name: &str, operator: &str, value: &str) -> Option<IfAsked> {
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
    Some(IfAsked {
        members: members_of_variable(name, operator, value)?,
        is_negated,
        ..IfAsked::default()
    })
}

fn members_of_variable(name: &str, operator: &str, value: &str) -> Option<Members> {
    let folds = operator == "~*";
    let text_match = || match operator {
        // One that is not there is empty, too.
        "=" if value.is_empty() => None,
        "=" => words::glob(value).map(TomlItem::Text),
        "~" | "~*" => {
            let regex = words::expression(value, folds)?;
            Some(TomlItem::table([("regex", regex.into())]))
        }
        _ => None,
    };
    let one = |kind: &str, name: &str| {
        let is_absent = operator == "=" && value.is_empty();
        let text = match is_absent {
            true => TomlItem::table([("regex", ".".into())]),
            false => text_match()?,
        };
        let members = vec![member(kind, TomlItem::table([(name, text)]))];
        Some(match is_absent {
            true => vec![member("not", TomlItem::Table(members))],
            false => members,
        })
    };
    match name {
        "request_method" => Some(vec![member("method", methods(operator, value)?)]),
        "host" => Some(vec![member("header", host(operator, value)?)]),
        "http_host" => one("header", "Host"),
        "uri" | "document_uri" => Some(match operator {
            "=" => vec![member("path", words::glob(value)?)],
            "~" | "~*" => {
                let regex = words::expression(value, folds)?;
                vec![member("path_regex", regex)]
            }
            _ => return None,
        }),
        "remote_addr" if operator == "=" => {
            let client = words::spell_network(&words::network(value)?);
            Some(vec![member("client", client)])
        }
        name => match (
            name.strip_prefix("http_"),
            name.strip_prefix("cookie_"),
            name.strip_prefix("arg_"),
        ) {
            (Some(field), ..) if !field.is_empty() => one("header", &field.replace('_', "-")),
            (_, Some(cookie), _) if !cookie.is_empty() => one("cookie", cookie),
            (.., Some(query)) if !query.is_empty() => one("query", query),
            _ => None,
        },
    }
}

/// What `$host` is compared with: the field in small letters, without a port or a dot at its end.
fn host(operator: &str, value: &str) -> Option<TomlItem> {
    const END: &str = "\\.?(?::[0-9]+)?$";
    let source = match operator {
        "=" => format!("^{}{END}", words::escape(value)),
        "~" | "~*" => match value.strip_suffix('$') {
            Some(begin) if !begin.ends_with('\\') => format!("(?:{begin}){END}"),
            _ => value.to_owned(),
        },
        _ => return None,
    };
    // Where it ends within the expression is not known.
    let is_fine = !source.trim_end_matches('$').contains('$');
    let regex = words::expression(&source, true).filter(|_| is_fine)?;
    let text = TomlItem::table([("regex", regex.into())]);
    Some(TomlItem::table([("Host", text)]))
}

fn methods(operator: &str, value: &str) -> Option<TomlItem> {
    let methods = match operator {
        "=" => value,
        "~" | "~*" => value
            .trim_start_matches('^')
            .trim_end_matches('$')
            .trim_start_matches("(?:")
            .trim_matches(['(', ')']),
        _ => return None,
    };
    let methods: Vec<String> = methods.split('|').map(str::to_owned).collect();
    let is_method =
        |it: &String| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_uppercase());
    methods
        .iter()
        .all(is_method)
        .then(|| TomlItem::texts(methods))
}
