//! What an expression comes to, for a request.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;

use super::{Condition, Likeness, Word};
use crate::evaluation::FileKind;
use crate::glob::{self, Slashes};
use crate::request::Stop;
use crate::variable::Scope;
use crate::work::{LINE_STEPS, steps_of};

type Later<'e, T> = Pin<Box<dyn Future<Output = Result<T, Stop>> + 'e>>;

/// The longest text that an expression may come to.
const TEXT_BYTES_MAX: usize = 16 * 1024;

/// Whether an expression holds.
pub(crate) fn holds<'e>(condition: &'e Condition, scope: &'e Scope<'_>) -> Later<'e, bool> {
    Box::pin(async move {
        scope.asker.spend(LINE_STEPS)?;
        match condition {
            Condition::Always(value) => Ok(*value),
            Condition::Not(inner) => Ok(!holds(inner, scope).await?),
            Condition::All(parts) => every(parts, true, scope).await,
            Condition::Any(parts) => every(parts, false, scope).await,
            Condition::Unary(operator, word) => unary(*operator, word, scope).await,
            Condition::Texts(left, order, right) => {
                let (left, right) = (text(left, scope).await?, text(right, scope).await?);
                Ok(order.holds(left.cmp(&right)))
            }
            Condition::Numbers(left, order, right) => {
                let (left, right) = (text(left, scope).await?, text(right, scope).await?);
                Ok(order.holds(number(&left).cmp(&number(&right))))
            }
            Condition::Matches(word, pattern) => {
                let text = text(word, scope).await?;
                let groups = scope.matched(pattern, &text)?;
                let is_found = groups.is_some();
                // What was captured before stays where this captures nothing.
                if pattern.captures() {
                    scope.groups.replace(groups.unwrap_or_default());
                }
                Ok(is_found)
            }
            Condition::In(word, list) => {
                let wanted = text(word, scope).await?;
                for word in list {
                    if text(word, scope).await? == wanted {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Condition::Network(word, network) => {
                let text = text(word, scope).await?;
                let address = std::str::from_utf8(&text).ok();
                let address = address.and_then(|text| text.parse::<IpAddr>().ok());
                Ok(address.is_some_and(|address| network.contains(&address.to_canonical())))
            }
            Condition::Like(word, pattern, likeness) => {
                let (text, pattern) = (text(word, scope).await?, text(pattern, scope).await?);
                scope.asker.spend(1 + text.len() * pattern.len() / 8)?;
                Ok(match likeness {
                    Likeness::Exact => glob::matches(&pattern, &text, Slashes::Plain, false),
                    Likeness::Folded => glob::matches(&pattern, &text, Slashes::Plain, true),
                    Likeness::Path => glob::matches(&pattern, &text, Slashes::Apart, false),
                })
            }
        }
    })
}

/// Goes on while each is as the first ones were; whether all were.
async fn every(parts: &[Condition], wanted: bool, scope: &Scope<'_>) -> Result<bool, Stop> {
    for part in parts {
        if holds(part, scope).await? != wanted {
            return Ok(!wanted);
        }
    }
    Ok(wanted)
}

async fn unary(operator: u8, word: &Word, scope: &Scope<'_>) -> Result<bool, Stop> {
    let text = text(word, scope).await?;
    match operator {
        b'n' => return Ok(!text.is_empty()),
        b'z' => return Ok(text.is_empty()),
        b'T' => {
            let is_off = [&b""[..], b"0", b"off", b"no", b"false"];
            return Ok(!is_off.iter().any(|off| text.eq_ignore_ascii_case(off)));
        }
        _ => {}
    }
    let facts = scope.asker.file(&text).await?;
    Ok(match operator {
        b'd' => facts.kind == FileKind::Directory,
        b'e' => facts.kind != FileKind::Missing,
        b'f' => facts.kind == FileKind::Regular,
        b's' => facts.kind == FileKind::Regular && facts.bytes > 0,
        b'L' | b'h' => facts.is_link,
        b'x' => facts.is_executable,
        _ => false,
    })
}

/// The text a word comes to.
pub(crate) fn text<'e>(word: &'e Word, scope: &'e Scope<'_>) -> Later<'e, Vec<u8>> {
    Box::pin(async move {
        let text = match word {
            Word::Text(text) => text.clone(),
            Word::Variable(variable) => variable.value(scope)?,
            Word::Group(number) => scope.groups.borrow().get(usize::from(*number)).to_vec(),
            Word::Joined(words) => {
                let mut joined = Vec::new();
                for word in words {
                    joined.extend_from_slice(&text(word, scope).await?);
                    if joined.len() > TEXT_BYTES_MAX {
                        break;
                    }
                }
                joined
            }
            Word::Call(function, argument) => {
                let text = text(argument, scope).await?;
                scope.asker.spend(function.steps_of(text.len()))?;
                function.call(&text, scope)?
            }
        };
        scope.asker.spend(steps_of(text.len()))?;
        match text.len() <= TEXT_BYTES_MAX {
            true => Ok(text),
            false => Err(Stop::new(500, "htaccess_loop")),
        }
    })
}

/// The number at the begin of a text, as C reads it.
pub(crate) fn number(text: &[u8]) -> i64 {
    let text = text.trim_ascii_start();
    let (is_negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
    let value = digits.fold(0i64, |value, digit| {
        value
            .saturating_mul(10)
            .saturating_add(i64::from(digit - b'0'))
    });
    if is_negative { -value } else { value }
}
