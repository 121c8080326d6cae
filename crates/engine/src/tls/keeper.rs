//! Asking the keeper: the server's ends of its links, one for each handshake thread.
//!
//! The idea: whoever asks waits, so only handshake threads do. While there is no keeper nobody begins what needs
//! one: [`Keeper::is_lost`] is what the queue of handshakes looks at, and resumptions go on. A step that was under way
//! waits a moment for the next keeper, and then fails.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use ipc::certificates::{KeyId, KeyKind};
use ipc::signing::{Answer, Asked, KeeperLink, Parts, Refusal, Sign};
use rustls::sign::{Signer, SigningKey};
use rustls::{SignatureAlgorithm, SignatureScheme};

/// How long the keeper may take for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// How long a step that is under way waits for the next keeper.
const NEXT_MAX: Duration = Duration::from_millis(300);

/// The link for those who are on no handshake thread.
pub(crate) const ASIDE: usize = usize::MAX;

/// There is no keeper now, or it does not answer.
pub(crate) const KEEPER_LOST: &str = "keeper_lost";
/// The keeper does not sign this, or not so often.
pub(crate) const KEEPER_REFUSED: &str = "keeper_refused";

/// The links to the keeper.
#[derive(Debug, Default)]
pub(crate) struct Keeper {
    /// Held to take a link, to give it back, or to replace all.
    links: Mutex<Links>,
    replaced: Condvar,
    is_there: AtomicBool,
    signatures: AtomicU64,
    /// By reason, in the order of [`Refusal::ALL`].
    refused: [AtomicU64; Refusal::ALL.len()],
}

#[derive(Debug, Default)]
struct Links {
    /// By thread; `None`: in use, or broken.
    free: Vec<Option<KeeperLink>>,
    /// How often they were replaced.
    version: u64,
    /// Who wait for one.
    awaited_by: usize,
}

impl Links {
    /// That of a thread; the last for whoever is [`ASIDE`].
    fn place(&mut self, thread: usize) -> Option<&mut Option<KeeperLink>> {
        let last = self.free.len().checked_sub(1)?;
        self.free.get_mut(thread.min(last))
    }
}

impl Keeper {
    /// Asks over these links from now on.
    pub(crate) fn replace(&self, links: Vec<OwnedFd>) {
        let mut held = self.lock();
        held.version += 1;
        let before = std::mem::take(&mut held.free);
        held.free = links.into_iter().map(KeeperLink::new).map(Some).collect();
        self.is_there.store(!held.free.is_empty(), Relaxed);
        drop(held);
        drop(before);
        self.replaced.notify_all();
    }

    /// Whether there is no keeper now.
    pub(crate) fn is_lost(&self) -> bool {
        !self.is_there.load(Relaxed)
    }

    /// How many signatures it made.
    pub(crate) fn signatures(&self) -> u64 {
        self.signatures.load(Relaxed)
    }

    /// How often it refused, by the word for why.
    pub(crate) fn refused(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = Refusal::ALL.iter().zip(&self.refused);
        counts.map(|(refusal, count)| (refusal.word(), count.load(Relaxed)))
    }

    fn count(&self, answer: &Answer) {
        match answer {
            Answer::Signature { .. } => {
                self.signatures.fetch_add(1, Relaxed);
            }
            Answer::Refused(refusal) => {
                let place = Refusal::ALL.iter().position(|it| it == refusal);
                if let Some(count) = place.and_then(|place| self.refused.get(place)) {
                    count.fetch_add(1, Relaxed);
                }
            }
            Answer::TicketKeys(_) => {}
        }
    }

    /// Asks on a handshake thread, and waits for the answer.
    ///
    /// # Errors
    /// The reason why there is none.
    pub(crate) fn ask(&self, thread: usize, what: &Asked) -> Result<Answer, &'static str> {
        let until = Instant::now() + NEXT_MAX;
        loop {
            let (mut link, version) = self.take(thread, until).ok_or(KEEPER_LOST)?;
            match link.ask(what.clone(), ANSWER_MAX) {
                Ok(answer) => {
                    self.give_back(thread, link, version);
                    self.count(&answer);
                    return Ok(answer);
                }
                Err(error) if error.kind() == std::io::ErrorKind::TimedOut => {
                    // It may be busy; what comes late is passed over.
                    self.give_back(thread, link, version);
                    return Err(KEEPER_LOST);
                }
                Err(error) => self.lose(version, &error),
            }
        }
    }

    /// Takes a thread's link, once there is one.
    fn take(&self, thread: usize, until: Instant) -> Option<(KeeperLink, u64)> {
        let mut links = self.lock();
        loop {
            let place = links.place(thread);
            if let Some(link) = place.and_then(Option::take) {
                return Some((link, links.version));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            links.awaited_by += 1;
            let waited = self.replaced.wait_timeout(links, left);
            links = waited.unwrap_or_else(PoisonError::into_inner).0;
            links.awaited_by -= 1;
        }
    }

    fn give_back(&self, thread: usize, link: KeeperLink, version: u64) {
        let mut links = self.lock();
        if links.version == version
            && let Some(place) = links.place(thread)
        {
            *place = Some(link);
            // Of several who ask aside, one goes on. To tell nobody costs a call of the kernel, too.
            if links.awaited_by > 0 {
                self.replaced.notify_all();
            }
        }
    }

    /// Takes note that the keeper of these links does not answer any more.
    fn lose(&self, version: u64, error: &std::io::Error) {
        let links = self.lock();
        if links.version == version && self.is_there.swap(false, Relaxed) {
            drop(links);
            let error = config::reason(error);
            tracing::warn!(
                error,
                "the keeper of private keys has gone; full handshakes wait for the next"
            );
        }
    }

    fn lock(&self) -> MutexGuard<'_, Links> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A key of the keeper's, to be used by one handshake, on the thread that makes its step.
#[derive(Clone)]
pub(crate) struct KeeperKey {
    keeper: Arc<Keeper>,
    key: KeyId,
    kind: KeyKind,
    told: Arc<Told>,
}

/// What a step and its signatures tell each other.
#[derive(Debug, Default)]
struct Told {
    /// The thread whose step it is.
    thread: AtomicUsize,
    spent_us: AtomicU64,
    failed: OnceLock<&'static str>,
}

impl KeeperKey {
    /// The key of this number.
    pub(crate) fn new(keeper: Arc<Keeper>, key: KeyId, kind: KeyKind) -> Self {
        Self {
            keeper,
            key,
            kind,
            told: Arc::default(),
        }
    }

    /// A step begins on this thread, whose link is to be used from now on.
    pub(crate) fn step_on(&self, thread: usize) {
        self.told.thread.store(thread, Relaxed);
    }

    /// What the keeper spent for it since that was asked last, in nanoseconds of processor time.
    pub(crate) fn take_spent_ns(&self) -> u64 {
        self.told.spent_us.swap(0, Relaxed).saturating_mul(1_000)
    }

    /// Why it was not signed with, if it should have been.
    pub(crate) fn failed(&self) -> Option<&'static str> {
        self.told.failed.get().copied()
    }

    fn sign(&self, scheme: SignatureScheme, message: &[u8]) -> Result<Vec<u8>, &'static str> {
        let parts = Parts::of_message(message).ok_or(KEEPER_REFUSED)?;
        let what = Asked::Sign(Sign {
            key: self.key,
            scheme: scheme.into(),
            parts,
        });
        match self.keeper.ask(self.told.thread.load(Relaxed), &what)? {
            Answer::Signature { bytes, cpu_us } => {
                self.told.spent_us.fetch_add(cpu_us.into(), Relaxed);
                Ok(bytes)
            }
            Answer::Refused(refusal) => {
                tracing::debug!(
                    key = self.key.0,
                    why = refusal.word(),
                    "the keeper does not sign"
                );
                Err(KEEPER_REFUSED)
            }
            Answer::TicketKeys(_) => Err(KEEPER_REFUSED),
        }
    }
}

impl fmt::Debug for KeeperKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeeperKey({}, {:?})", self.key.0, self.kind)
    }
}

/// The schemes a kind of key signs by, the ones that are preferred first.
fn schemes(kind: KeyKind) -> &'static [SignatureScheme] {
    use SignatureScheme as By;
    match kind {
        KeyKind::Rsa { .. } => &[
            By::RSA_PSS_SHA256,
            By::RSA_PSS_SHA384,
            By::RSA_PSS_SHA512,
            By::RSA_PKCS1_SHA256,
            By::RSA_PKCS1_SHA384,
            By::RSA_PKCS1_SHA512,
        ],
        KeyKind::P256 => &[By::ECDSA_NISTP256_SHA256],
        KeyKind::P384 => &[By::ECDSA_NISTP384_SHA384],
        KeyKind::P521 => &[By::ECDSA_NISTP521_SHA512],
        KeyKind::Ed25519 => &[By::ED25519],
    }
}

impl SigningKey for KeeperKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let mut known = schemes(self.kind).iter();
        let scheme = *known.find(|scheme| offered.contains(scheme))?;
        Some(Box::new(KeeperSigner {
            key: self.clone(),
            scheme,
        }))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        match self.kind {
            KeyKind::Rsa { .. } => SignatureAlgorithm::RSA,
            KeyKind::P256 | KeyKind::P384 | KeyKind::P521 => SignatureAlgorithm::ECDSA,
            KeyKind::Ed25519 => SignatureAlgorithm::ED25519,
        }
    }
}

#[derive(Debug)]
struct KeeperSigner {
    key: KeeperKey,
    scheme: SignatureScheme,
}

impl Signer for KeeperSigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        self.key.sign(self.scheme, message).map_err(|reason| {
            // The first reason is the one that ends the handshake.
            let _ = self.key.told.failed.set(reason);
            rustls::Error::General(reason.to_owned())
        })
    }

    fn scheme(&self) -> SignatureScheme {
        self.scheme
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use ipc::signing::{QUESTION_BYTES_MAX, Question};

    use super::*;

    /// What is signed in TLS 1.3 over a transcript of zeros.
    fn message() -> Vec<u8> {
        let transcript = vec![0; 32];
        Parts::Tls13 { transcript }.message().expect("a message")
    }

    /// A keeper that answers so many questions with this, and goes.
    fn answering(end: OwnedFd, answers: Vec<Answer>) -> std::thread::JoinHandle<Vec<Asked>> {
        std::thread::spawn(move || {
            let answer = |answer: Answer| {
                let mut buffer = [0; QUESTION_BYTES_MAX];
                let question = Question::recv(end.as_fd(), &mut buffer).expect("a question");
                answer.try_send(question.number, end.as_fd()).expect("sent");
                question.what
            };
            answers.into_iter().map(answer).collect()
        })
    }

    fn signature() -> Answer {
        Answer::Signature {
            bytes: vec![1, 2, 3],
            cpu_us: 40,
        }
    }

    fn key(keeper: &Arc<Keeper>) -> KeeperKey {
        KeeperKey::new(Arc::clone(keeper), KeyId(7), KeyKind::P256)
    }

    #[test]
    fn a_signature_is_asked_for_by_number_and_what_it_took_is_told() {
        let keeper = Arc::<Keeper>::default();
        assert!(keeper.is_lost());
        let (here, there) = os::fdpass::packet_pair().expect("a link");
        keeper.replace(vec![here]);
        assert!(!keeper.is_lost());
        let refused = Answer::Refused(Refusal::KeyCap);
        let other = answering(there, vec![signature(), refused]);
        let key = key(&keeper);
        let offered = [
            SignatureScheme::ED25519,
            SignatureScheme::ECDSA_NISTP256_SHA256,
        ];
        let signer = key.choose_scheme(&offered).expect("a scheme");
        assert_eq!(signer.sign(&message()).expect("a signature"), [1, 2, 3]);
        assert_eq!((key.take_spent_ns(), key.failed()), (40_000, None));
        assert_eq!(key.take_spent_ns(), 0, "it was told already");
        assert!(signer.sign(&message()).is_err());
        assert_eq!(key.failed(), Some(KEEPER_REFUSED));
        let refused: Vec<_> = keeper.refused().filter(|(_, count)| *count > 0).collect();
        assert_eq!((keeper.signatures(), refused), (1, vec![("key_cap", 1)]));
        let asked = other.join().expect("no panic");
        assert!(
            matches!(&asked[0], Asked::Sign(sign) if sign.key == KeyId(7) && sign.scheme == 0x0403)
        );
        assert!(
            signer.sign(b"what a client made up").is_err(),
            "nothing that TLS signs"
        );
        assert!(key.choose_scheme(&[SignatureScheme::ED25519]).is_none());
    }

    #[test]
    fn who_asks_a_keeper_that_has_gone_is_answered_by_the_next() {
        let keeper = Arc::<Keeper>::default();
        let (here, there) = os::fdpass::packet_pair().expect("a link");
        keeper.replace(vec![here]);
        drop(there);
        let asking = {
            let key = key(&keeper);
            std::thread::spawn(move || key.sign(SignatureScheme::ECDSA_NISTP256_SHA256, &message()))
        };
        while !keeper.is_lost() {
            std::thread::yield_now();
        }
        let (here, there) = os::fdpass::packet_pair().expect("a link");
        let other = answering(there, vec![signature()]);
        keeper.replace(vec![here]);
        assert!(asking.join().expect("no panic").is_ok());
        other.join().expect("no panic");
    }

    #[test]
    fn without_a_keeper_a_step_fails_soon() {
        let keeper = Arc::<Keeper>::default();
        let begun = Instant::now();
        let failed = key(&keeper).sign(SignatureScheme::ECDSA_NISTP256_SHA256, &message());
        assert_eq!(failed, Err(KEEPER_LOST));
        assert!(begun.elapsed() >= NEXT_MAX);
    }
}
