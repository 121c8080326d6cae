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
    ContentEncoding = "Content-Encoding", ContentLength = "Content-Length", ContentRange = "Content-Range",
    ContentType = "Content-Type", Cookie = "Cookie", Date = "Date", ETag = "ETag", Expect = "Expect",
    Forwarded = "Forwarded", Host = "Host", Http2Settings = "HTTP2-Settings", IfMatch = "If-Match",
    IfModifiedSince = "If-Modified-Since", IfNoneMatch = "If-None-Match", IfRange = "If-Range",
    IfUnmodifiedSince = "If-Unmodified-Since", KeepAlive = "Keep-Alive", LastModified = "Last-Modified",
    Location = "Location", ProxyAuthenticate = "Proxy-Authenticate", ProxyAuthorization = "Proxy-Authorization",
    ProxyConnection = "Proxy-Connection", Range = "Range", Referer = "Referer", RetryAfter = "Retry-After",
    Server = "Server", SetCookie = "Set-Cookie", Te = "TE", Trailer = "Trailer",
    TransferEncoding = "Transfer-Encoding", Upgrade = "Upgrade", UserAgent = "User-Agent", Vary = "Vary",
    Via = "Via", WwwAuthenticate = "WWW-Authenticate", XForwardedFor = "X-Forwarded-For",
    XForwardedHost = "X-Forwarded-Host", XForwardedProto = "X-Forwarded-Proto", XRealIp = "X-Real-IP",
    XRequestId = "X-Request-ID",
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
        use FieldId::*;
        let at = |index: usize| name.get(index).map_or(0, |byte| byte | 0x20);
        match (name.len(), at(0)) {
            (2, _) => Te,
            (3, _) => Via,
            (4, b'h') => Host,
            (4, b'd') => Date,
            (4, b'e') => ETag,
            (4, _) => Vary,
            (5, b'r') => Range,
            (5, _) => Allow,
            (6, b'a') => Accept,
            (6, b'c') => Cookie,
            (6, b'e') => Expect,
            (6, _) => Server,
            (7, b'r') => Referer,
            (7, b't') => Trailer,
            (7, _) => Upgrade,
            (8, b'l') => Location,
            (8, _) if at(3) == b'm' => IfMatch,
            (8, _) => IfRange,
            (9, b'x') => XRealIp,
            (9, _) => Forwarded,
            (10, b'c') => Connection,
            (10, b'k') => KeepAlive,
            (10, b's') => SetCookie,
            (10, _) => UserAgent,
            (11, _) => RetryAfter,
            (12, b'c') => ContentType,
            (12, _) => XRequestId,
            (13, b'a') if at(1) == b'u' => Authorization,
            (13, b'a') => AcceptRanges,
            (13, b'c') if at(1) == b'a' => CacheControl,
            (13, b'c') => ContentRange,
            (13, b'i') => IfNoneMatch,
            (13, _) => LastModified,
            (14, b'c') => ContentLength,
            (14, _) => Http2Settings,
            (15, b'a') => AcceptEncoding,
            (15, _) => XForwardedFor,
            (16, b'c') => ContentEncoding,
            (16, b'p') => ProxyConnection,
            (16, b'w') => WwwAuthenticate,
            (16, _) => XForwardedHost,
            (17, b't') => TransferEncoding,
            (17, b'i') => IfModifiedSince,
            (17, _) => XForwardedProto,
            (18, _) => ProxyAuthenticate,
            (19, b'i') => IfUnmodifiedSince,
            (19, _) => ProxyAuthorization,
            _ => Other,
        }
    }
}

/// Equality without regard to case.
fn folded_eq(left: &[u8], right: &[u8]) -> bool {
    left.eq_ignore_ascii_case(right)
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
