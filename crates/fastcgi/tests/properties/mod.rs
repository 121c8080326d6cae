//! What holds for any bytes, for the property tests and the fuzz targets.

use fastcgi::record::{Decoder, Event};
use fastcgi::reply::{HeadCaps, ReplyHead};
use wire::{field_name_ok, field_value_ok};

/// What a reply came to: bytes of each stream, how it ended, bytes used.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) end: Option<(u32, String)>,
    pub(crate) used: usize,
    pub(crate) refused: Option<&'static str>,
}

/// Reads a reply that arrives in pieces.
pub(crate) fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Read {
    let (mut decoder, mut read) = (Decoder::default(), Read::default());
    for piece in pieces {
        let mut at = 0;
        while at < piece.len() && !decoder.is_over() {
            let decoded = match decoder.decode(&piece[at..]) {
                Ok(decoded) => decoded,
                Err(refusal) => {
                    assert_eq!(refusal.status, 502);
                    // How far it got within the piece is not told.
                    read.used = 0;
                    read.refused = Some(refusal.reason);
                    return read;
                }
            };
            assert!(decoded.consumed > 0, "progress");
            at += decoded.consumed;
            assert!(at <= piece.len());
            match decoded.event {
                Event::Stdout(data) => read.stdout.extend_from_slice(data),
                Event::Stderr(data) => read.stderr.extend_from_slice(data),
                Event::End(end) => {
                    read.end = Some((end.application, format!("{:?}", end.protocol)));
                }
                Event::More => assert!(at == piece.len() || decoder.is_over()),
            }
        }
        read.used += at;
    }
    read
}

/// Records of a responder: the same, in whatever pieces they come.
pub(crate) fn fastcgi_records(bytes: &[u8]) {
    let whole = read(std::iter::once(bytes));
    assert_eq!(whole, read(bytes.chunks(1)), "byte by byte");
    assert_eq!(whole, read(bytes.chunks(7)), "by seven");
    if let Ok(Some(stdout_bytes)) = Decoder::default().rest_of(bytes) {
        assert_eq!(stdout_bytes, whole.stdout.len());
        assert!(whole.end.is_some());
    }
    assert!(whole.stdout.len() + whole.stderr.len() <= bytes.len());
}

/// Heads of programs: what is taken can be sent to a client, and splits make no difference.
pub(crate) fn cgi_head(bytes: &[u8]) {
    let whole = head(bytes.chunks(bytes.len().max(1)));
    assert_eq!(whole, head(bytes.chunks(1)), "byte by byte");
    let middle = bytes.split_at(bytes.len() / 2);
    assert_eq!(whole, head([middle.0, middle.1].into_iter()));
    let Ok((status, fields, used)) = whole else {
        return;
    };
    assert!((200..600).contains(&status));
    assert!(used <= bytes.len());
    for (name, value) in fields {
        assert!(field_name_ok(&name) && field_value_ok(&value));
        assert!(!name.eq_ignore_ascii_case(b"Content-Length"));
        assert!(!name.eq_ignore_ascii_case(b"Transfer-Encoding"));
        assert!(!name.eq_ignore_ascii_case(b"Connection"));
        assert!(!name.eq_ignore_ascii_case(b"Status"));
    }
}

type Head = (u16, Vec<(Vec<u8>, Vec<u8>)>, usize);

fn head<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Result<Head, &'static str> {
    let caps = HeadCaps {
        head_bytes: 512,
        fields: 16,
    };
    let (mut head, mut used) = (ReplyHead::new(caps), 0);
    for piece in pieces {
        let taken = head.read(piece).map_err(|refusal| refusal.reason)?;
        assert!(taken == piece.len() || head.is_complete());
        used += taken;
        if head.is_complete() {
            break;
        }
    }
    head.eof().map_err(|refusal| refusal.reason)?;
    let fields = head.fields.iter();
    let fields = fields.map(|field| (field.name.to_vec(), field.value.to_vec()));
    Ok((head.status, fields.collect(), used))
}
