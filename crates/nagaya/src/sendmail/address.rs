//! Addresses of mail, as people write them.
//!
//! The idea: what is found goes into a command to the server, so it is looked at as what it is: a
//! text that may want to be another command. Names, comments and groups around it are left out.

use super::{Cause, Unsent, shown};

/// Bytes of an address.
const ADDRESS_BYTES_MAX: usize = 320;

/// The one address in a text, with a domain.
///
/// # Errors
/// Where it is none, or more than one.
pub(super) fn one(text: &str, domain: &str) -> Result<String, Unsent> {
    let mut found = Vec::new();
    read(text, domain, &mut found)?;
    match <[String; 1]>::try_from(found) {
        Ok([one]) => Ok(one),
        Err(_) => Err(wrong(text)),
    }
}

/// Adds the addresses of a list (RFC 5322, 3.4) that are not there yet, each with a domain.
///
/// # Errors
/// Which of them is none.
pub(super) fn read(text: &str, domain: &str, found: &mut Vec<String>) -> Result<(), Unsent> {
    for entry in entries(text) {
        let entry = checked(&entry, domain).ok_or_else(|| wrong(&entry))?;
        if !found.contains(&entry) {
            found.push(entry);
        }
    }
    Ok(())
}

fn wrong(text: &str) -> Unsent {
    Unsent::new(Cause::Data, format!("`{}` is no address", shown(text)))
}

/// An entry of a list while it is read.
#[derive(Default)]
struct Listed {
    /// What stands outside of angle brackets: the address, or a name.
    plain: String,
    angle: Option<String>,
}

impl Listed {
    /// Its address; the entry is empty afterwards.
    fn take(&mut self) -> Option<String> {
        let Listed { plain, angle } = std::mem::take(self);
        let is_named = angle.is_some();
        let address = angle.unwrap_or(plain).trim().to_owned();
        (is_named || !address.is_empty()).then_some(address)
    }
}

/// What stands between commas, without names, comments and groups.
fn entries(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut entry = Listed::default();
    let (mut is_quoted, mut is_literal, mut is_angle, mut comments) = (false, false, false, 0_u32);
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        let is_open = !is_quoted && !is_literal;
        match letter {
            '\\' if comments > 0 => drop(letters.next()),
            '(' if is_open => comments += 1,
            ')' if comments > 0 => comments -= 1,
            _ if comments > 0 => {}
            '<' if is_open && entry.angle.is_none() => {
                is_angle = true;
                entry.angle = Some(String::new());
            }
            '>' if is_open => is_angle = false,
            ',' | ';' if is_open && !is_angle => found.extend(entry.take()),
            ':' if is_open && !is_angle => entry.plain.clear(),
            letter => {
                is_quoted ^= letter == '"' && !is_literal;
                is_literal = !is_quoted && (letter == '[' || is_literal && letter != ']');
                // A second one of those is one too many.
                let is_wrong = letter == '<' && is_open;
                let place = match &mut entry.angle {
                    Some(angle) if is_angle || is_wrong => angle,
                    _ => &mut entry.plain,
                };
                place.push(letter);
                if letter == '\\' && is_quoted {
                    place.extend(letters.next());
                }
            }
        }
    }
    found.extend(entry.take());
    found
}

/// An address that can be nothing else, with a domain.
fn checked(text: &str, domain: &str) -> Option<String> {
    let (local, own) = text.rsplit_once('@').unwrap_or((text, domain));
    let is_quoted = local.len() > 1 && local.starts_with('"') && local.ends_with('"');
    let is_wrong = |letter: char| {
        letter.is_control() || ['<', '>', char::REPLACEMENT_CHARACTER].contains(&letter)
    };
    let is_space = char::is_whitespace;
    let is_sound = !local.is_empty()
        && !own.is_empty()
        && !text.contains(is_wrong)
        && !own.contains(is_space)
        && (is_quoted || !local.contains(is_space))
        && text.len() + domain.len() < ADDRESS_BYTES_MAX;
    is_sound.then(|| format!("{local}@{own}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Result<Vec<String>, String> {
        let mut found = Vec::new();
        match read(text, "here.test", &mut found) {
            Ok(()) => Ok(found),
            Err(failure) => Err(failure.why),
        }
    }

    #[test]
    fn addresses_are_found_as_people_write_them() {
        for (text, expected) in [
            ("a@b.test", &["a@b.test"][..]),
            ("a@b.test, c@d.test,", &["a@b.test", "c@d.test"]),
            ("\"Doe, J. <x@y>\" <a@b.test>", &["a@b.test"]),
            ("J (of, <us> (and \\) them)) <a@b.test>(x)", &["a@b.test"]),
            ("undisclosed-recipients:;", &[]),
            (
                "us: a@b.test, c@d.test; e@f.test",
                &["a@b.test", "c@d.test", "e@f.test"],
            ),
            ("\"a \\\" , b\"@c.test", &["\"a \\\" , b\"@c.test"]),
            ("a@[IPv6:::1]", &["a@[IPv6:::1]"]),
            ("root", &["root@here.test"]),
            ("a@b.test, <a@b.test>", &["a@b.test"]),
            ("=?utf-8?q?M=C3=BC?= <m@b.test>", &["m@b.test"]),
            ("mü@b.test", &["mü@b.test"]),
            ("", &[]),
        ] {
            assert_eq!(found(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn what_could_be_a_command_is_no_address() {
        for text in [
            "a@b.test> SIZE=1",
            "a@b.test\r\nDATA",
            "<a@b.test> <c@d.test>",
            "<a@b.test\r\nRCPT TO:<c@d.test>>",
            "\"a\nb\"@c.test",
            "a b@c.test",
            "a@b c.test",
            "<>",
            "@b.test",
            "a@",
            "<a@b.test",
            "a\u{fffd}@b.test",
            "a\0@b.test",
        ] {
            match found(text) {
                Err(why) => assert!(why.ends_with("is no address"), "{text:?}: {why}"),
                Ok(found) => {
                    let is_plain = |it: &String| it.bytes().all(|byte| byte.is_ascii_graphic());
                    let is_sound = found.iter().all(is_plain) && found == ["a@b.test"];
                    assert!(is_sound, "{text:?}: {found:?}");
                }
            }
        }
        assert!(found(&format!("{}@b.test", "a".repeat(400))).is_err());
        assert!(one("a@b.test, c@d.test", "here.test").is_err());
    }
}
