//! The private keys: numbered, found by what they are, and made to sign only what TLS signs.
//!
//! The idea: a key is kept as it is written, and parsed when it is first asked to sign; of those
//! parsed, the ones used last stay. The same key has the same number as long as it is kept, so that
//! a certificate that is renewed with it, or planned anew, costs nothing. Two counts a second, one
//! of each key and one of all, bound what somebody can do who asks in a server's name. Keys that
//! scripts bring are kept beside those that are planned, so many and no more, and take nothing from them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use aws_lc_rs::digest::{SHA256, digest};
use ipc::certificates::KeyId;
use ipc::keeper::ShownTo;
use ipc::signing::{Parts, Refusal, Sign};
use rustls::SignatureScheme;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::SigningKey;

/// Bytes of DER that a key counts for, at least, where those that are parsed are counted.
const PARSED_BYTES_LEAST: usize = 128;

/// Keys of scripts that are kept.
const SCRIPTED_MAX: usize = 10_000;
/// Bytes of them all.
const SCRIPTED_BYTES_MAX: usize = 16 << 20;

/// How many signatures may be had in a second, and how many keys may stay parsed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caps {
    /// By one key.
    pub(crate) by_key: u64,
    /// By all of them.
    pub(crate) in_all: u64,
    /// Bytes of the DER of keys that are parsed, which takes about eight times that.
    pub(crate) parsed_bytes: usize,
}

/// More than a machine of many cores signs for honest clients, and few enough to be seen.
pub(crate) const CAPS: Caps = Caps {
    by_key: 20_000,
    in_all: 60_000,
    // Ten thousand keys on P-256 and more, or 1,200 of RSA-2048, which take long enough to sign anyway.
    parsed_bytes: 1_500_000,
};

/// All keys.
#[derive(Debug)]
pub(crate) struct Keys {
    /// Held to look a key up, and to change which there are.
    numbered: RwLock<Numbered>,
    /// Keys that are parsed. Held while one is moved.
    parsed: Mutex<Parsed>,
    signed: Rate,
    caps: Caps,
}

#[derive(Debug, Default)]
struct Numbered {
    by_id: HashMap<KeyId, Arc<Key>>,
    by_content: HashMap<[u8; 32], KeyId>,
    given: u32,
    /// Keys of scripts alone, and their bytes.
    scripted: (usize, usize),
}

/// Keys that are parsed, in the order of their parsing.
#[derive(Debug, Default)]
struct Parsed {
    keys: VecDeque<Arc<Key>>,
    /// What they count for, all together.
    bytes: usize,
}

/// A key.
struct Key {
    id: KeyId,
    /// What is said where it signs too often: the file it came from.
    name: String,
    content: [u8; 32],
    der: PrivateKeyDer<'static>,
    /// Held to take a copy of the pointer, and while the key is parsed.
    signing: Mutex<Option<Arc<dyn SigningKey>>>,
    /// To whom its certificates are shown: a bit each.
    shown_to: AtomicU8,
    /// Scripts have brought it, and nobody else.
    is_scripted: AtomicBool,
    /// It has signed since it was last looked at.
    is_used: AtomicBool,
    signed: Rate,
}

impl Key {
    /// What it counts for among those that are parsed.
    fn parsed_bytes(&self) -> usize {
        self.der.secret_der().len().max(PARSED_BYTES_LEAST)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.name)
    }
}

/// What was done in one second: the second in the upper half, how often in the lower.
#[derive(Debug, Default)]
struct Rate(AtomicU64);

impl Rate {
    const HALF: u64 = 32;

    /// Whether one more is allowed in this second; counts it if so.
    fn admits(&self, max: u64, now_s: u64) -> bool {
        let second = now_s & u64::from(u32::MAX);
        let next = |word: u64| {
            let done = if word >> Self::HALF == second {
                word & u64::from(u32::MAX)
            } else {
                0
            };
            (done < max).then_some(second << Self::HALF | (done + 1))
        };
        let order = Ordering::Relaxed;
        self.0.fetch_update(order, order, next).is_ok()
    }
}

impl Keys {
    pub(crate) fn new(caps: Caps) -> Keys {
        Keys {
            numbered: RwLock::default(),
            parsed: Mutex::default(),
            signed: Rate::default(),
            caps,
        }
    }

    /// Takes a key in, whose certificate is shown to these; one that is there already has the number that it has.
    pub(crate) fn add(&self, name: &str, der: &PrivateKeyDer<'_>, shown_to: ShownTo) -> KeyId {
        let content = content_of(der);
        let mut numbered = self
            .numbered
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let Some(key) = numbered.of_content(&content) else {
            return numbered.insert(name, content, der, shown_to);
        };
        key.shown_to.fetch_or(bit(shown_to), Ordering::Relaxed);
        if key.is_scripted.swap(false, Ordering::Relaxed) {
            let (count, bytes) = numbered.scripted;
            let own = key.der.secret_der().len();
            numbered.scripted = (count.saturating_sub(1), bytes.saturating_sub(own));
        }
        key.id
    }

    /// Takes in the key of a certificate that a script shows to clients. One that is planned for them stays what it is.
    ///
    /// # Errors
    /// In words: there is no room, or it is planned for somebody else.
    pub(crate) fn add_scripted(
        &self,
        name: &str,
        der: &PrivateKeyDer<'_>,
    ) -> Result<KeyId, String> {
        let content = content_of(der);
        let mut numbered = self
            .numbered
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(key) = numbered.of_content(&content) {
            return match key.shown_to.load(Ordering::Relaxed) & bit(ShownTo::Clients) {
                0 => Err(format!(
                    "{name}: its key is shown to the servers of an upstream and to no client: have another made"
                )),
                _ => Ok(key.id),
            };
        }
        let (count, bytes) = numbered.scripted;
        let bytes = bytes + der.secret_der().len();
        if count >= SCRIPTED_MAX || bytes > SCRIPTED_BYTES_MAX {
            return Err(format!(
                "{name}: scripts have {count} keys in use already, and more than {SCRIPTED_MAX} or 16 MiB are not kept: \
                 let the configuration name certificates that are always there"
            ));
        }
        numbered.scripted = (count + 1, bytes);
        let id = numbered.insert(name, content, der, ShownTo::Clients);
        if let Some(key) = numbered.by_id.get(&id) {
            key.is_scripted.store(true, Ordering::Relaxed);
        }
        Ok(id)
    }

    /// Forgets every key but these.
    pub(crate) fn keep(&self, keys: &[KeyId]) {
        let kept: HashSet<_> = keys.iter().copied().collect();
        let mut numbered = self
            .numbered
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        numbered.by_id.retain(|id, _| kept.contains(id));
        numbered.by_content.retain(|_, id| kept.contains(id));
        let scripted = numbered.by_id.values();
        let scripted = scripted.filter(|key| key.is_scripted.load(Ordering::Relaxed));
        numbered.scripted = scripted.fold((0, 0), |(count, bytes), key| {
            (count + 1, bytes + key.der.secret_der().len())
        });
        drop(numbered);
        let numbered = self.numbered.read().unwrap_or_else(PoisonError::into_inner);
        let mut parsed = self.parsed.lock().unwrap_or_else(PoisonError::into_inner);
        let is_kept = |key: &Arc<Key>| numbered.by_content.contains_key(&key.content);
        parsed.keys.retain(is_kept);
        parsed.bytes = parsed.keys.iter().map(|key| key.parsed_bytes()).sum();
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        let numbered = self.numbered.read().unwrap_or_else(PoisonError::into_inner);
        numbered.by_id.len()
    }

    /// Signs what TLS has signed, of which these are the parts.
    pub(crate) fn sign(&self, asked: &Sign, now_s: u64) -> Result<Vec<u8>, Refusal> {
        let key = {
            let numbered = self.numbered.read().unwrap_or_else(PoisonError::into_inner);
            numbered.by_id.get(&asked.key).cloned()
        };
        let key = key.ok_or(Refusal::UnknownKey)?;
        let scheme = SignatureScheme::from(asked.scheme);
        let message = asked.parts.message().ok_or(Refusal::Scheme)?;
        if !is_of_version(scheme, &asked.parts) {
            return Err(Refusal::Scheme);
        }
        if key.shown_to.load(Ordering::Relaxed) & bit(audience(&asked.parts)) == 0 {
            return Err(Refusal::UnknownKey);
        }
        if !key.signed.admits(self.caps.by_key, now_s) {
            tell_of_cap(&key.name, self.caps.by_key);
            return Err(Refusal::KeyCap);
        }
        if !self.signed.admits(self.caps.in_all, now_s) {
            tell_of_cap("all keys together", self.caps.in_all);
            return Err(Refusal::Cap);
        }
        let signer = self.parsed(&key)?.choose_scheme(&[scheme]);
        let signer = signer.ok_or(Refusal::Scheme)?;
        signer.sign(&message).map_err(|_| Refusal::Failed)
    }

    /// The key, ready to sign.
    fn parsed(&self, key: &Arc<Key>) -> Result<Arc<dyn SigningKey>, Refusal> {
        key.is_used.store(true, Ordering::Relaxed);
        let mut signing = key.signing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(signing) = &*signing {
            return Ok(signing.clone());
        }
        let parsed = any_supported_type(&key.der).map_err(|_| Refusal::Failed)?;
        *signing = Some(parsed.clone());
        drop(signing);
        self.make_room(key.clone());
        Ok(parsed)
    }

    /// Notes that a key is parsed, and lets go of one that was not used since it was looked at.
    fn make_room(&self, key: Arc<Key>) {
        let mut parsed = self.parsed.lock().unwrap_or_else(PoisonError::into_inner);
        parsed.bytes += key.parsed_bytes();
        parsed.keys.push_back(key);
        // Each is looked at twice at most: the second time it is unused.
        for _ in 0..2 * parsed.keys.len() {
            if parsed.bytes <= self.caps.parsed_bytes {
                return;
            }
            let Some(first) = parsed.keys.pop_front() else {
                return;
            };
            if first.is_used.swap(false, Ordering::Relaxed) {
                parsed.keys.push_back(first);
            } else {
                parsed.bytes -= first.parsed_bytes();
                let mut signing = first.signing.lock().unwrap_or_else(PoisonError::into_inner);
                *signing = None;
            }
        }
    }
}

impl Numbered {
    fn of_content(&self, content: &[u8; 32]) -> Option<Arc<Key>> {
        self.by_id.get(self.by_content.get(content)?).cloned()
    }

    fn insert(
        &mut self,
        name: &str,
        content: [u8; 32],
        der: &PrivateKeyDer<'_>,
        shown_to: ShownTo,
    ) -> KeyId {
        // Four thousand million keys are never there in one life.
        self.given = self.given.saturating_add(1);
        let id = KeyId(self.given);
        let key = Key {
            id,
            name: name.to_owned(),
            content,
            der: der.clone_key(),
            signing: Mutex::default(),
            shown_to: AtomicU8::new(bit(shown_to)),
            is_scripted: AtomicBool::default(),
            is_used: AtomicBool::default(),
            signed: Rate::default(),
        };
        self.by_content.insert(content, id);
        self.by_id.insert(id, Arc::new(key));
        id
    }
}

fn bit(shown_to: ShownTo) -> u8 {
    match shown_to {
        ShownTo::Clients => 1,
        ShownTo::Servers => 2,
    }
}

/// To whom a certificate is shown where this is signed.
fn audience(parts: &Parts) -> ShownTo {
    match parts {
        Parts::Tls13 { .. } | Parts::Tls12 { .. } => ShownTo::Clients,
        Parts::Tls13Client { .. } | Parts::Tls12Client { .. } => ShownTo::Servers,
    }
}

/// Whether this version of TLS signs by the scheme: 1.3 has no PKCS#1 (RFC 8446, 4.2.3).
fn is_of_version(scheme: SignatureScheme, parts: &Parts) -> bool {
    use SignatureScheme::{
        ECDSA_NISTP256_SHA256, ECDSA_NISTP384_SHA384, ECDSA_NISTP521_SHA512, ED25519,
        RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384,
        RSA_PSS_SHA512,
    };
    match scheme {
        ECDSA_NISTP256_SHA256 | ECDSA_NISTP384_SHA384 | ECDSA_NISTP521_SHA512 | ED25519 => true,
        RSA_PSS_SHA256 | RSA_PSS_SHA384 | RSA_PSS_SHA512 => true,
        RSA_PKCS1_SHA256 | RSA_PKCS1_SHA384 | RSA_PKCS1_SHA512 => {
            matches!(parts, Parts::Tls12 { .. } | Parts::Tls12Client { .. })
        }
        _ => false,
    }
}

/// Says that a cap was reached, but not more than once in so many seconds.
fn tell_of_cap(who: &str, cap: u64) {
    const EVERY_S: u64 = 10;
    static TOLD_S: AtomicU64 = AtomicU64::new(0);
    static UNTOLD: AtomicU64 = AtomicU64::new(0);
    let now_s = os::cpu::monotonic_us() / 1_000_000;
    let told_s = TOLD_S.load(Ordering::Relaxed);
    let untold = UNTOLD.fetch_add(1, Ordering::Relaxed) + 1;
    if (told_s == 0 || now_s >= told_s + EVERY_S) && TOLD_S.swap(now_s, Ordering::Relaxed) == told_s
    {
        UNTOLD.store(0, Ordering::Relaxed);
        tracing::error!(
            refused = untold,
            cap,
            "{who}: as many signatures as one second may have; whoever asks for more is refused: \
             a flood of handshakes, or a server that is not ours any more"
        );
    }
}

fn content_of(der: &PrivateKeyDer<'_>) -> [u8; 32] {
    let mut content = [0; 32];
    let hash = digest(&SHA256, der.secret_der());
    for (to, from) in content.iter_mut().zip(hash.as_ref()) {
        *to = *from;
    }
    content
}

#[cfg(test)]
mod tests {
    use rcgen::KeyPair;
    use rustls::pki_types::PrivatePkcs8KeyDer;

    use super::*;

    const P256: u16 = 0x0403;

    fn keys(by_key: u64, in_all: u64) -> Keys {
        Keys::new(Caps {
            by_key,
            in_all,
            parsed_bytes: 100 * PARSED_BYTES_LEAST,
        })
    }

    fn key(algorithm: &'static rcgen::SignatureAlgorithm) -> PrivateKeyDer<'static> {
        let key = KeyPair::generate_for(algorithm).unwrap();
        PrivatePkcs8KeyDer::from(key.serialize_der()).into()
    }

    fn tls13() -> Parts {
        Parts::Tls13 {
            transcript: vec![7; 32],
        }
    }

    fn tls12() -> Parts {
        Parts::Tls12 {
            client_random: [1; 32],
            server_random: [2; 32],
            params: [&[3, 0, 29, 32][..], &[9; 32]].concat(),
        }
    }

    fn sign(key: KeyId, scheme: u16, parts: Parts) -> Sign {
        Sign { key, scheme, parts }
    }

    #[test]
    fn each_kind_signs_by_its_schemes_and_no_other() {
        let keys = keys(100, 1_000);
        let schemes = [
            0x0401, 0x0501, 0x0601, 0x0804, 0x0805, 0x0806, 0x0403, 0x0503, 0x0603, 0x0807, 0x0201,
            0x0203, 0,
        ];
        for (algorithm, in_12, in_13) in [
            (&rcgen::PKCS_ECDSA_P256_SHA256, &[0x0403][..], &[0x0403][..]),
            (&rcgen::PKCS_ECDSA_P384_SHA384, &[0x0503], &[0x0503]),
            (&rcgen::PKCS_ED25519, &[0x0807], &[0x0807]),
            (
                &rcgen::PKCS_RSA_SHA256,
                &[0x0401, 0x0501, 0x0601, 0x0804, 0x0805, 0x0806],
                &[0x0804, 0x0805, 0x0806],
            ),
        ] {
            let id = keys.add("a.key", &key(algorithm), ShownTo::Clients);
            for scheme in schemes {
                for (parts, allowed) in [(tls12(), in_12), (tls13(), in_13)] {
                    let signed = keys.sign(&sign(id, scheme, parts), 0);
                    let expected = allowed.contains(&scheme);
                    assert_eq!(signed.is_ok(), expected, "{scheme:#x} {signed:?}");
                    let refusal = signed.err().filter(|it| *it != Refusal::Scheme);
                    assert_eq!(refusal, None);
                }
            }
        }
    }

    #[test]
    fn what_is_signed_is_the_message_of_its_parts() {
        use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
        let keys = keys(100, 100);
        let pair = KeyPair::generate().unwrap();
        let id = keys.add(
            "a",
            &PrivatePkcs8KeyDer::from(pair.serialize_der()).into(),
            ShownTo::Clients,
        );
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, pair.public_key_raw());
        for parts in [tls12(), tls13()] {
            let signature = keys.sign(&sign(id, P256, parts.clone()), 0).unwrap();
            let message = parts.message().unwrap();
            public.verify(&message, &signature).unwrap();
        }
    }

    #[test]
    fn the_same_key_has_one_number_and_none_is_given_twice() {
        let keys = keys(100, 100);
        let one = key(&rcgen::PKCS_ED25519);
        let id = keys.add("a", &one, ShownTo::Clients);
        assert_eq!(keys.add("b", &one, ShownTo::Clients), id);
        let other = keys.add("c", &key(&rcgen::PKCS_ED25519), ShownTo::Clients);
        assert_ne!(other, id);
        keys.keep(&[other]);
        assert_eq!(keys.count(), 1);
        let gone = keys.sign(&sign(id, 0x0807, tls13()), 0);
        assert_eq!(gone.unwrap_err(), Refusal::UnknownKey);
        assert!(keys.sign(&sign(other, 0x0807, tls13()), 0).is_ok());
        let again = keys.add("a", &one, ShownTo::Clients);
        assert!(again != id && again != other);
    }

    #[test]
    fn signatures_a_second_are_capped_by_key_and_in_all() {
        let keys = keys(3, 5);
        let one = keys.add("a", &key(&rcgen::PKCS_ED25519), ShownTo::Clients);
        let other = keys.add("b", &key(&rcgen::PKCS_ED25519), ShownTo::Clients);
        let refusals = |id, count: usize, now_s| {
            let signed = (0..count).map(|_| keys.sign(&sign(id, 0x0807, tls13()), now_s));
            let refused = signed.filter_map(Result::err);
            refused.collect::<Vec<_>>()
        };
        assert_eq!(refusals(one, 4, 10), [Refusal::KeyCap]);
        assert_eq!(refusals(other, 3, 10), [Refusal::Cap]);
        assert_eq!(refusals(one, 3, 11), []);
        assert_eq!(refusals(other, 2, 12), []);
    }

    #[test]
    fn keys_that_were_not_used_for_long_are_parsed_again() {
        let keys = keys(10, u64::from(u32::MAX));
        let ids: Vec<_> = (0..150)
            .map(|_| keys.add("a", &key(&rcgen::PKCS_ED25519), ShownTo::Clients))
            .collect();
        for _ in 0..2 {
            for id in &ids {
                keys.sign(&sign(*id, 0x0807, tls13()), 0).unwrap();
            }
            assert_eq!(keys.parsed.lock().unwrap().keys.len(), 100);
        }
        let numbered = keys.numbered.read().unwrap();
        let is_parsed = |key: &&Arc<Key>| key.signing.lock().unwrap().is_some();
        assert_eq!(numbered.by_id.values().filter(is_parsed).count(), 100);
    }

    #[test]
    fn a_key_that_cannot_be_parsed_fails_when_it_is_asked() {
        let keys = keys(10, 10);
        let der = PrivatePkcs8KeyDer::from(b"no key".to_vec());
        let id = keys.add("a", &der.into(), ShownTo::Clients);
        let failed = keys.sign(&sign(id, P256, tls13()), 0);
        assert_eq!(failed.unwrap_err(), Refusal::Failed);
    }

    #[test]
    fn a_key_signs_for_those_alone_who_are_shown_its_certificate() {
        let keys = keys(100, 100);
        let transcript = |types: &[u8]| {
            let message = |kind: &u8| [&[*kind, 0, 0, 40, 3, 3][..], &[8; 38]].concat();
            types.iter().flat_map(message).collect::<Vec<_>>()
        };
        let client12 = Parts::Tls12Client {
            transcript: transcript(&[1, 2, 11, 12, 13, 14, 11, 16]),
        };
        let client13 = Parts::Tls13Client {
            transcript: vec![7; 32],
        };
        let one = key(&rcgen::PKCS_ECDSA_P256_SHA256);
        let id = keys.add("a", &one, ShownTo::Servers);
        let signs = |parts: &Parts| keys.sign(&sign(id, P256, parts.clone()), 0).map(drop);
        for parts in [&client12, &client13] {
            assert_eq!(signs(parts), Ok(()));
        }
        for parts in [tls12(), tls13()] {
            assert_eq!(signs(&parts), Err(Refusal::UnknownKey));
        }
        let site = key(&rcgen::PKCS_ECDSA_P256_SHA256);
        let site = keys.add("b", &site, ShownTo::Clients);
        for parts in [&client12, &client13] {
            let signed = keys.sign(&sign(site, P256, parts.clone()), 0);
            assert_eq!(signed.unwrap_err(), Refusal::UnknownKey);
        }
        assert_eq!(keys.add("c", &one, ShownTo::Clients), id);
        assert_eq!(signs(&tls13()), Ok(()), "it is planned for both now");
    }

    #[test]
    fn what_scripts_bring_is_bounded_and_leaves_planned_keys_as_they_are() {
        let keys = keys(100, 100);
        let make = || key(&rcgen::PKCS_ECDSA_P256_SHA256);
        let (planned, upstream, own) = (make(), make(), make());
        let id = keys.add("a", &planned, ShownTo::Clients);
        assert_eq!(keys.add_scripted("b", &planned), Ok(id));
        let of_upstream = keys.add("c", &upstream, ShownTo::Servers);
        let problem = keys.add_scripted("d", &upstream).unwrap_err();
        assert!(problem.starts_with("d: its key is shown to the servers"));
        let signed = keys.sign(&sign(of_upstream, P256, tls13()), 0);
        assert_eq!(signed.unwrap_err(), Refusal::UnknownKey);
        let scripted = keys.add_scripted("e", &own).unwrap();
        assert!(keys.sign(&sign(scripted, P256, tls13()), 0).is_ok());
        assert_eq!(keys.numbered.read().unwrap().scripted.0, 1);
        assert_eq!(keys.add("f", &own, ShownTo::Clients), scripted);
        assert_eq!(keys.numbered.read().unwrap().scripted, (0, 0));
        for number in 0..SCRIPTED_MAX {
            let der = PrivatePkcs8KeyDer::from(number.to_be_bytes().to_vec()).into();
            keys.add_scripted("g", &der).unwrap();
        }
        let problem = keys.add_scripted("h", &make()).unwrap_err();
        assert!(problem.contains("10000 keys in use"), "{problem}");
        assert_eq!(keys.add_scripted("b", &planned), Ok(id));
        keys.add("i", &make(), ShownTo::Clients);
        keys.keep(&[id, scripted]);
        assert_eq!(keys.numbered.read().unwrap().scripted, (0, 0));
        assert!(keys.add_scripted("h", &make()).is_ok());
        let large = PrivatePkcs8KeyDer::from(vec![0; SCRIPTED_BYTES_MAX]).into();
        assert!(keys.add_scripted("j", &large).is_err());
    }
}
