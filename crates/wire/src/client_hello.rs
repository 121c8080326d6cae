//! The first message of TLS, as far as it must be known before anything costly is done for it.
//!
//! What a client says it wants (RFC 8446 §4.1.2, RFC 6066 §3, RFC 7301) is read here for the sake of choosing: whose
//! name, and so whose certificate and whose turn. It is read strictly and within caps, however it is divided into
//! records; whatever is doubtful is refused. It is no second judge: the handshake itself reads the same bytes again.

use crate::Authority;

/// Bytes of a hello. Those of browsers have some 2,000.
pub const HELLO_BYTES_MAX: usize = 16 * 1_024;
/// Records it may be divided into.
pub const HELLO_RECORDS_MAX: usize = 64;
/// Bytes of all records of a hello, their heads included: more need never be read to judge it.
pub const HELLO_RECEIVED_MAX: usize = HEAD + HELLO_BYTES_MAX + HELLO_RECORDS_MAX * RECORD_HEAD;

/// Bytes of a record (RFC 8446 §5.1).
const RECORD_BYTES_MAX: usize = 16 * 1_024;
const RECORD_HEAD: usize = 5;
/// What stands before a handshake message: its type and 24 bits of length.
const HEAD: usize = 4;
/// The record of handshake messages, and the message.
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
/// Versions and schemes that are kept: more are offered by nobody.
const OFFERED_MAX: usize = 32;
/// The only protocol of a client that validates for an authority (RFC 8737).
const ACME: &[u8] = b"acme-tls/1";

/// What the bytes that came so far are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// The begin of a hello.
    More,
    /// A hello, perhaps with more behind it.
    Hello(Box<ClientHello>),
    /// Nothing that a handshake can begin with, for this reason.
    Refused(&'static str),
}

/// What a client says it wants.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct ClientHello {
    /// Whom it wants to speak to, spelt as hosts are: lower case, no dot at the end. `None` where it does not say,
    /// or says an address.
    pub name: Option<Box<str>>,
    /// The versions it offers, in its order; numbers that nobody knows among them.
    pub offered: Vec<u16>,
    /// The schemes of signatures it understands, in its order.
    pub schemes: Vec<u16>,
    /// Whether it offers to go on with an earlier session.
    pub offers_resumption: bool,
    /// Whether it wants to see the answer to a challenge of ACME, and nothing else.
    pub is_acme: bool,
}

/// Reads what a connection began with: all bytes that came so far.
#[must_use]
pub fn read(received: &[u8]) -> Reading {
    match gather(received) {
        Ok(Some(message)) => match ClientHello::parse(&message) {
            Some(hello) => Reading::Hello(Box::new(hello)),
            None => Reading::Refused("bad_hello"),
        },
        Ok(None) => Reading::More,
        Err(reason) => Reading::Refused(reason),
    }
}

/// The hello's bytes without those of records; `None` while some are to come. Nothing is copied before.
fn gather(received: &[u8]) -> Result<Option<Vec<u8>>, &'static str> {
    let mut head = Vec::with_capacity(HEAD);
    let (mut rest, mut count) = (received, 0);
    for _ in 0..HELLO_RECORDS_MAX {
        let Some((payload, after)) = record(rest)? else {
            return Ok(None);
        };
        let missing = HEAD - head.len();
        head.extend_from_slice(payload.get(..missing).unwrap_or(payload));
        count += payload.len();
        rest = after;
        let &[kind, high, middle, low] = head.as_slice() else {
            continue;
        };
        let bytes = u32::from_be_bytes([0, high, middle, low]) as usize;
        match kind {
            CLIENT_HELLO if bytes > HELLO_BYTES_MAX => return Err("hello_too_large"),
            CLIENT_HELLO if count >= HEAD + bytes => return Ok(Some(copy(received, bytes))),
            CLIENT_HELLO => {}
            _ => return Err("bad_hello"),
        }
    }
    // The last record may still be on its way.
    match rest {
        [] => Ok(None),
        _ => Err("hello_too_large"),
    }
}

/// The payload of a record, as far as it came, and what follows it.
type Record<'a> = (&'a [u8], &'a [u8]);

/// The first record; `None` where not even its head came.
fn record(bytes: &[u8]) -> Result<Option<Record<'_>>, &'static str> {
    // Each byte is looked at as soon as it comes, so that nobody waits for what will not be a record.
    match bytes {
        [] => return Ok(None),
        [HANDSHAKE] | [HANDSHAKE, 3] | [HANDSHAKE, 3, ..] => {}
        [first, ..] if first.is_ascii_uppercase() => return Err("plain_http"),
        _ => return Err("bad_hello"),
    }
    let Some((&[_, _, _, high, low], rest)) = bytes.split_first_chunk::<RECORD_HEAD>() else {
        return Ok(None);
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length == 0 || length > RECORD_BYTES_MAX {
        return Err("bad_hello");
    }
    let (payload, rest) = rest.split_at_checked(length).unwrap_or((rest, &[]));
    Ok(Some((payload, rest)))
}

/// The message's body, of so many bytes that are known to be there.
fn copy(received: &[u8], bytes: usize) -> Vec<u8> {
    let mut message = Vec::with_capacity(HEAD + bytes);
    let mut rest = received;
    while let Ok(Some((payload, after))) = record(rest)
        && message.len() < HEAD + bytes
    {
        let missing = HEAD + bytes - message.len();
        message.extend_from_slice(payload.get(..missing).unwrap_or(payload));
        rest = after;
    }
    message.drain(..HEAD.min(message.len()));
    message
}

impl ClientHello {
    fn parse(body: &[u8]) -> Option<Self> {
        let mut body = Bytes(body);
        let legacy_version = body.number()?;
        body.take(32)?;
        let session = body.short_list()?;
        let suites = body.list()?;
        let compressions = body.short_list()?;
        let is_sound = session.0.len() <= 32
            && !suites.0.is_empty()
            && suites.0.len().is_multiple_of(2)
            && !compressions.0.is_empty();
        if !is_sound {
            return None;
        }
        let mut hello = Self::default();
        let mut seen = Vec::new();
        if !body.0.is_empty() {
            let mut extensions = body.list()?;
            while !extensions.0.is_empty() {
                let kind = extensions.number()?;
                let extension = extensions.list()?;
                if is_read(kind) {
                    if seen.contains(&kind) {
                        return None;
                    }
                    seen.push(kind);
                    hello.extend(kind, extension)?;
                }
            }
        }
        if hello.offered.is_empty() {
            hello.offered.push(legacy_version);
        }
        body.0.is_empty().then_some(hello)
    }

    fn extend(&mut self, kind: u16, mut extension: Bytes<'_>) -> Option<()> {
        match kind {
            SERVER_NAME => self.name = extension.list()?.server_name()?,
            SIGNATURE_ALGORITHMS => self.schemes = extension.list()?.numbers()?,
            ALPN => {
                let mut protocols = extension.list()?;
                self.is_acme = protocols.short_list()?.0 == ACME && protocols.0.is_empty();
                while !protocols.0.is_empty() {
                    protocols.short_list()?;
                }
            }
            SUPPORTED_VERSIONS => self.offered = extension.short_list()?.numbers()?,
            SESSION_TICKET => {
                self.offers_resumption |= !extension.0.is_empty();
                extension.0 = &[];
            }
            PRE_SHARED_KEY => {
                self.offers_resumption = true;
                extension.0 = &[];
            }
            _ => {}
        }
        extension.0.is_empty().then_some(())
    }
}

/// Extensions by their registered numbers.
const SERVER_NAME: u16 = 0;
const SIGNATURE_ALGORITHMS: u16 = 13;
const ALPN: u16 = 16;
const SESSION_TICKET: u16 = 35;
const PRE_SHARED_KEY: u16 = 41;
const SUPPORTED_VERSIONS: u16 = 43;

fn is_read(kind: u16) -> bool {
    matches!(
        kind,
        SERVER_NAME
            | SIGNATURE_ALGORITHMS
            | ALPN
            | SESSION_TICKET
            | PRE_SHARED_KEY
            | SUPPORTED_VERSIONS
    )
}

/// Bytes that are taken from the front.
#[derive(Debug, Clone, Copy)]
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Option<Bytes<'a>> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(Bytes(taken))
    }

    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    fn number(&mut self) -> Option<u16> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u16::from_be_bytes(*bytes))
    }

    /// What a length of one byte stands before.
    fn short_list(&mut self) -> Option<Bytes<'a>> {
        let count = self.byte()?;
        self.take(usize::from(count))
    }

    /// What a length of two bytes stands before.
    fn list(&mut self) -> Option<Bytes<'a>> {
        let count = self.number()?;
        self.take(usize::from(count))
    }

    /// All of it as numbers, of which only so many are kept.
    fn numbers(mut self) -> Option<Vec<u16>> {
        let mut numbers = Vec::new();
        while !self.0.is_empty() {
            let number = self.number()?;
            if numbers.len() < OFFERED_MAX {
                numbers.push(number);
            }
        }
        Some(numbers)
    }

    /// The host of a list of names (RFC 6066 §3): there is one, and it is a name.
    fn server_name(mut self) -> Option<Option<Box<str>>> {
        const HOST_NAME: u8 = 0;
        let (kind, name) = (self.byte()?, self.list()?);
        if kind != HOST_NAME || !self.0.is_empty() || name.0.contains(&b':') {
            return None;
        }
        let mut host = Authority::default();
        host.parse(name.0).ok()?;
        let host = host.host();
        let is_address = host.parse::<std::net::Ipv4Addr>().is_ok();
        Some((!is_address).then(|| host.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(bytes: &[u8]) -> Vec<u8> {
        [
            &u16::try_from(bytes.len()).unwrap().to_be_bytes()[..],
            bytes,
        ]
        .concat()
    }

    fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
        [&kind.to_be_bytes()[..], &list(content)].concat()
    }

    fn name(host: &str) -> Vec<u8> {
        let entry = [&[0][..], &list(host.as_bytes())].concat();
        extension(SERVER_NAME, &list(&entry))
    }

    fn message(extensions: &[u8]) -> Vec<u8> {
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.push(32);
        body.extend([9; 32]);
        body.extend(list(&[0x13, 0x01, 0x13, 0x02]));
        body.extend([1, 0]);
        body.extend(list(extensions));
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        [&[CLIENT_HELLO][..], &length[1..], &body].concat()
    }

    /// In records of so many bytes.
    fn records(message: &[u8], bytes: usize) -> Vec<u8> {
        let record = |part: &[u8]| [&[HANDSHAKE, 3, 1][..], &list(part)].concat();
        message.chunks(bytes).flat_map(record).collect()
    }

    fn usual() -> Vec<u8> {
        let versions = extension(SUPPORTED_VERSIONS, &[6, 0x7a, 0x7a, 3, 4, 3, 3]);
        let schemes = extension(SIGNATURE_ALGORITHMS, &list(&[4, 3, 8, 4]));
        let grease = extension(0x1a1a, &[]);
        message(&[grease, name("Example.JP."), schemes, versions].concat())
    }

    fn hello(received: &[u8]) -> ClientHello {
        match read(received) {
            Reading::Hello(hello) => *hello,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_a_client_wants_is_read_however_it_is_divided() {
        let message = usual();
        let expected = ClientHello {
            name: Some("example.jp".into()),
            offered: vec![0x7a7a, 0x0304, 0x0303],
            schemes: vec![0x0403, 0x0804],
            ..ClientHello::default()
        };
        for bytes in [3, 5, 50, 16_000] {
            let received = records(&message, bytes);
            assert_eq!(hello(&received), expected, "records of {bytes}");
            for end in 0..received.len() {
                assert_eq!(read(&received[..end]), Reading::More, "{end} of {bytes}");
            }
            let behind = [&received[..], b"anything"].concat();
            assert_eq!(hello(&behind), expected);
        }
    }

    #[test]
    fn tickets_keys_and_challenges_are_seen() {
        let of = |extensions: &[Vec<u8>]| hello(&records(&message(&extensions.concat()), 9_999));
        let alpn = |protocols: &[&str]| {
            let each = |it: &&str| [&[it.len() as u8][..], it.as_bytes()].concat();
            extension(
                ALPN,
                &list(&protocols.iter().flat_map(each).collect::<Vec<_>>()),
            )
        };
        assert!(!of(&[]).offers_resumption);
        assert!(!of(&[extension(SESSION_TICKET, &[])]).offers_resumption);
        assert!(of(&[extension(SESSION_TICKET, &[1])]).offers_resumption);
        assert!(of(&[extension(PRE_SHARED_KEY, &[0; 40])]).offers_resumption);
        assert!(of(&[alpn(&["acme-tls/1"])]).is_acme);
        assert!(!of(&[alpn(&["acme-tls/1", "h2"])]).is_acme);
        assert!(!of(&[alpn(&["h2", "http/1.1"])]).is_acme);
        assert_eq!(of(&[name("192.0.2.1")]).name, None);
        assert_eq!(of(&[]).offered, [0x0303], "as the old field says");
    }

    #[test]
    fn what_is_no_hello_is_refused_at_its_first_byte_that_tells() {
        let shift = |at: usize, byte: u8| {
            let mut received = records(&usual(), 9_999);
            received[at] = byte;
            received
        };
        let twice = message(&[name("a.jp"), name("b.jp")].concat());
        let two_names = {
            let entry = [&[0][..], &list(b"a.jp")].concat();
            extension(SERVER_NAME, &list(&[entry.clone(), entry].concat()))
        };
        for (received, reason) in [
            (b"GET / HTTP/1.1\r\n".to_vec(), "plain_http"),
            (b"P".to_vec(), "plain_http"),
            (vec![0x16, 2], "bad_hello"),
            (vec![0x80, 0x2e], "bad_hello"),
            (b"\x15\x03\x01\x00\x02\x02\x28".to_vec(), "bad_hello"),
            (vec![22, 3, 1, 0, 0], "bad_hello"),
            (vec![22, 3, 1, 0x40, 1], "bad_hello"),
            (vec![22, 3, 1, 0, 9, 2, 0, 0, 5], "bad_hello"),
            (vec![22, 3, 1, 0, 9, 1, 0, 0x40, 1], "hello_too_large"),
            (vec![22, 3, 1, 0, 9, 1, 0xff, 0, 0], "hello_too_large"),
            (records(&usual(), 1), "hello_too_large"),
            (records(&twice, 9_999), "bad_hello"),
            (records(&message(&two_names), 9_999), "bad_hello"),
            (records(&message(&name("a b")), 9_999), "bad_hello"),
            (records(&message(&name("a:443")), 9_999), "bad_hello"),
            (records(&message(&name("")), 9_999), "bad_hello"),
            (
                records(&message(&name(&"a.".repeat(130))), 9_999),
                "bad_hello",
            ),
            // Lengths that lie: of the session, of the suites, of the extensions.
            (shift(5 + 4 + 34, 33), "bad_hello"),
            (shift(5 + 4 + 34 + 33 + 1, 3), "bad_hello"),
            (shift(5 + 4 + 34 + 33 + 6 + 2, 0xff), "bad_hello"),
        ] {
            assert_eq!(read(&received), Reading::Refused(reason), "{received:02x?}");
        }
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_read_or_refused_and_never_a_panic() {
        let sound = records(&usual(), 60);
        for at in 0..sound.len() {
            for value in [0, 1, 0x16, 0x7f, 0x80, 0xff] {
                let mut bytes = sound.clone();
                bytes[at] = value;
                let _ = read(&bytes);
                let _ = read(&bytes[..at]);
            }
        }
    }

    #[test]
    fn the_largest_hello_fits_into_what_is_read_at_most() {
        let room = HELLO_BYTES_MAX - (2 + 32 + 33 + 6 + 2 + 2) - 4;
        let message = message(&extension(21, &vec![0; room]));
        assert_eq!(message.len(), HEAD + HELLO_BYTES_MAX);
        let received = records(&message, message.len().div_ceil(HELLO_RECORDS_MAX));
        assert!(received.len() <= HELLO_RECEIVED_MAX);
        assert_eq!(hello(&received).name, None);
        // Its last record may come in pieces, too.
        assert_eq!(read(&received[..received.len() - 1]), Reading::More);
    }
}
