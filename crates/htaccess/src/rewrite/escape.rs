//! Bytes of paths and queries, escaped as Apache escapes them.

/// Schemes of absolute URLs, and whether those have queries.
const SCHEMES: [(&str, bool); 18] = [
    ("ajp://", true),
    ("balancer://", true),
    ("fcgi://", true),
    ("ftp://", false),
    ("gopher://", false),
    ("h2://", true),
    ("h2c://", true),
    ("http://", true),
    ("https://", true),
    ("ldap://", false),
    ("mailto:", true),
    ("news:", false),
    ("nntp://", false),
    ("scgi://", true),
    ("unix://", true),
    ("unix:", true),
    ("ws://", true),
    ("wss://", true),
];

/// The length of the scheme of an absolute URL, and whether such have queries.
pub(crate) fn is_absolute(uri: &[u8]) -> Option<(usize, bool)> {
    let found = SCHEMES.iter().find(|(scheme, _)| {
        uri.len() > 5
            && uri
                .get(..scheme.len())
                .is_some_and(|begin| begin.eq_ignore_ascii_case(scheme.as_bytes()))
    });
    found.map(|(scheme, has_query)| (scheme.len(), *has_query))
}

/// A path, with everything escaped that does not stand in one.
pub(crate) fn escape_path(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    for byte in path {
        if byte.is_ascii_alphanumeric() || b"$-_.+!*'(),:;@&=/~".contains(byte) {
            out.push(*byte);
        } else {
            percent(*byte, &mut out);
        }
    }
    out
}

/// A URL, with the path escaped that follows its host.
pub(crate) fn escape_url(url: &[u8], scheme: usize) -> Vec<u8> {
    let has_authority = scheme > 0 && url.get(scheme - 1) == Some(&b'/');
    let path = match has_authority {
        true => {
            let rest = url.get(scheme..).unwrap_or_default();
            let slash = rest.iter().position(|byte| *byte == b'/');
            slash.map_or(url.len(), |slash| scheme + slash + 1)
        }
        false => scheme,
    };
    let (begin, rest) = url.split_at(path.min(url.len()));
    [begin, &escape_path(rest)].concat()
}

/// Percent signs and what follows them as bytes; none where that is no byte.
pub(crate) fn unescaped(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    loop {
        match rest {
            [] => return Some(out),
            [b'%', high, low, after @ ..] => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let byte = digit(*high)? * 16 + digit(*low)?;
                out.push(u8::try_from(byte).ok().filter(|byte| *byte != 0)?);
                rest = after;
            }
            [b'%', ..] => return None,
            [byte, after @ ..] => {
                out.push(*byte);
                rest = after;
            }
        }
    }
}

/// Whether a slash or a NUL is escaped in a path, for which nobody may ask.
pub(super) fn hides_separators(path: &[u8]) -> bool {
    path.windows(3)
        .any(|it| it.eq_ignore_ascii_case(b"%2f") || it == b"%00")
}

pub(super) fn percent(byte: u8, out: &mut Vec<u8>) {
    let digits = b"0123456789abcdef";
    out.push(b'%');
    out.extend(digits.get(usize::from(byte >> 4)));
    out.extend(digits.get(usize::from(byte & 15)));
}

/// Whether a text has a blank or a control byte in it.
pub(super) fn has_blanks(text: &[u8]) -> bool {
    text.iter().any(|byte| *byte <= b' ' || *byte == 127)
}
