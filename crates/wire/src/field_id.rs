//! Field names known by number.
//!
//! A name is recognised once, when its head is parsed; afterwards it is one byte to compare.
//! The candidates are picked by length, then by one telling byte, so a name costs one comparison.

macro_rules! known_fields {
    ($($id:ident = $name:literal),* $(,)?) => {
        /// A field name known by number, or [`FieldId::Other`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[allow(missing_docs, reason = "each is the field of that name")]
        pub enum FieldId { Other, $($id),* }

        impl FieldId {
            /// The usual spelling; empty for [`FieldId::Other`].
            pub const fn name(self) -> &'static str {
                match self { FieldId::Other => "", $(FieldId::$id => $name),* }
            }
        }

        #[cfg(test)]
        const KNOWN: &[FieldId] = &[$(FieldId::$id),*];
    };
}

known_fields! {
    Accept = "Accept", AcceptEncoding = "Accept-Encoding", AcceptRanges = "Accept-Ranges", Allow = "Allow",
    Authorization = "Authorization", CacheControl = "Cache-Control", Connection = "Connection",
    ContentEncoding = "Content-Encoding", ContentLength = "Content-Length",
    ContentLocation = "Content-Location", ContentRange = "Content-Range",
    ContentType = "Content-Type", Cookie = "Cookie", Date = "Date", ETag = "ETag", Expect = "Expect",
    Forwarded = "Forwarded", Host = "Host", Http2Settings = "HTTP2-Settings", IfMatch = "If-Match",
    IfModifiedSince = "If-Modified-Since", IfNoneMatch = "If-None-Match", IfRange = "If-Range",
    IfUnmodifiedSince = "If-Unmodified-Since", KeepAlive = "Keep-Alive", LastModified = "Last-Modified",
    Location = "Location", ProxyAuthenticate = "Proxy-Authenticate", ProxyAuthorization = "Proxy-Authorization",
    ProxyConnection = "Proxy-Connection", Range = "Range", Referer = "Referer", Refresh = "Refresh", RetryAfter = "Retry-After",
    Server = "Server", SetCookie = "Set-Cookie", Te = "TE", Trailer = "Trailer",
    TransferEncoding = "Transfer-Encoding", Upgrade = "Upgrade", UserAgent = "User-Agent", Vary = "Vary",
    Via = "Via", WwwAuthenticate = "WWW-Authenticate", XForwardedFor = "X-Forwarded-For",
    XForwardedHost = "X-Forwarded-Host", XForwardedProto = "X-Forwarded-Proto", XRealIp = "X-Real-IP",
    XRequestId = "X-Request-Id",
}

impl FieldId {
    /// Recognises a field name in any case.
    pub fn of(name: &[u8]) -> FieldId {
        let candidate = FieldId::candidate(name);
        if folded_eq(name, candidate.name().as_bytes()) {
            candidate
        } else {
            FieldId::Other
        }
    }

    /// This id as one bit of a set of ids.
    pub(crate) const fn bit(self) -> u64 {
        1 << self as u8
    }

    /// The only known name that `name` can still be, going by its length and first bytes.
    fn candidate(name: &[u8]) -> FieldId {
        let at = |index: usize| name.get(index).map_or(0, |byte| byte | 0x20);
        match (name.len(), at(0)) {
            (2, _) => FieldId::Te,
            (3, _) => FieldId::Via,
            (4, b'h') => FieldId::Host,
            (4, b'd') => FieldId::Date,
            (4, b'e') => FieldId::ETag,
            (4, _) => FieldId::Vary,
            (5, b'r') => FieldId::Range,
            (5, _) => FieldId::Allow,
            (6, b'a') => FieldId::Accept,
            (6, b'c') => FieldId::Cookie,
            (6, b'e') => FieldId::Expect,
            (6, _) => FieldId::Server,
            (7, b'r') if at(3) == b'r' => FieldId::Refresh,
            (7, b'r') => FieldId::Referer,
            (7, b't') => FieldId::Trailer,
            (7, _) => FieldId::Upgrade,
            (8, b'l') => FieldId::Location,
            (8, _) if at(3) == b'm' => FieldId::IfMatch,
            (8, _) => FieldId::IfRange,
            (9, b'x') => FieldId::XRealIp,
            (9, _) => FieldId::Forwarded,
            (10, b'c') => FieldId::Connection,
            (10, b'k') => FieldId::KeepAlive,
            (10, b's') => FieldId::SetCookie,
            (10, _) => FieldId::UserAgent,
            (11, _) => FieldId::RetryAfter,
            (12, b'c') => FieldId::ContentType,
            (12, _) => FieldId::XRequestId,
            (13, b'a') if at(1) == b'u' => FieldId::Authorization,
            (13, b'a') => FieldId::AcceptRanges,
            (13, b'c') if at(1) == b'a' => FieldId::CacheControl,
            (13, b'c') => FieldId::ContentRange,
            (13, b'i') => FieldId::IfNoneMatch,
            (13, _) => FieldId::LastModified,
            (14, b'c') => FieldId::ContentLength,
            (14, _) => FieldId::Http2Settings,
            (15, b'a') => FieldId::AcceptEncoding,
            (15, _) => FieldId::XForwardedFor,
            (16, b'c') if at(8) == b'l' => FieldId::ContentLocation,
            (16, b'c') => FieldId::ContentEncoding,
            (16, b'p') => FieldId::ProxyConnection,
            (16, b'w') => FieldId::WwwAuthenticate,
            (16, _) => FieldId::XForwardedHost,
            (17, b't') => FieldId::TransferEncoding,
            (17, b'i') => FieldId::IfModifiedSince,
            (17, _) => FieldId::XForwardedProto,
            (18, _) => FieldId::ProxyAuthenticate,
            (19, b'i') => FieldId::IfUnmodifiedSince,
            (19, _) => FieldId::ProxyAuthorization,
            _ => FieldId::Other,
        }
    }
}

/// Whether a token is this name in any case, eight bytes at a time; the last eight may overlap.
///
/// Setting bit 5 folds letters and leaves digits and `-` as they are; what else it could turn into
/// one of them is a control byte, which no token has.
fn folded_eq(token: &[u8], name: &[u8]) -> bool {
    if token.len() != name.len() {
        return false;
    }
    let (Some(token_end), Some(name_end)) = (token.last_chunk(), name.last_chunk()) else {
        let differs = |(left, right): (&u8, &u8)| (left ^ right) & !0x20;
        return token
            .iter()
            .zip(name)
            .map(differs)
            .fold(0, |all, bits| all | bits)
            == 0;
    };
    let words = token.as_chunks().0.iter().zip(name.as_chunks().0);
    words.fold(difference(token_end, name_end), |all, (left, right)| {
        all | difference(left, right)
    }) == 0
}

fn difference(left: &[u8; 8], right: &[u8; 8]) -> u64 {
    const FOLD: u64 = 0x2020_2020_2020_2020;
    (u64::from_ne_bytes(*left) ^ u64::from_ne_bytes(*right)) & !FOLD
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_name_is_found_in_any_case() {
        for &id in KNOWN {
            let name = id.name();
            assert_eq!(FieldId::of(name.as_bytes()), id, "{name}");
            assert_eq!(
                FieldId::of(name.to_ascii_lowercase().as_bytes()),
                id,
                "{name}"
            );
            assert_eq!(
                FieldId::of(name.to_ascii_uppercase().as_bytes()),
                id,
                "{name}"
            );
        }
    }

    #[test]
    fn one_byte_off_is_another_name() {
        for &id in KNOWN {
            let name = id.name().as_bytes();
            for index in 0..name.len() {
                let mut off = name.to_vec();
                off[index] = b'_';
                assert_eq!(FieldId::of(&off), FieldId::Other, "{}", id.name());
            }
            let longer = [name, b"x"].concat();
            assert_eq!(FieldId::of(&longer), FieldId::Other, "{}", id.name());
        }
        assert_eq!(FieldId::of(b""), FieldId::Other);
    }

    #[test]
    fn ids_fit_one_word_of_bits() {
        assert!(KNOWN.len() < 64);
    }
}
