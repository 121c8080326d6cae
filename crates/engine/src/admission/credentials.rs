//! User and password as Basic authentication sends them (RFC 7617).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Bytes of a user name; a longer one is nobody's.
const USER_BYTES_MAX: usize = 256;
/// Bytes of a password.
const PASSWORD_BYTES_MAX: usize = 1_024;

/// A user and a password, unproven.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Credentials {
    /// The name.
    pub(crate) user: String,
    pub(super) password: Vec<u8>,
}

impl Credentials {
    /// Reads the value of `Authorization`; `None` for another scheme and for nonsense.
    pub(super) fn read(field: &[u8]) -> Option<Self> {
        let at = field.iter().position(|byte| *byte == b' ')?;
        let (scheme, rest) = field.split_at_checked(at)?;
        if !scheme.eq_ignore_ascii_case(b"basic") {
            return None;
        }
        let rest = rest.trim_ascii();
        if rest.len() > (USER_BYTES_MAX + PASSWORD_BYTES_MAX) * 4 / 3 + 4 {
            return None;
        }
        let pair = STANDARD.decode(rest).ok()?;
        let colon = pair.iter().position(|byte| *byte == b':')?;
        let (user, password) = pair.split_at_checked(colon)?;
        let user = std::str::from_utf8(user).ok()?;
        if user.is_empty() || user.len() > USER_BYTES_MAX || user.chars().any(char::is_control) {
            return None;
        }
        Some(Self {
            user: user.to_owned(),
            password: password.get(1..)?.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_read_as_rfc_7617_writes_them() {
        let pair = |user: &str, password: &str| {
            Some(Credentials {
                user: user.to_owned(),
                password: password.as_bytes().to_vec(),
            })
        };
        for (field, expected) in [
            (
                "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==",
                pair("Aladdin", "open sesame"),
            ),
            ("basic  dGVzdDoxMjPCow==", pair("test", "123£")),
            ("BASIC YTo=", pair("a", "")),
            ("Basic YTpiOmM=", pair("a", "b:c")),
            ("Basic OmI=", None),
            ("Basic YQ==", None),
            ("Basic YTpi=", None),
            ("Basic", None),
            ("Bearer YTpi", None),
            ("Basic //86YQ==", None),
            ("Basic YQo6Yg==", None),
        ] {
            let read = Credentials::read(field.as_bytes());
            assert!(read == expected, "{field}");
        }
        let long = format!(
            "Basic {}",
            STANDARD.encode(format!("a:{}", "x".repeat(2_000)))
        );
        assert!(Credentials::read(long.as_bytes()).is_none());
    }
}
