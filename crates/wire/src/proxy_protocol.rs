//! The header of the PROXY protocol, read and written: versions 1 and 2, without I/O.
//!
//! A balancer sends it before anything else, to say for whom it speaks. It is believed like a field
//! of a trusted proxy, so it is read strictly: what two programs could read differently is refused.
//! The rules are those of HAProxy's `proxy-protocol.txt`, with caps of ours. What it says of TLS and
//! its unique id are for logs; ALPN, namespaces and unknown parts are skipped.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Bytes of the longest header: version 2 with [`BLOCK_BYTES_MAX`] behind its fixed part.
pub const HEADER_BYTES_MAX: usize = FIXED_BYTES + BLOCK_BYTES_MAX;

/// Bytes of a line of version 1, with its CR LF.
const LINE_BYTES_MAX: usize = 107;
/// Bytes of version 2 that say how many follow.
const FIXED_BYTES: usize = 16;
/// Bytes of addresses and parts in version 2.
const BLOCK_BYTES_MAX: usize = 2_048;
/// Bytes of a unique id.
const UNIQUE_ID_BYTES_MAX: usize = 128;
/// Bytes of each of the texts that only logs see.
const TEXT_BYTES_MAX: usize = 256;

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
const LINE_BEGIN: &[u8; 6] = b"PROXY ";

const TLV_AUTHORITY: u8 = 0x02;
const TLV_CRC32C: u8 = 0x03;
const TLV_UNIQUE_ID: u8 = 0x05;
const TLV_SSL: u8 = 0x20;
const TLV_SSL_VERSION: u8 = 0x21;
const TLV_SSL_CN: u8 = 0x22;
const TLV_SSL_CIPHER: u8 = 0x23;
/// Bytes of a part's type and length.
const TLV_HEAD_BYTES: usize = 3;
/// Bytes before the parts inside [`TLV_SSL`]: a bit field and the verdict on the client.
const SSL_HEAD_BYTES: usize = 5;

/// What a header says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProxyHeader<'a> {
    /// Whose connection it stands for; `None` where that is the sender's own (`LOCAL`), or nobody
    /// with an address.
    pub endpoints: Option<Endpoints>,
    /// How the sender calls the connection, at most 128 bytes; empty where it does not.
    pub unique_id: &'a [u8],
    /// The name the client asked for (SNI); empty where that is not told.
    pub authority: &'a str,
    /// The version of TLS that the client speaks with the sender; empty without TLS.
    pub tls_version: &'a str,
    /// The cipher of that.
    pub tls_cipher: &'a str,
    /// The common name of the client's certificate.
    pub tls_client_name: &'a str,
}

/// The two ends of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoints {
    /// Who connected.
    pub source: SocketAddr,
    /// Where to.
    pub destination: SocketAddr,
}

/// Why bytes are no header: a stable word for logs.
pub type NoHeader = &'static str;

/// Reads the header that `bytes` begin with: with how many of them it has, or `None` where more
/// must come. More than [`HEADER_BYTES_MAX`] are never asked for.
///
/// # Errors
/// The rule that is broken.
pub fn parse(bytes: &[u8]) -> Result<Option<(ProxyHeader<'_>, usize)>, NoHeader> {
    if begins_as(bytes, SIGNATURE) {
        return parse_v2(bytes);
    }
    if begins_as(bytes, LINE_BEGIN) {
        return parse_v1(bytes);
    }
    Err("proxy_missing")
}

/// Whether `bytes` begin with `begin`, as far as both go.
fn begins_as(bytes: &[u8], begin: &[u8]) -> bool {
    bytes.iter().zip(begin).all(|(is, wanted)| is == wanted)
}

fn parse_v1(bytes: &[u8]) -> Result<Option<(ProxyHeader<'_>, usize)>, NoHeader> {
    let window = bytes.get(..LINE_BYTES_MAX).unwrap_or(bytes);
    let end = window.iter().position(|byte| !(b' '..0x7f).contains(byte));
    let Some(end) = end else {
        return match window.len() {
            LINE_BYTES_MAX => Err("proxy_line_too_long"),
            _ => Ok(None),
        };
    };
    match window.get(end..) {
        Some([b'\r', b'\n', ..]) => {}
        Some([b'\r']) if end + 1 == LINE_BYTES_MAX => return Err("proxy_line_too_long"),
        Some([b'\r']) => return Ok(None),
        _ => return Err("proxy_line"),
    }
    let line = window.get(LINE_BEGIN.len()..end);
    let line = line.and_then(|line| std::str::from_utf8(line).ok());
    let line = line.ok_or("proxy_line")?;
    let header = ProxyHeader {
        endpoints: line_endpoints(line)?,
        ..ProxyHeader::default()
    };
    Ok(Some((header, end + 2)))
}

/// What stands behind `PROXY `.
fn line_endpoints(line: &str) -> Result<Option<Endpoints>, NoHeader> {
    // Whatever follows is to be ignored.
    if line == "UNKNOWN" || line.starts_with("UNKNOWN ") {
        return Ok(None);
    }
    let mut words = line.split(' ');
    let mut word = || words.next().ok_or("proxy_line");
    let family = word()?;
    let (source, destination) = (word()?, word()?);
    let (source_port, destination_port) = (port(word()?)?, port(word()?)?);
    if words.next().is_some() {
        return Err("proxy_line");
    }
    let ip = |text: &str| match family {
        "TCP4" => text.parse().map(IpAddr::V4).ok(),
        "TCP6" => text.parse().map(IpAddr::V6).ok(),
        _ => None,
    };
    let ends = ip(source).zip(ip(destination));
    let (source, destination) = ends.ok_or("proxy_address")?;
    endpoints(
        SocketAddr::new(source, source_port),
        SocketAddr::new(destination, destination_port),
    )
}

/// Decimal, without leading zeros.
fn port(text: &str) -> Result<u16, NoHeader> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let plain = plain && (text == "0" || !text.starts_with('0'));
    let port = text.parse().ok().filter(|_| plain);
    port.ok_or("proxy_port")
}

/// Nobody speaks from the unspecified address, which means "no address" elsewhere.
fn endpoints(source: SocketAddr, destination: SocketAddr) -> Result<Option<Endpoints>, NoHeader> {
    if source.ip().to_canonical().is_unspecified() {
        return Err("proxy_address");
    }
    Ok(Some(Endpoints {
        source,
        destination,
    }))
}

fn parse_v2(bytes: &[u8]) -> Result<Option<(ProxyHeader<'_>, usize)>, NoHeader> {
    let mut rest = bytes.get(SIGNATURE.len()..).unwrap_or_default().iter();
    let Some(version_command) = rest.next() else {
        return Ok(None);
    };
    let is_local = match version_command {
        0x20 => true,
        0x21 => false,
        _ => return Err("proxy_version"),
    };
    let (Some(family), Some(high), Some(low)) = (rest.next(), rest.next(), rest.next()) else {
        return Ok(None);
    };
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    if length > BLOCK_BYTES_MAX {
        return Err("proxy_too_long");
    }
    let end = FIXED_BYTES + length;
    let Some((whole, block)) = bytes.get(..end).zip(bytes.get(FIXED_BYTES..end)) else {
        return Ok(None);
    };
    // A `LOCAL` one speaks for the sender itself: the rest says nothing.
    if is_local {
        return Ok(Some((ProxyHeader::default(), end)));
    }
    let (endpoints, parts) = block_endpoints(*family, block)?;
    let mut header = ProxyHeader {
        endpoints,
        ..ProxyHeader::default()
    };
    read_parts(&mut header, parts, whole)?;
    Ok(Some((header, end)))
}

/// The addresses that a block begins with, and what follows them.
fn block_endpoints(family: u8, block: &[u8]) -> Result<(Option<Endpoints>, &[u8]), NoHeader> {
    let short = "proxy_too_short";
    match family {
        0x00 => Ok((None, block)),
        0x11 => {
            let (addresses, rest) = block.split_first_chunk::<12>().ok_or(short)?;
            let &[a, b, c, d, e, f, g, h, ref ports @ ..] = addresses;
            let (source, destination) = (Ipv4Addr::new(a, b, c, d), Ipv4Addr::new(e, f, g, h));
            Ok((ends(source.into(), destination.into(), *ports)?, rest))
        }
        0x21 => {
            let (source, rest) = block.split_first_chunk::<16>().ok_or(short)?;
            let (destination, rest) = rest.split_first_chunk::<16>().ok_or(short)?;
            let (ports, rest) = rest.split_first_chunk::<4>().ok_or(short)?;
            let (source, destination) = (Ipv6Addr::from(*source), Ipv6Addr::from(*destination));
            Ok((ends(source.into(), destination.into(), *ports)?, rest))
        }
        // Two paths of 108 bytes: nobody with an address.
        0x31 => Ok((None, block.get(216..).ok_or(short)?)),
        _ => Err("proxy_family"),
    }
}

fn ends(
    source: IpAddr,
    destination: IpAddr,
    ports: [u8; 4],
) -> Result<Option<Endpoints>, NoHeader> {
    let [a, b, c, d] = ports;
    endpoints(
        SocketAddr::new(source, u16::from_be_bytes([a, b])),
        SocketAddr::new(destination, u16::from_be_bytes([c, d])),
    )
}

fn read_parts<'a>(
    header: &mut ProxyHeader<'a>,
    mut parts: &'a [u8],
    whole: &[u8],
) -> Result<(), NoHeader> {
    while let Some((kind, value)) = next_part(&mut parts)? {
        match kind {
            TLV_CRC32C => check_sum(whole, whole.len() - parts.len() - value.len(), value)?,
            TLV_UNIQUE_ID if value.len() > UNIQUE_ID_BYTES_MAX => return Err("proxy_unique_id"),
            TLV_UNIQUE_ID => header.unique_id = value,
            TLV_AUTHORITY => header.authority = text(value)?,
            TLV_SSL => {
                let mut inner = value.get(SSL_HEAD_BYTES..).ok_or("proxy_part")?;
                while let Some((kind, value)) = next_part(&mut inner)? {
                    match kind {
                        TLV_SSL_VERSION => header.tls_version = text(value)?,
                        TLV_SSL_CIPHER => header.tls_cipher = text(value)?,
                        TLV_SSL_CN => header.tls_client_name = text(value)?,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Takes the part that `parts` begin with: its type and value.
fn next_part<'a>(parts: &mut &'a [u8]) -> Result<Option<(u8, &'a [u8])>, NoHeader> {
    if parts.is_empty() {
        return Ok(None);
    }
    let (&[kind, high, low], rest) = parts
        .split_first_chunk::<TLV_HEAD_BYTES>()
        .ok_or("proxy_part")?;
    let length = usize::from(u16::from_be_bytes([high, low]));
    let (value, rest) = rest.split_at_checked(length).ok_or("proxy_part")?;
    *parts = rest;
    Ok(Some((kind, value)))
}

fn text(value: &[u8]) -> Result<&str, NoHeader> {
    let value = Some(value).filter(|value| value.len() <= TEXT_BYTES_MAX);
    let text = value.and_then(|value| std::str::from_utf8(value).ok());
    text.ok_or("proxy_text")
}

/// Whether the sum that stands at `at` is that of the header with zeros in its place.
fn check_sum(whole: &[u8], at: usize, sum: &[u8]) -> Result<(), NoHeader> {
    let &[a, b, c, d] = sum else {
        return Err("proxy_part");
    };
    let (before, after) = whole.split_at_checked(at).unwrap_or_default();
    let parts = [before, &[0; 4], after.get(4..).unwrap_or_default()];
    match crc32c(&parts) == u32::from_be_bytes([a, b, c, d]) {
        true => Ok(()),
        false => Err("proxy_checksum"),
    }
}

/// The Castagnoli sum (RFC 3720, appendix B.4) of `parts` in a row.
fn crc32c(parts: &[&[u8]]) -> u32 {
    let bytes = parts.iter().copied().flatten();
    !bytes.fold(u32::MAX, |sum, byte| {
        CRC32C[usize::from(byte ^ sum.to_le_bytes()[0])] ^ (sum >> 8)
    })
}

static CRC32C: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut sum, mut bit) = (byte as u32, 0);
        while bit < 8 {
            sum = (sum >> 1) ^ (0x82f6_3b78 * (sum & 1));
            bit += 1;
        }
        table[byte] = sum;
        byte += 1;
    }
    table
};

/// Appends a header of version 1; without endpoints it says that they are unknown.
pub fn write_v1(endpoints: Option<Endpoints>, out: &mut Vec<u8>) {
    use std::io::Write as _;
    let Some(endpoints) = endpoints else {
        return out.extend_from_slice(b"PROXY UNKNOWN\r\n");
    };
    let (source, destination, family) = match alike(endpoints) {
        Alike::V4(source, destination) => (IpAddr::from(source), IpAddr::from(destination), 4),
        Alike::V6(source, destination) => (source.into(), destination.into(), 6),
    };
    let (from, to) = (endpoints.source.port(), endpoints.destination.port());
    // A vector takes everything.
    let _ = write!(
        out,
        "PROXY TCP{family} {source} {destination} {from} {to}\r\n"
    );
}

/// Appends a header of version 2 that speaks for a client: without endpoints for one that has no
/// address; a unique id of more than 128 bytes, or an empty one, is left out.
pub fn write_v2(endpoints: Option<Endpoints>, unique_id: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(SIGNATURE);
    out.extend_from_slice(&[0x21, 0x00, 0, 0]);
    if let Some(endpoints) = endpoints {
        let family = match alike(endpoints) {
            Alike::V4(source, destination) => {
                out.extend_from_slice(&source.octets());
                out.extend_from_slice(&destination.octets());
                0x11
            }
            Alike::V6(source, destination) => {
                out.extend_from_slice(&source.octets());
                out.extend_from_slice(&destination.octets());
                0x21
            }
        };
        out.extend_from_slice(&endpoints.source.port().to_be_bytes());
        out.extend_from_slice(&endpoints.destination.port().to_be_bytes());
        if let Some(at) = out.get_mut(start + SIGNATURE.len() + 1) {
            *at = family;
        }
    }
    if let (1..=UNIQUE_ID_BYTES_MAX, Ok(length)) = (unique_id.len(), u8::try_from(unique_id.len()))
    {
        out.extend_from_slice(&[TLV_UNIQUE_ID, 0, length]);
        out.extend_from_slice(unique_id);
    }
    let length = u16::try_from(out.len() - start - FIXED_BYTES).unwrap_or(0);
    if let Some(at) = out.get_mut(start + FIXED_BYTES - 2..start + FIXED_BYTES) {
        at.copy_from_slice(&length.to_be_bytes());
    }
}

/// Two addresses of one family.
enum Alike {
    V4(Ipv4Addr, Ipv4Addr),
    V6(Ipv6Addr, Ipv6Addr),
}

/// Both as IPv4 if they are that, else both as IPv6.
fn alike(endpoints: Endpoints) -> Alike {
    let ends = (endpoints.source.ip(), endpoints.destination.ip());
    let as_v6 = |ip: IpAddr| match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    match (ends.0.to_canonical(), ends.1.to_canonical()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => Alike::V4(source, destination),
        (source, destination) => Alike::V6(as_v6(source), as_v6(destination)),
    }
}
