//! Host and port of a request, in one canonical spelling.
//!
//! Two spellings of a host must never be two sites: case, a trailing dot, an empty port and the
//! many spellings of an IPv6 address go away here, once. Names are ASCII letters, digits, `-`, `_`
//! and dots; anything else a URI could carry (userinfo, escapes, sub-delimiters) is refused.
//! It does not judge whether a name exists or who serves it.

use std::{fmt::Write as _, net::Ipv6Addr};

use crate::{framing::decimal, refusal::Refusal};

/// Longest host name of the DNS.
const NAME_BYTES_MAX: usize = 253;
/// Longest label of a name.
const LABEL_BYTES_MAX: usize = 63;
/// Longest spelling of a port.
const PORT_DIGITS_MAX: usize = 5;

/// A canonical `host[:port]`. Its memory is reused from request to request, and so is its work:
/// on a connection the same host comes again and again.
#[derive(Debug, Clone, Default)]
pub struct Authority {
    /// What the text was read from; empty if there is none.
    raw: Vec<u8>,
    text: String,
    host_bytes: usize,
    /// Whether the text is this request's, not kept from the one before.
    current: bool,
}

impl Authority {
    /// Reads `host[:port]` as a `Host` field or an absolute target has it. Empty when refused.
    pub fn parse(&mut self, raw: &[u8]) -> Result<(), Refusal> {
        self.retire();
        if self.raw != raw || raw.is_empty() {
            self.raw.clear();
            self.text.clear();
            self.read(raw)?;
            self.raw.extend_from_slice(raw);
        }
        self.current = true;
        Ok(())
    }

    /// Is empty until [`Authority::parse`] says otherwise.
    pub fn retire(&mut self) {
        self.current = false;
    }

    /// The host: lower case, no port, no trailing dot; an IPv6 address in brackets.
    pub fn host(&self) -> &str {
        self.as_str().get(..self.host_bytes).unwrap_or_default()
    }

    /// The host, and the port if one was given.
    pub fn as_str(&self) -> &str {
        if self.current { &self.text } else { "" }
    }

    fn read(&mut self, raw: &[u8]) -> Result<(), Refusal> {
        let rest = match raw.strip_prefix(b"[") {
            Some(literal) => self.read_address(literal)?,
            None => self.read_name(raw)?,
        };
        self.host_bytes = self.text.len();
        match rest {
            [] => Ok(()),
            [b':', digits @ ..] => self.read_port(digits),
            _ => Err(Refusal::bad("bad_host")),
        }
    }

    /// Reads a name or IPv4 address and returns what follows.
    fn read_name<'a>(&mut self, raw: &'a [u8]) -> Result<&'a [u8], Refusal> {
        let refusal = Refusal::bad("bad_host");
        let mut label = 0;
        let mut end = raw.len();
        for (index, &byte) in raw.iter().enumerate() {
            match NAME_BYTE[byte as usize] {
                NameByte::Label if label < LABEL_BYTES_MAX => label += 1,
                NameByte::Dot if label > 0 => label = 0,
                NameByte::Colon => {
                    end = index;
                    break;
                }
                _ => return Err(refusal),
            }
        }
        let (name, rest) = raw.split_at_checked(end).ok_or(refusal)?;
        let name = name.strip_suffix(b".").unwrap_or(name);
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(refusal);
        }
        self.text
            .push_str(str::from_utf8(name).map_err(|_| refusal)?);
        self.text.make_ascii_lowercase();
        Ok(rest)
    }

    /// Reads the rest of a bracketed IPv6 address and returns what follows.
    fn read_address<'a>(&mut self, literal: &'a [u8]) -> Result<&'a [u8], Refusal> {
        let refusal = Refusal::bad("bad_host");
        let end = literal
            .iter()
            .position(|&byte| byte == b']')
            .ok_or(refusal)?;
        let (address, rest) = literal.split_at(end);
        let address = str::from_utf8(address).map_err(|_| refusal)?;
        let address: Ipv6Addr = address.parse().map_err(|_| refusal)?;
        write!(self.text, "[{address}]").map_err(|_| refusal)?;
        Ok(rest.get(1..).unwrap_or_default())
    }

    /// Reads a port; an empty one means none.
    fn read_port(&mut self, digits: &[u8]) -> Result<(), Refusal> {
        if digits.is_empty() {
            return Ok(());
        }
        let refusal = Refusal::bad("bad_port");
        if digits.len() > PORT_DIGITS_MAX {
            return Err(refusal);
        }
        let number = decimal(digits).ok_or(refusal)?;
        if !(1..=65_535).contains(&number) {
            return Err(refusal);
        }
        let zeros = digits.iter().take_while(|&&digit| digit == b'0').count();
        let digits = digits.get(zeros..).unwrap_or_default();
        self.text.push(':');
        self.text
            .push_str(str::from_utf8(digits).map_err(|_| refusal)?);
        Ok(())
    }
}

/// What a byte is to a name.
#[derive(Clone, Copy)]
enum NameByte {
    Label,
    Dot,
    Colon,
    Never,
}

static NAME_BYTE: [NameByte; 256] = name_table();

const fn name_table() -> [NameByte; 256] {
    let mut table = [NameByte::Never; 256];
    let mut byte = 0;
    while byte < 128 {
        table[byte] = match byte as u8 {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => NameByte::Label,
            b'.' => NameByte::Dot,
            b':' => NameByte::Colon,
            _ => NameByte::Never,
        };
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_host_become_one() {
        for (raw, host, text) in [
            ("example.jp", "example.jp", "example.jp"),
            ("EXAMPLE.jp", "example.jp", "example.jp"),
            ("example.jp.", "example.jp", "example.jp"),
            ("example.jp:", "example.jp", "example.jp"),
            ("Example.JP.:8080", "example.jp", "example.jp:8080"),
            ("example.jp:00080", "example.jp", "example.jp:80"),
            ("a_b-c.example", "a_b-c.example", "a_b-c.example"),
            ("127.0.0.1:65535", "127.0.0.1", "127.0.0.1:65535"),
            ("[::1]", "[::1]", "[::1]"),
            ("[0:0:0:0:0:0:0:1]:80", "[::1]", "[::1]:80"),
            ("[2001:DB8::00ff]:1", "[2001:db8::ff]", "[2001:db8::ff]:1"),
        ] {
            let mut authority = Authority::default();
            assert_eq!(authority.parse(raw.as_bytes()), Ok(()), "{raw}");
            assert_eq!(
                (authority.host(), authority.as_str()),
                (host, text),
                "{raw}"
            );
            let again = authority.as_str().to_owned();
            assert_eq!(authority.parse(again.as_bytes()), Ok(()), "{raw}");
            assert_eq!(authority.as_str(), again, "{raw}: not canonical");
        }
    }

    #[test]
    fn what_is_no_host_is_refused() {
        let long_label = "a".repeat(64);
        let long_name = format!("{}a", "a.".repeat(127));
        let refused = [
            "",
            ".",
            ":80",
            "a..b",
            ".a",
            "a.:b",
            "a b",
            "a,b",
            "a/b",
            "user@a",
            "a@",
            "a%2eb",
            "a?b",
            "a#b",
            "*",
            "é",
            "a\\b",
            "[::1",
            "::1",
            "[]",
            "[::1]x",
            "[::1]80",
            "[fe80::1%25eth0]",
            "[v1.a]",
            "[1.2.3.4]",
            "a:0",
            "a:65536",
            "a:+1",
            "a:-1",
            "a:0x50",
            "a:8 0",
            "a:80:80",
            "a:000080",
            &long_label,
            &long_name,
            "a;b",
            "a=b",
            "a\0",
        ];
        for raw in refused {
            let mut authority = Authority::default();
            let refusal = authority.parse(raw.as_bytes()).expect_err(raw);
            assert_eq!(refusal.status, 400, "{raw}");
            assert_eq!((authority.host(), authority.as_str()), ("", ""), "{raw}");
        }
    }
}
