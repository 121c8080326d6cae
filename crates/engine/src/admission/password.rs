//! Whether a password is the one an htpasswd file holds.
//!
//! A user the file doesn't know costs as much as a wrong password: one of the file's own hashes
//! is compared instead, always the same one for a name, so that time tells nothing.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha_crypt::{PasswordVerifier as _, ShaCrypt};
use sha1::{Digest as _, Sha1};
use yescrypt::Yescrypt;

use super::apr1;

/// Compares; may take as long as the hash was made to take. `pick` chooses the stand-in for a
/// user that is not there.
pub(super) fn is_right(
    users: &BTreeMap<String, String>,
    user: &str,
    password: &[u8],
    pick: u64,
) -> bool {
    match users.get(user) {
        Some(hash) => matches(hash, password),
        None => {
            let place = usize::try_from(pick % users.len().max(1) as u64).unwrap_or(0);
            if let Some(hash) = users.values().nth(place) {
                std::hint::black_box(matches(hash, password));
            }
            false
        }
    }
}

/// Configuration lets in no other kinds, and none that is too dear.
fn matches(hash: &str, password: &[u8]) -> bool {
    if let Some(digest) = hash.strip_prefix("{SHA}") {
        let expected = STANDARD.decode(digest).unwrap_or_default();
        return equal(&Sha1::digest(password), &expected);
    }
    if let Some((salt, digest)) = hash
        .strip_prefix("$apr1$")
        .and_then(|rest| rest.split_once('$'))
    {
        return equal(&apr1::digest(password, salt.as_bytes()), digest.as_bytes());
    }
    match hash.get(..3) {
        Some("$5$" | "$6$") => ShaCrypt::default().verify_password(password, hash).is_ok(),
        Some("$y$") => Yescrypt::default().verify_password(password, hash).is_ok(),
        _ => bcrypt::verify(password, hash).unwrap_or(false),
    }
}

/// Takes the same time wherever the difference is.
fn equal(one: &[u8], other: &[u8]) -> bool {
    let difference = one.iter().zip(other).fold(0, |sum, (a, b)| sum | (a ^ b));
    one.len() == other.len() && std::hint::black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passwords and what `htpasswd`, `openssl passwd` or the system's crypt(3) made of them.
    const HASHES: [(&str, &str); 14] = [
        ("secret", "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ="),
        ("secret", "$apr1$z9k/5wgY$9lCJ8w8XRLJo454a5HWBW."),
        ("x", "$apr1$x$n3KC.RJYHZhK50zaCOGff0"),
        (
            "a password much longer than sixteen bytes, of which the digest is made",
            "$apr1$VUPJTF0A$7fw.9OKHdpiaGYTh6wDVV.",
        ),
        ("", "$apr1$5PD3ebYA$wsj2bm29hTW./Rj6wavC80"),
        (
            "secret",
            "$2y$05$rywOkzKqdwdR44KPePhISeakDNUXHxVWcOYoQNgDOMfoACHzn8s4O",
        ),
        (
            "secret",
            "$2y$04$kPr2tBuYEq3nTDBf8cWoxeqXq.WbFLgtfMtEc4T0SJru57lwjwrka",
        ),
        (
            "sécret",
            "$2y$05$fKeNYNJESXJ/GbkHmrITaOx./4e4F90csTinJX4hPF21VMlD15X16",
        ),
        (
            "secret",
            "$5$saltstring$C3o4O1TC6aRHF4FI.QSZMXtHbaj2gSXr4sUc/3NcUi.",
        ),
        (
            "secret",
            "$5$rounds=1000$x$MwH1x3tv6pfJx.FrwforYF3VY24cFP1kjo6fe/LdghD",
        ),
        (
            "secret",
            "$6$Zq8.w/1kLmNoPqRs$51Xaq66WyKrn/kUN405STO1QP6230uRf2JPzVcI5X/gLuGjQ2NS45tRtfA1RC7d8ufwSOcl5W.XcOQU5Phf0p0",
        ),
        (
            "secret",
            "$6$rounds=2000$abcdefgh$js.Oqma4t2Fwxd5k1k7HZc8PJANjCww6bXOf6rha5ucSTdmrEHzoB1xTT6hSCKIARQkqP2BCwtC1eCAzLkvzb1",
        ),
        (
            "sécret",
            "$6$saltstring$9hifoMjXyzkJt5.yFnznHBSJ4WODvx4KXKmpnJj5YcEIKstabDGkj4/dE6Imo00boXlglXoKVLoPV/bMmMPum.",
        ),
        (
            "secret",
            "$y$j75$LdJMENpBABJJ3hIHjB1Bi.$pLOAA.GWfQElzJMkN.JqzcItGXS.DsOZsBOX0fO4NDC",
        ),
    ];
    /// The same with what systems take today: 16 MiB.
    const USUAL: &str = "$y$j9T$/Iy9cXmD4JpRkTqFv8Lx21$mdhN3CdtM/p4vV3yngpOY4VtotTNDm.6uDN0zwEi426";

    #[test]
    fn every_kind_of_hash_is_understood() {
        for (password, hash) in HASHES {
            assert!(matches(hash, password.as_bytes()), "{hash}");
            for wrong in [&b"wrong"[..], b"", b"secre", b"secret "] {
                assert!(
                    wrong == password.as_bytes() || !matches(hash, wrong),
                    "{hash}"
                );
            }
        }
        assert!(matches(USUAL, b"secret"));
        assert!(!matches("nonsense", b"nonsense"));
    }

    #[test]
    fn an_unknown_user_is_refused_even_with_the_password_of_another() {
        let users = [("a".to_owned(), HASHES[0].1.to_owned())].into();
        assert!(is_right(&users, "a", b"secret", 7));
        for pick in 0..3 {
            assert!(!is_right(&users, "b", b"secret", pick));
            assert!(!is_right(&BTreeMap::new(), "b", b"secret", pick));
        }
    }
}
