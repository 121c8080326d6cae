//! What both servers' configurations are made of: hosts, networks, patterns, times and sizes.
//!
//! The idea: what comes out of here is what a site may say; what cannot is `None`, and its line is
//! not carried.

use std::iter::Peekable;
use std::str::Chars;

use ipnet::IpNet;
use pattern::Expression;

/// Globs that one expression may come to.
const GLOBS_MAX: usize = 64;
/// Groups within each other in such an expression.
const GROUPS_MAX: usize = 8;
/// Bytes of an expression.
const EXPRESSION_BYTES_MAX: usize = 8_192;
/// The longest wait that a site may say.
const WAIT_MS_MAX: u64 = 86_400_000;

/// A host as a site names it: without port, `*` for whole labels in front alone.
pub(crate) fn host(text: &str) -> Option<String> {
    let name = text.trim_end_matches('.').to_ascii_lowercase();
    let below = name.strip_prefix("*.").unwrap_or(&name);
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(fits)
    };
    (below.len() <= 253 && below.split('.').all(is_label)).then_some(name)
}

/// `HOST:PORT` of a server.
pub(crate) fn address(host: &str, port: &str) -> Option<String> {
    let port: u16 = port.parse().ok().filter(|port| *port != 0)?;
    if let Some(inner) = host.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
        let address: std::net::Ipv6Addr = inner.parse().ok()?;
        return Some(format!("[{address}]:{port}"));
    }
    let is_number = host
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    if is_number && host.parse::<std::net::Ipv4Addr>().is_err() {
        return None;
    }
    let host = self::host(host).filter(|host| !host.starts_with('*'))?;
    Some(format!("{host}:{port}"))
}

/// `unix:` with the path of a socket.
pub(crate) fn unix(path: &str) -> Option<String> {
    let path = file_path(path).filter(|path| path.len() <= 107 && !path.ends_with(';'))?;
    Some(format!("unix:{path}"))
}

/// A server at a socket's path, or at a host and a port, this one where none is said.
pub(crate) fn server(text: &str, usual_port: &str) -> Option<String> {
    if let Some(path) = text.strip_prefix("unix:") {
        return unix(path);
    }
    let (host, port) = text.rsplit_once(':').unwrap_or((text, usual_port));
    address(host, port)
}

/// An address or a network, without bits beyond its prefix.
pub(crate) fn network(text: &str) -> Option<IpNet> {
    if let Ok(address) = text.parse::<std::net::IpAddr>() {
        return Some(IpNet::from(address));
    }
    Some(text.parse::<IpNet>().ok()?.trunc())
}

/// A network as it is written: an address alone where it is one.
pub(crate) fn spell_network(network: &IpNet) -> String {
    match network.prefix_len() == network.max_prefix_len() {
        true => network.addr().to_string(),
        false => network.to_string(),
    }
}

/// The networks of this machine itself.
pub(crate) const LOOPBACK: [&str; 2] = ["127.0.0.0/8", "::1"];

pub(crate) fn loopback() -> impl Iterator<Item = IpNet> {
    LOOPBACK.iter().filter_map(|it| network(it))
}

/// A text as a glob that means itself.
pub(crate) fn glob(text: &str) -> Option<String> {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '*' | '?' | '[' => out.extend(['[', c, ']']),
            c if c.is_ascii_control() => return None,
            c => out.push(c),
        }
    }
    (!out.is_empty()).then_some(out)
}

/// A text as a regular expression that means itself.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if c.is_ascii_punctuation() && !['/', '_', '-'].contains(&c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// An expression, if it is one here.
pub(crate) fn expression(source: &str, folds: bool) -> Option<String> {
    let source = match folds {
        true => format!("(?i){source}"),
        false => source.to_owned(),
    };
    let fits = source.len() <= EXPRESSION_BYTES_MAX && Expression::new(&source).is_ok();
    fits.then_some(source)
}

/// How many groups an expression has.
pub(crate) fn groups(source: &str) -> usize {
    Expression::new(source).map_or(0, |it| it.groups())
}

/// Whether an expression is found in a text; where that cannot be told, it is.
pub(crate) fn is_found(source: &str, text: &str) -> bool {
    let found = Expression::new(source).map(|it| it.is_match(text.as_bytes()));
    !matches!(found, Ok(Ok(false)))
}

/// A name with wildcards that leave slashes alone.
pub(crate) fn wildcards(pattern: &str) -> Option<Expression> {
    let escaped = escape(pattern);
    let source = escaped.replace("\\*", "[^/]*").replace("\\?", "[^/]");
    Expression::new(&format!("^{source}$")).ok()
}

/// Whether a path is meant by a name with wildcards that leave slashes alone.
pub(crate) fn is_meant(pattern: &str, path: &str) -> bool {
    let found = wildcards(pattern).map(|it| it.is_match(path.as_bytes()));
    found != Some(Ok(false))
}

/// What an expression comes to as globs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Globs {
    /// Whether they stand at the beginning of what is matched.
    pub(crate) is_anchored: bool,
    /// Each of them.
    pub(crate) texts: Vec<String>,
}

/// What may follow the name of a program in an expression.
const TAILS: [&str; 10] = [
    "(/|$)",
    "(?:/|$)",
    "($|/)",
    "(?:$|/)",
    "(/.*)?$",
    "(?:/.*)?$",
    "(/.+)?$",
    "(|/.*)$",
    "(/.*|)$",
    "$",
];

/// The globs that mean the same as an expression of literal texts, choices and wildcards; one with
/// no end goes on with anything.
pub(crate) fn globs(source: &str) -> Option<Globs> {
    let (is_anchored, rest) = match source.strip_prefix('^') {
        Some(rest) => (true, rest),
        None => (false, source),
    };
    let ended = TAILS.iter().find_map(|tail| rest.strip_suffix(tail));
    let mut chars = ended.unwrap_or(rest).chars().peekable();
    let mut texts = alternatives(&mut chars, 0)?;
    if chars.next().is_some() || texts.iter().any(String::is_empty) {
        return None;
    }
    for text in &mut texts {
        if !is_anchored && !text.starts_with('*') {
            text.insert(0, '*');
        }
        if ended.is_none() && !text.ends_with('*') {
            text.push('*');
        }
    }
    Some(Globs { is_anchored, texts })
}

fn alternatives(chars: &mut Peekable<Chars<'_>>, depth: usize) -> Option<Vec<String>> {
    let mut all = Vec::new();
    let mut row = vec![String::new()];
    loop {
        match chars.peek() {
            None | Some(')') => break,
            Some('|') => {
                chars.next();
                all.append(&mut row);
                row.push(String::new());
            }
            Some(_) => {
                let pieces = piece(chars, depth)?;
                let product = row
                    .iter()
                    .flat_map(|text| pieces.iter().map(move |piece| format!("{text}{piece}")));
                row = product.take(GLOBS_MAX + 1).collect();
            }
        }
        if all.len() + row.len() > GLOBS_MAX {
            return None;
        }
    }
    all.append(&mut row);
    Some(all)
}

fn piece(chars: &mut Peekable<Chars<'_>>, depth: usize) -> Option<Vec<String>> {
    let mut texts = match chars.next()? {
        '(' if depth < GROUPS_MAX => {
            if chars.next_if_eq(&'?').is_some() {
                chars.next_if_eq(&':')?;
            }
            let inner = alternatives(chars, depth + 1)?;
            chars.next_if_eq(&')')?;
            inner
        }
        '\\' => {
            let escaped = chars.next().filter(|c| !c.is_ascii_alphanumeric())?;
            vec![glob(escaped.encode_utf8(&mut [0; 4]))?]
        }
        '[' => vec![class(chars)?],
        '.' => vec!["?".to_owned()],
        '(' | '^' | '$' | '*' | '+' | '?' | '{' | '}' => return None,
        c => vec![glob(c.encode_utf8(&mut [0; 4]))?],
    };
    match chars.peek() {
        Some('?') => {
            chars.next();
            texts.push(String::new());
        }
        Some('+' | '*') if matches!(&*texts, [one] if one == "?") => {
            chars.next();
            chars.next_if_eq(&'?');
            texts = vec!["*".to_owned()];
        }
        Some('+' | '*' | '{') => return None,
        _ => {}
    }
    Some(texts)
}

/// A class whose `[` was read; one that leaves out what no name has is any byte.
fn class(chars: &mut Peekable<Chars<'_>>) -> Option<String> {
    let inner: String = chars.by_ref().take_while(|c| *c != ']').collect();
    match inner.as_str() {
        "^/" | "^/\\.." => Some("?".to_owned()),
        "0-9" | "a-z" | "A-Z" | "a-z0-9" | "a-zA-Z0-9" | "A-Za-z0-9" => Some(format!("[{inner}]")),
        letters if letters.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
            (!letters.is_empty()).then(|| format!("[{letters}]"))
        }
        _ => None,
    }
}

/// Milliseconds of a time: `30`, `30s`, `1h30m`, `100ms`, `5min`.
pub(crate) fn milliseconds(text: &str) -> Option<u64> {
    let mut rest = text;
    let mut sum = 0_u64;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (number, behind) = rest.split_at(digits);
        let letters = behind.find(|c: char| !c.is_ascii_alphabetic());
        let (unit, behind) = behind.split_at(letters.unwrap_or(behind.len()));
        let unit_ms = match unit {
            "ms" => 1,
            "" | "s" => 1_000,
            "m" | "min" | "mi" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 7 * 86_400_000,
            "M" => 30 * 86_400_000,
            "y" => 365 * 86_400_000,
            _ => return None,
        };
        sum = sum.checked_add(number.parse::<u64>().ok()?.checked_mul(unit_ms)?)?;
        rest = behind;
    }
    (!text.is_empty()).then_some(sum)
}

/// A wait as a site writes it; none where it is none, or too long.
pub(crate) fn wait(text: &str) -> Option<String> {
    let ms = milliseconds(text)?;
    (1..=WAIT_MS_MAX)
        .contains(&ms)
        .then(|| config::duration(ms))
}

/// Bytes of a size: `1024`, `64k`, `8m`, `1g`.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let digits = lower.trim_end_matches(['k', 'm', 'g']);
    let unit = match lower.get(digits.len()..)? {
        "" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// The largest body as a site writes it; `0` asks for none, which is the most there can be.
pub(crate) fn body(text: &str) -> Option<String> {
    const MOST: u64 = 1_048_576 << 30;
    let bytes = bytes(text)?;
    Some(config::size(if bytes == 0 {
        MOST
    } else {
        bytes.min(MOST)
    }))
}

/// Whether a text is a media type without parameters.
pub(crate) fn is_media_type(text: &str) -> bool {
    let fits = |part: &str| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte);
        !part.is_empty() && part.bytes().all(fits)
    };
    text.split_once('/')
        .is_some_and(|(kind, form)| fits(kind) && fits(form))
}

/// A path of the URL as a mount has it, without its last slash.
pub(crate) fn mount_path(text: &str) -> Option<&str> {
    let path = text.strip_suffix('/').unwrap_or(text);
    // What is meant as an expression, and is none, is no directory.
    let is_odd = |c: char| c.is_control() || "?#%*(|\\$".contains(c);
    let is_name = |name: &str| !["", ".", ".."].contains(&name);
    let names = path.strip_prefix('/')?;
    (names.split('/').all(is_name) && !path.contains(is_odd)).then_some(path)
}

/// An absolute path of the machine that holds nothing to be filled in.
pub(crate) fn file_path(text: &str) -> Option<&str> {
    let is_odd = |c: char| c.is_control() || c == '$';
    (text.starts_with('/') && !text.contains(is_odd)).then_some(text)
}

/// The path of a directory without its last slash.
pub(crate) fn without_slash(path: &str) -> &str {
    match path.trim_end_matches('/') {
        "" => path,
        path => path,
    }
}

/// Whether programs may run as this user.
pub(crate) fn is_user(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.$@".contains(&byte);
    let is_root = name == "root" || name.bytes().all(|byte| byte == b'0');
    !is_root && name.bytes().all(fits)
}

/// What a password is asked for, in letters that a field may have.
pub(crate) fn realm(text: &str) -> String {
    let fits = |c: &char| c.is_ascii_graphic() && !['"', '\\'].contains(c) || *c == ' ';
    let realm: String = text.chars().filter(fits).collect();
    match realm.trim().is_empty() {
        true => "restricted".to_owned(),
        false => realm,
    }
}

/// The path of an error's page, if that is a file.
pub(crate) fn error_page(path: &str) -> Option<&str> {
    let mut endings = [".html", ".htm", ".json", ".svg", ".txt"].iter();
    let is_page = endings.any(|end| path.ends_with(end)) && !path.contains("/..");
    file_path(path).filter(|_| is_page)
}

/// Whether an error may have this status.
pub(crate) fn is_error_status(text: &str) -> bool {
    let is_one = |status: u16| (400..=599).contains(&status);
    text.len() == 3 && text.parse().is_ok_and(is_one)
}

/// Those that name a file in a directory.
pub(crate) fn index_names(names: &[String]) -> Vec<String> {
    let is_odd = |c: char| c == '/' || c.is_control();
    let fits =
        |name: &&String| !name.is_empty() && !name.starts_with('.') && !name.contains(is_odd);
    names.iter().filter(fits).cloned().collect()
}
