//! A message as programs write it, and as a server is given it.
//!
//! The idea: nothing is copied but what is changed. The header is read to know whom it is for, `Bcc` and what claims to
//! be our stamp are left out, and what is missing (`Date`, `From`, `Message-ID`) is added. Every line ends with CR LF, and
//! nothing else is left that a server could take for the end of a line.

use std::io::{self, Write};

use jiff::Timestamp;

use super::{Cause, Unsent, address};

/// Fields of a header.
const FIELDS_MAX: usize = 1_000;
/// How a stamp's name begins.
const STAMP: &str = "X-Nagaya-";
/// Bytes of a line without its end: RFC 5321 has 998, and servers like to add some.
const LINE_BYTES_MAX: usize = 990;

/// A message.
#[derive(Debug)]
pub(super) struct Message<'a> {
    fields: Vec<Field<'a>>,
    body: &'a [u8],
    /// Whether a line with a dot alone ends it.
    ends_at_dot: bool,
}

/// A field of its header.
#[derive(Debug)]
struct Field<'a> {
    name: &'a str,
    /// All its lines, name and end of line with them.
    whole: &'a [u8],
}

/// The first line, its end with it, and what follows.
fn first_line(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b'\n');
    bytes.split_at(end.map_or(bytes.len(), |end| end + 1))
}

/// A line without its end.
fn content(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// The name of the field that begins with a line.
fn name_of(line: &[u8]) -> Option<&str> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let name = line.get(..colon)?.trim_ascii_end();
    let is_name = !name.is_empty() && name.iter().all(u8::is_ascii_graphic);
    std::str::from_utf8(name).ok().filter(|_| is_name)
}

impl<'a> Message<'a> {
    /// Reads its header.
    ///
    /// # Errors
    /// Where there is too much of it.
    pub(super) fn parse(bytes: &'a [u8], ends_at_dot: bool) -> Result<Message<'a>, Unsent> {
        let (first, after) = first_line(bytes);
        // As mailboxes have it.
        let mut rest = if first.starts_with(b"From ") {
            after
        } else {
            bytes
        };
        let mut fields = Vec::new();
        loop {
            let (line, after) = first_line(rest);
            if content(line).is_empty() {
                rest = after;
                break;
            }
            // A header without its end: the rest is the body.
            let Some(name) = name_of(line) else { break };
            let mut bytes = line.len();
            while let Some(b' ' | b'\t') = rest.get(bytes) {
                let following = rest.get(bytes..).unwrap_or_default();
                bytes += first_line(following).0.len();
            }
            let (whole, after) = rest.split_at(bytes);
            fields.push(Field { name, whole });
            if fields.len() > FIELDS_MAX {
                let why = format!("its header has more than {FIELDS_MAX} fields");
                return Err(Unsent::new(Cause::Data, why));
            }
            rest = after;
        }
        Ok(Message {
            fields,
            body: rest,
            ends_at_dot,
        })
    }

    /// Adds those that the header says it is for.
    ///
    /// # Errors
    /// What is no address.
    pub(super) fn recipients(&self, domain: &str, found: &mut Vec<String>) -> Result<(), Unsent> {
        for field in &self.fields {
            let is_one = |name: &&str| field.name.eq_ignore_ascii_case(name);
            if ["To", "Cc", "Bcc"].iter().any(is_one) {
                let text = String::from_utf8_lossy(field.whole);
                let value = text.split_once(':').map_or("", |(_, value)| value);
                // Folds are no letters of an address.
                let lines: Vec<_> = value.lines().collect();
                address::read(&lines.concat(), domain, found)?;
            }
        }
        Ok(())
    }

    /// The lines that come before its own: the stamps, and what it lacks.
    pub(super) fn header(
        &self,
        stamps: &[(&str, String)],
        (full_name, sender, domain): (Option<&str>, &str, &str),
    ) -> String {
        let now = Timestamp::now();
        let stamps = stamps.iter();
        let mut header: String = stamps
            .map(|(name, value)| format!("{STAMP}{name}: {value}\n"))
            .collect();
        let lacks = |name: &str| {
            let has = |field: &Field<'_>| field.name.eq_ignore_ascii_case(name);
            !self.fields.iter().any(has)
        };
        if lacks("Date")
            && let Ok(date) = jiff::fmt::rfc2822::to_string(&now.to_zoned(jiff::tz::TimeZone::UTC))
        {
            header.push_str(&format!("Date: {date}\n"));
        }
        if lacks("From") && !sender.is_empty() {
            let is_wrong = |letter: char| letter.is_control() || ['"', '\\'].contains(&letter);
            let name = full_name.unwrap_or_default().replace(is_wrong, "");
            header.push_str(&match name.is_empty() {
                true => format!("From: <{sender}>\n"),
                false => format!("From: \"{name}\" <{sender}>\n"),
            });
        }
        if lacks("Message-ID") {
            let (time, process) = (now.as_nanosecond(), std::process::id());
            header.push_str(&format!("Message-ID: <{time}.{process}@{domain}>\n"));
        }
        header
    }

    /// Writes it, `header` first, as it follows `DATA`.
    ///
    /// # Errors
    /// What writing comes to.
    pub(super) fn write(&self, header: &str, out: &mut impl Write) -> io::Result<()> {
        let kept = self.fields.iter().filter(|field| {
            let name = field.name.to_ascii_lowercase();
            let is_stamp = name.starts_with(&STAMP.to_ascii_lowercase());
            !is_stamp && !["bcc", "resent-bcc"].contains(&&*name)
        });
        let header = std::iter::once(header.as_bytes()).chain(kept.map(|field| field.whole));
        for lines in header {
            write_lines(lines, false, out)?;
        }
        out.write_all(b"\r\n")?;
        write_lines(self.body, self.ends_at_dot, out)?;
        out.write_all(b".\r\n")
    }
}

fn write_lines(mut rest: &[u8], ends_at_dot: bool, out: &mut impl Write) -> io::Result<()> {
    while !rest.is_empty() {
        let (line, after) = first_line(rest);
        let line = content(line);
        if ends_at_dot && line == b"." {
            break;
        }
        write_line(line, out)?;
        rest = after;
    }
    Ok(())
}

/// Writes a line so that it is one, whatever is in it; of one that is too long the rest is folded.
fn write_line(mut rest: &[u8], out: &mut impl Write) -> io::Result<()> {
    if rest.starts_with(b".") {
        out.write_all(b".")?;
    }
    loop {
        let (piece, after) = rest.split_at(end_of_piece(rest));
        for part in piece.split_inclusive(|byte| [b'\r', 0].contains(byte)) {
            match part.split_last() {
                Some((b'\r' | 0, before)) => {
                    out.write_all(before)?;
                    out.write_all(b" ")?;
                }
                _ => out.write_all(part)?,
            }
        }
        out.write_all(b"\r\n")?;
        if after.is_empty() {
            return Ok(());
        }
        out.write_all(b" ")?;
        rest = after;
    }
}

/// Where a line is cut; a letter of UTF-8 is not.
fn end_of_piece(line: &[u8]) -> usize {
    if line.len() <= LINE_BYTES_MAX {
        return line.len();
    }
    let is_begun = |at: &usize| line.get(*at).is_some_and(|byte| byte & 0xc0 == 0x80);
    let inside = (LINE_BYTES_MAX - 3..=LINE_BYTES_MAX).rev();
    let mut inside = inside.skip_while(is_begun);
    inside.next().unwrap_or(LINE_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(bytes: &[u8], header: &str) -> String {
        let mut out = Vec::new();
        let message = Message::parse(bytes, false).unwrap();
        message.write(header, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn dots_are_stuffed_and_every_line_ends_in_one_way() {
        let sent = written(b"Subject: x\r\nTo: a@b\n\n.\r\n..\n.a\rb\0c\n\nend", "");
        assert_eq!(
            sent,
            "Subject: x\r\nTo: a@b\r\n\r\n..\r\n...\r\n..a b c\r\n\r\nend\r\n.\r\n"
        );
    }

    #[test]
    fn the_stamp_is_ours_alone_and_nobody_sees_bcc() {
        let forged = b"X-NAGAYA-Site: a\nTo: a@b\nx-nagaya-tenant : b\n\tfolded\nX-Other: c\rX-Nagaya-Pool: d\nBcc: e@f,\n g@h\nResent-Bcc: i\n\nX-Nagaya-Site: j\n";
        let sent = written(forged, "X-Nagaya-Site: real\n");
        assert_eq!(
            sent,
            "X-Nagaya-Site: real\r\nTo: a@b\r\nX-Other: c X-Nagaya-Pool: d\r\n\r\nX-Nagaya-Site: j\r\n.\r\n"
        );
    }

    #[test]
    fn who_gets_it_stands_in_three_fields() {
        let bytes =
            b"to: a@b, \"c\n d\" <e@f>\nCC: g@h\nBcc: i@j\n\t,k@l\nReply-To: m@n\n\nTo: o@p\n";
        let mut found = Vec::new();
        let message = Message::parse(bytes, false).unwrap();
        message.recipients("here.test", &mut found).unwrap();
        assert_eq!(found, ["a@b", "e@f", "g@h", "i@j", "k@l"]);
    }

    #[test]
    fn what_is_missing_is_added_and_nothing_twice() {
        let message = Message::parse(b"hello\n", false).unwrap();
        assert_eq!(message.body, b"hello\n");
        let added = message.header(&[("Site", "a.test".into())], (Some("J\n\"D"), "u@h", "h"));
        let lines: Vec<_> = added
            .lines()
            .map(|it| it.split(' ').next().unwrap())
            .collect();
        assert_eq!(
            lines,
            ["X-Nagaya-Site:", "Date:", "From:", "Message-ID:"],
            "{added}"
        );
        assert!(added.contains("From: \"JD\" <u@h>\n"), "{added}");
        let whole = b"date: x\nFROM: y\nMessage-Id: z\n\n";
        let message = Message::parse(whole, false).unwrap();
        assert_eq!(message.header(&[], (None, "u@h", "h")), "");
    }

    #[test]
    fn a_dot_ends_it_only_where_that_was_asked_for() {
        let bytes = b"To: a@b\n\nx\n.\ny\n";
        let mut out = Vec::new();
        let message = Message::parse(bytes, true).unwrap();
        message.write("", &mut out).unwrap();
        assert!(out.ends_with(b"\r\nx\r\n.\r\n"));
        assert!(written(bytes, "").ends_with("\r\nx\r\n..\r\ny\r\n.\r\n"));
    }

    #[test]
    fn long_lines_are_folded_between_letters() {
        for letter in ["a", "é", "日", "𝄞"] {
            let sent = written(format!("\n{}\n", letter.repeat(2_000)).as_bytes(), "");
            assert!(sent.lines().all(|line| line.len() <= 998), "{letter}");
            let joined = sent.replace("\r\n ", "");
            assert_eq!(joined, format!("\r\n{}\r\n.\r\n", letter.repeat(2_000)));
        }
    }

    #[test]
    fn whatever_is_sent_only_its_end_looks_like_the_end() {
        let mut dice: u64 = 11;
        let mut roll = |sides: u64| {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            usize::try_from(dice % sides).unwrap()
        };
        let letters = b".\r\n\0 :aB";
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..roll(40)).map(|_| letters[roll(8)]).collect();
            let sent = written(&bytes, "");
            let body = sent.strip_suffix(".\r\n").unwrap();
            assert!(body.ends_with("\r\n"), "{bytes:?}");
            for line in body.split("\r\n") {
                assert!(
                    !line.contains(['\r', '\n', '\0']) && line != ".",
                    "{bytes:?}"
                );
            }
        }
    }
}
