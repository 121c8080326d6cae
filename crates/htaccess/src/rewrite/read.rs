//! Lines of rewriting as rules.

use super::template::Template;
use super::{CONDITIONS_MAX, Flags, Options, Query, RewriteCondition, Rule, Test};
use crate::expression::{self, Comparison};
use crate::pattern::{Case, Pattern};
use crate::words::{all_words, rewrite_arguments};

/// Reads `RewriteOptions`; tells the words that mean nothing here.
pub(crate) fn options(arguments: &[u8], options: &mut Options) -> Vec<String> {
    let mut unknown = Vec::new();
    for word in all_words(arguments) {
        let word = String::from_utf8_lossy(&word).to_ascii_lowercase();
        match word.as_str() {
            "inherit" => options.inherit = true,
            "inheritbefore" => options.inherit_before = true,
            "inheritdown" => options.inherit_down = true,
            "inheritdownbefore" => options.inherit_down_before = true,
            "ignoreinherit" => options.ignore_inherit = true,
            "allownoslash" => options.allow_no_slash = true,
            "mergebase" => options.merge_base = true,
            "ignorecontextinfo" => options.ignore_context = true,
            _ => unknown.push(word),
        }
    }
    unknown
}

/// Reads a `RewriteCond`.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn condition(line: u32, arguments: &[u8]) -> Result<RewriteCondition, String> {
    let (input, pattern, flags) =
        rewrite_arguments(arguments).ok_or("it has a text and what to test it with")?;
    let (mut folds, mut or_next, mut no_vary) = (false, false, false);
    for (flag, _) in split_flags(flags.as_deref().unwrap_or_default())? {
        match flag.as_str() {
            "nc" | "nocase" => folds = true,
            "or" | "ornext" => or_next = true,
            "nv" | "novary" => no_vary = true,
            flag => return Err(format!("there is no flag {flag}")),
        }
    }
    let (is_not, tested) = match pattern.strip_prefix(b"!") {
        Some(rest) => (true, rest),
        None => (false, &pattern[..]),
    };
    let is_expression = input.eq_ignore_ascii_case(b"expr");
    let (test, negates) = match is_expression {
        true => (Test::Expression(expression::condition(tested)?), false),
        false => test(tested, folds)?,
    };
    let input = Template::new(&input);
    let text = [input.raw(), b" ", &pattern].concat();
    Ok(RewriteCondition {
        line,
        is_by_env: input.is_by_env() || (is_expression && expression::is_by_env(tested)),
        input,
        test,
        negated: is_not != negates,
        or_next,
        no_vary,
        text: String::from_utf8_lossy(&text).into(),
    })
}

/// What a pattern tests, and whether its outcome is turned round.
fn test(pattern: &[u8], folds: bool) -> Result<(Test, bool), String> {
    match pattern {
        [
            b'-',
            letter @ (b'f' | b's' | b'd' | b'x' | b'h' | b'L' | b'l'),
        ] => {
            return Ok((Test::File(*letter), false));
        }
        [b'-', b'U' | b'F'] => return Ok((Test::Lookup, false)),
        [b'-', first, second, rest @ ..] if !rest.is_empty() => {
            let order = match [*first, *second] {
                [b'l', b't'] => Some((Comparison::Less, false)),
                [b'l', b'e'] => Some((Comparison::LessOrEqual, false)),
                [b'g', b't'] => Some((Comparison::Greater, false)),
                [b'g', b'e'] => Some((Comparison::GreaterOrEqual, false)),
                [b'e', b'q'] => Some((Comparison::Equal, false)),
                [b'n', b'e'] => Some((Comparison::Equal, true)),
                _ => None,
            };
            if let Some((order, negates)) = order {
                return Ok((Test::Number(order, expression::number(rest)), negates));
            }
        }
        [_, _, ..] if !pattern.starts_with(b"-") => {
            let found = match pattern {
                [b'>', b'=', rest @ ..] => Some((Comparison::GreaterOrEqual, rest)),
                [b'>', rest @ ..] => Some((Comparison::Greater, rest)),
                [b'<', b'=', rest @ ..] => Some((Comparison::LessOrEqual, rest)),
                [b'<', rest @ ..] => Some((Comparison::Less, rest)),
                [b'=', b'"', b'"'] => Some((Comparison::Equal, &b""[..])),
                [b'=', rest @ ..] => Some((Comparison::Equal, rest)),
                _ => None,
            };
            if let Some((order, text)) = found {
                return Ok((Test::Text(order, text.to_vec(), folds), false));
            }
        }
        _ => {}
    }
    let case = if folds { Case::Folded } else { Case::Exact };
    Ok((Test::Pattern(Pattern::new(pattern, case)?), false))
}

/// Reads a `RewriteRule`, which takes the conditions before it.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn rule(
    line: u32,
    arguments: &[u8],
    conditions: Vec<RewriteCondition>,
) -> Result<Rule, String> {
    let (pattern, output, flags) =
        rewrite_arguments(arguments).ok_or("it has a pattern and a result")?;
    if conditions.len() > CONDITIONS_MAX {
        return Err(format!("it has more than {CONDITIONS_MAX} conditions"));
    }
    let flags = flags_of(flags.as_deref().unwrap_or_default())?;
    let (negated, pattern) = match pattern.strip_prefix(b"!") {
        Some(rest) => (true, rest),
        None => (false, &pattern[..]),
    };
    let case = if flags.folds {
        Case::Folded
    } else {
        Case::Exact
    };
    let pattern = Pattern::new(pattern, case)?;
    let mut rule = Rule {
        line,
        pattern,
        negated,
        conditions,
        output: Template::default(),
        flags,
    };
    let flags = &mut rule.flags;
    flags.no_result |= output == b"-";
    let mut result = &output[..];
    match output.strip_suffix(b"?") {
        // A `?` at the end drops the query; with `QSA` the last one parts.
        Some(_) if flags.query == Query::Append => flags.splits_last = true,
        Some(path) => {
            flags.query = Query::None;
            result = path;
        }
        None if flags.query == Query::Discard && !output.contains(&b'?') => {
            flags.query = Query::None;
        }
        None => {}
    }
    rule.output = Template::new(result);
    Ok(rule)
}

/// Whether a `RewriteRule` refuses, or may, where nobody looks at its pattern.
pub(crate) fn refuses(arguments: &[u8]) -> bool {
    let flags = rewrite_arguments(arguments).map(|(_, _, flags)| flags.unwrap_or_default());
    flags.is_none_or(|text| flags_of(&text).map_or(true, |flags| flags.refuses()))
}

fn flags_of(text: &[u8]) -> Result<Flags, String> {
    let mut flags = Flags::default();
    for (name, value) in split_flags(text)? {
        flag(&mut flags, &name, value.as_deref())?;
    }
    Ok(flags)
}

fn flag(flags: &mut Flags, name: &str, value: Option<&[u8]>) -> Result<(), String> {
    let needed = || value.ok_or_else(|| format!("the flag {name} lacks its value"));
    match name {
        "b" | "backrefescaping" => {
            flags.escapes = true;
            flags.escaping.only = value.filter(|it| !it.is_empty()).map(<[u8]>::to_vec);
        }
        "bne" => flags.escaping.never = needed()?.to_vec(),
        "bnp" | "backrefernoplus" => flags.escaping.no_plus = true,
        "bctls" => {
            flags.escapes = true;
            flags.escaping.controls = true;
        }
        "c" | "chain" => flags.chain = true,
        "co" | "cookie" => flags.cookies.push(Template::new(needed()?)),
        "dpi" | "discardpath" | "d" => flags.discards_path_info = true,
        "e" | "env" => flags.env.push(Template::new(needed()?)),
        "end" => flags.end = true,
        "f" | "forbidden" => status(flags, 403),
        "g" | "gone" => status(flags, 410),
        "h" | "handler" => flags.handler = Some(Template::new(needed()?)),
        "l" | "last" => flags.last = true,
        "n" | "next" => {
            let most = value.map_or(super::ROUNDS_MAX, |value| {
                u32::try_from(expression::number(value)).unwrap_or(super::ROUNDS_MAX)
            });
            flags.rounds = Some(most.min(super::ROUNDS_MAX));
        }
        "ne" | "noescape" => flags.no_escape = true,
        "ns" | "nosubreq" => flags.skips_pages = true,
        "unsafeprefixstat" => {}
        "nc" | "nocase" => flags.folds = true,
        "p" | "proxy" => flags.proxy = true,
        "pt" | "passthrough" => flags.pass_through = true,
        "qsa" | "qsappend" => flags.query = Query::Append,
        "qsd" | "qsdiscard" => flags.query = Query::Discard,
        "qsl" | "qslast" => flags.splits_last = true,
        "r" | "redirect" => {
            flags.skips_pages = true;
            redirect(flags, value.unwrap_or_default())?;
        }
        "s" | "skip" => {
            flags.skip = usize::try_from(expression::number(needed()?)).unwrap_or(0);
        }
        "t" | "type" => flags.media_type = Some(Template::new(needed()?)),
        "unsafeallow3f" => flags.allows_question_mark = true,
        "unc" => flags.keeps_slashes = true,
        _ => return Err(format!("there is no flag {name}")),
    }
    Ok(())
}

fn status(flags: &mut Flags, status: u16) {
    flags.refusal = Some(status);
    flags.no_result = true;
}

fn redirect(flags: &mut Flags, value: &[u8]) -> Result<(), String> {
    let value = String::from_utf8_lossy(value).to_ascii_lowercase();
    let code = match value.as_str() {
        // Without a value it keeps what another flag has said.
        "" => flags.status.unwrap_or(302),
        "temp" => 302,
        "permanent" => 301,
        "seeother" => 303,
        digits => digits.parse().unwrap_or(0),
    };
    match code {
        300..=399 => {
            flags.redirect = true;
            flags.status = Some(code);
        }
        200..=599 => status(flags, code),
        _ => return Err(format!("there is no status {value}")),
    }
    Ok(())
}

/// The name of a flag in lower case, and its value.
type Flag = (String, Option<Vec<u8>>);

/// The flags in brackets.
fn split_flags(text: &[u8]) -> Result<Vec<Flag>, String> {
    let text = text.trim_ascii();
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let inner = text
        .strip_prefix(b"[")
        .and_then(|text| text.strip_suffix(b"]"));
    let mut rest = inner.ok_or("flags stand in [ ]")?;
    let mut flags = Vec::new();
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| matches!(byte, b',' | b'='));
        let name = rest
            .get(..end.unwrap_or(rest.len()))
            .unwrap_or_default()
            .trim_ascii();
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        let has_value = end.is_some_and(|end| rest.get(end) == Some(&b'='));
        rest = end.and_then(|end| rest.get(end + 1..)).unwrap_or_default();
        let mut value = None;
        if has_value {
            let (found, after) = flag_value(rest);
            value = Some(found);
            rest = after;
        }
        if !name.is_empty() {
            flags.push((name, value));
        }
    }
    Ok(flags)
}

/// A value, up to a comma or in quotes, and what follows it.
fn flag_value(rest: &[u8]) -> (Vec<u8>, &[u8]) {
    let rest = rest.trim_ascii_start();
    if let [quote @ (b'"' | b'\''), inner @ ..] = rest
        && let Some(end) = inner.iter().position(|byte| byte == quote)
    {
        let after = inner.get(end + 1..).unwrap_or_default();
        let comma = after.iter().position(|byte| *byte == b',');
        let after = comma
            .and_then(|comma| after.get(comma + 1..))
            .unwrap_or_default();
        return (inner.get(..end).unwrap_or_default().to_vec(), after);
    }
    let comma = rest.iter().position(|byte| *byte == b',');
    let (value, after) = rest.split_at(comma.unwrap_or(rest.len()));
    (
        value.trim_ascii().to_vec(),
        after.get(1..).unwrap_or_default(),
    )
}
