//! Certificates that scripts choose: asked of the supervisor, and known for a while.
//!
//! The idea: whoever wants the same waits for the same question. What was answered counts for a moment, after which
//! it is asked again whether it still holds, so that a changed file is seen within seconds; what is refused is
//! remembered likewise. Two halves bound what is kept: when one is full, the other, which was full before, is
//! forgotten but for what was used since. Another keeper's numbers end all of it.

use std::collections::HashMap;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{SHA256, digest};
use ipc::certificates::KeyKind;
use ipc::scripted::{
    CertificateAnswer, CertificateQuestion, FoundCertificate, KnownCertificate, Wanted,
};
use ipc::server::{LinkSender, ToSupervisor};
use rustls::pki_types::CertificateDer;
use tokio::sync::oneshot;

/// How long what stands in files is taken to be as it was, and how long a refusal counts.
const FILES_COUNT: Duration = Duration::from_secs(2);
/// How long a certificate counts that came as data, before its key is asked for again.
const DATA_COUNTS: Duration = Duration::from_secs(60);
/// How long the supervisor may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// How long who knows a certificate that counted until lately waits to hear whether it still does.
const PATIENCE: Duration = Duration::from_millis(300);
/// Questions under way at once.
const QUESTIONS_MAX: usize = ipc::scripted::QUESTIONS_MAX;
/// Certificates and refusals in each half.
const HALF_MAX: usize = 5_000;
/// Bytes of chains in each half.
const HALF_BYTES_MAX: usize = 16 << 20;

/// A certificate, ready to be shown.
#[derive(Debug)]
pub(crate) struct ScriptCertificate {
    known: KnownCertificate,
    /// What its key is.
    pub(crate) kind: KeyKind,
    /// It and those that vouch for it.
    pub(crate) chain: Vec<CertificateDer<'static>>,
}

/// A certificate, or why there is none.
type Certified = Result<Arc<ScriptCertificate>, Arc<str>>;
/// What is wanted for which site, in short.
type Digest = [u8; 32];

/// What is known of them, and the way to ask.
#[derive(Debug, Default)]
pub(crate) struct Certifier {
    supervisor: OnceLock<LinkSender>,
    /// To the thread that asks, once somebody did.
    questions: OnceLock<Option<SyncSender<CertificateQuestion>>>,
    /// Held for one look, or to take an answer.
    known: Mutex<All>,
}

#[derive(Debug, Default)]
struct All {
    young: HashMap<Digest, Entry>,
    young_bytes: usize,
    old: HashMap<Digest, Entry>,
    /// Questions under way, and since when.
    asked: HashMap<u64, (Digest, Instant)>,
    last: u64,
}

#[derive(Debug, Default)]
struct Entry {
    outcome: Option<Certified>,
    /// Until when it counts.
    until: Option<Instant>,
    is_of_files: bool,
    /// Whether a question is under way, since when.
    asked: Option<Instant>,
    waiting: Vec<oneshot::Sender<Certified>>,
}

/// What becomes of who wants a certificate.
enum Asking {
    Known(Certified),
    /// It waits for so long, and asks if it is the first.
    Waits(
        Duration,
        oneshot::Receiver<Certified>,
        Option<(u64, Option<KnownCertificate>)>,
    ),
}

impl ScriptCertificate {
    /// The key's number.
    pub(crate) fn key(&self) -> ipc::certificates::KeyId {
        self.known.key
    }

    fn bytes(&self) -> usize {
        self.chain.iter().map(|der| der.len()).sum()
    }
}

impl Certifier {
    /// Asks over this link.
    pub(crate) fn ask_over(&self, supervisor: &LinkSender) {
        // There is one link in a server's life.
        let _ = self.supervisor.set(supervisor.clone());
    }

    /// Waits for the certificate that a script of a site wants.
    pub(crate) async fn find(&self, site: &str, wanted: Wanted) -> Certified {
        let digest = digest_of(site, &wanted);
        let is_of_files = matches!(wanted, Wanted::Files { .. });
        let asking = self.lock().ask(digest, is_of_files, Instant::now());
        let (patience, outcome, question) = match asking {
            Asking::Known(outcome) => return outcome,
            Asking::Waits(patience, outcome, question) => (patience, outcome, question),
        };
        if let Some((number, known)) = question {
            let site = site.to_owned();
            let question = CertificateQuestion {
                number,
                site,
                wanted,
                known,
            };
            if !self.send(question) {
                let found = Err("there is nobody to ask for a certificate".to_owned());
                self.hear(CertificateAnswer { number, found });
            }
        }
        match tokio::time::timeout(patience, outcome).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) | Err(_) => self
                .lock()
                .last_good(&digest)
                .ok_or_else(|| Arc::from("the supervisor does not say what certificate that is")),
        }
    }

    /// Takes an answer.
    pub(crate) fn hear(&self, answer: CertificateAnswer) {
        let (waiting, outcome) = self.lock().hear(answer, Instant::now());
        for one in waiting {
            // Who waited may have gone.
            let _ = one.send(outcome.clone());
        }
    }

    /// Forgets everything: another keeper numbers keys anew.
    pub(crate) fn forget(&self) {
        let mut known = self.lock();
        let forgotten = std::mem::take(&mut *known);
        // An answer to an earlier question means nothing any more.
        known.last = forgotten.last;
        drop(known);
    }

    /// Hands a question to the thread that asks; no worker waits for the link.
    fn send(&self, question: CertificateQuestion) -> bool {
        let sender = self.questions.get_or_init(|| {
            let link = self.supervisor.get()?.clone();
            let (sender, questions) = sync_channel::<CertificateQuestion>(QUESTIONS_MAX);
            let ask = move || {
                for question in questions {
                    // Without a supervisor nobody waits for long.
                    let _ = link.send(&ToSupervisor::Certificate(question));
                }
            };
            let thread = std::thread::Builder::new().name("certifier".to_owned());
            thread.spawn(ask).ok().map(|_| sender)
        });
        let sent = sender.as_ref().map(|sender| sender.try_send(question));
        matches!(sent, Some(Ok(())))
    }

    fn lock(&self) -> MutexGuard<'_, All> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl All {
    fn ask(&mut self, digest: Digest, is_of_files: bool, now: Instant) -> Asking {
        self.make_room(now);
        if let Some(entry) = self.old.remove(&digest) {
            self.young_bytes += entry.bytes();
            self.young.insert(digest, entry);
        }
        let entry = self.young.entry(digest).or_default();
        if let Some(outcome) = &entry.outcome
            && entry.until.is_some_and(|until| now < until)
        {
            return Asking::Known(outcome.clone());
        }
        let good = entry.outcome.clone().filter(Result::is_ok);
        let is_under_way = entry.asked.is_some_and(|asked| now < asked + ANSWER_MAX);
        if !is_under_way && self.asked.len() >= QUESTIONS_MAX {
            let busy = || {
                Err(Arc::from(
                    "as many certificates are asked for as may be at once",
                ))
            };
            return Asking::Known(good.unwrap_or_else(busy));
        }
        let patience = if good.is_some() { PATIENCE } else { ANSWER_MAX };
        let (sender, receiver) = oneshot::channel();
        entry.waiting.retain(|waiting| !waiting.is_closed());
        entry.waiting.push(sender);
        entry.is_of_files = is_of_files;
        let question = (!is_under_way).then(|| {
            entry.asked = Some(now);
            self.last += 1;
            self.asked.insert(self.last, (digest, now));
            (self.last, entry.known())
        });
        Asking::Waits(patience, receiver, question)
    }

    /// Takes an answer; tells who waits for it, and what they hear.
    fn hear(
        &mut self,
        answer: CertificateAnswer,
        now: Instant,
    ) -> (Vec<oneshot::Sender<Certified>>, Certified) {
        let lost = || Err(Arc::from("nobody asked for it"));
        let digest = self.asked.remove(&answer.number);
        let entry = digest.and_then(|(digest, _)| {
            let young = self.young.get_mut(&digest);
            young.or_else(|| self.old.get_mut(&digest))
        });
        let Some(entry) = entry else {
            return (Vec::new(), lost());
        };
        let before = entry.bytes();
        let outcome = match answer.found {
            Ok(Some(found)) => Ok(Arc::new(ready(found))),
            Ok(None) => entry.outcome.clone().unwrap_or_else(lost),
            Err(why) => Err(Arc::from(why)),
        };
        let counts = match &outcome {
            Ok(_) if !entry.is_of_files => DATA_COUNTS,
            _ => FILES_COUNT,
        };
        entry.until = Some(now + counts);
        entry.outcome = Some(outcome.clone());
        entry.asked = None;
        let waiting = std::mem::take(&mut entry.waiting);
        self.young_bytes = (self.young_bytes + entry.bytes()).saturating_sub(before);
        (waiting, outcome)
    }

    /// What was known last, if that is a certificate.
    fn last_good(&self, digest: &Digest) -> Option<Arc<ScriptCertificate>> {
        let entry = self.young.get(digest)?;
        entry.outcome.clone()?.ok()
    }

    fn make_room(&mut self, now: Instant) {
        if self.young.len() >= HALF_MAX || self.young_bytes >= HALF_BYTES_MAX {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        if self.asked.len() >= QUESTIONS_MAX {
            // What was not answered by now never will be.
            self.asked
                .retain(|_, (_, since)| now < *since + 10 * ANSWER_MAX);
        }
    }
}

impl Entry {
    fn known(&self) -> Option<KnownCertificate> {
        let outcome = self.outcome.as_ref()?.as_ref();
        outcome.ok().map(|certificate| certificate.known)
    }

    fn bytes(&self) -> usize {
        let outcome = self.outcome.as_ref().and_then(|it| it.as_ref().ok());
        outcome.map_or(0, |certificate| certificate.bytes())
    }
}

fn ready(found: FoundCertificate) -> ScriptCertificate {
    let chain = found.chain.into_iter();
    ScriptCertificate {
        known: found.known,
        kind: found.kind,
        chain: chain
            .map(|der| CertificateDer::from(der.0.into_vec()))
            .collect(),
    }
}

/// What is wanted, in so few bytes that keys need not be kept.
fn digest_of(site: &str, wanted: &Wanted) -> Digest {
    let mut text = Vec::new();
    let (word, parts): (&[u8], [&[u8]; 2]) = match wanted {
        Wanted::Files { chain, key } => (b"files", [chain.as_bytes(), key.as_bytes()]),
        Wanted::Data { chain, key } => (b"data", [&chain.0, &key.0]),
    };
    for part in [word, site.as_bytes(), parts[0], parts[1]] {
        text.extend_from_slice(&part.len().to_be_bytes());
        text.extend_from_slice(part);
    }
    let mut short = [0; 32];
    for (to, from) in short.iter_mut().zip(digest(&SHA256, &text).as_ref()) {
        *to = *from;
    }
    short
}

#[cfg(test)]
mod tests {
    use ipc::certificates::{Blob, KeyId};

    use super::*;

    fn found(mark: u64) -> FoundCertificate {
        let known = KnownCertificate {
            mark,
            key: KeyId(7),
        };
        FoundCertificate {
            known,
            kind: KeyKind::P256,
            chain: vec![Blob::from(vec![0; 100])],
        }
    }

    fn answer(number: u64, found: Result<Option<FoundCertificate>, String>) -> CertificateAnswer {
        CertificateAnswer { number, found }
    }

    /// Asks, and has to wait; the question, if there is one.
    fn wait(
        all: &mut All,
        digest: Digest,
        now: Instant,
    ) -> (
        oneshot::Receiver<Certified>,
        Option<(u64, Option<KnownCertificate>)>,
    ) {
        match all.ask(digest, true, now) {
            Asking::Waits(_, outcome, question) => (outcome, question),
            Asking::Known(outcome) => panic!("{outcome:?} is known"),
        }
    }

    /// Takes an answer for which nobody waits here.
    fn hear(all: &mut All, answer: CertificateAnswer, now: Instant) {
        drop(all.hear(answer, now));
    }

    fn mark(outcome: &Certified) -> Option<u64> {
        outcome.as_ref().ok().map(|it| it.known.mark)
    }

    #[test]
    fn all_who_want_the_same_wait_for_one_question_and_it_is_asked_again_in_time() {
        let (certifier, now) = (Certifier::default(), Instant::now());
        let (mut first, question) = wait(&mut certifier.lock(), [1; 32], now);
        let (number, known) = question.expect("a question");
        assert_eq!(known, None);
        let (mut second, none) = wait(&mut certifier.lock(), [1; 32], now);
        assert_eq!(none, None, "one question is enough");
        certifier.hear(answer(number, Ok(Some(found(3)))));
        for waiting in [&mut first, &mut second] {
            let outcome = waiting.try_recv().expect("an answer");
            assert_eq!(mark(&outcome), Some(3));
        }
        let soon = Instant::now();
        let asking = certifier.lock().ask([1; 32], true, soon);
        assert!(matches!(asking, Asking::Known(outcome) if mark(&outcome) == Some(3)));
        let later = soon + FILES_COUNT;
        let (mut third, question) = wait(&mut certifier.lock(), [1; 32], later);
        let (number, known) = question.expect("a question");
        assert_eq!(known.map(|known| known.mark), Some(3));
        certifier.hear(answer(number, Ok(None)));
        assert_eq!(mark(&third.try_recv().expect("an answer")), Some(3));
        let (_, question) = wait(&mut certifier.lock(), [1; 32], later + DATA_COUNTS);
        certifier.hear(answer(question.expect("a question").0, Err("gone".into())));
        let asking = certifier.lock().ask([1; 32], true, Instant::now());
        assert!(matches!(asking, Asking::Known(Err(why)) if &*why == "gone"));
    }

    #[test]
    fn an_answer_that_does_not_come_is_asked_for_again() {
        let (mut all, now) = (All::default(), Instant::now());
        let (_first, question) = wait(&mut all, [1; 32], now);
        assert!(question.is_some());
        assert!(wait(&mut all, [1; 32], now + ANSWER_MAX / 2).1.is_none());
        assert!(wait(&mut all, [1; 32], now + ANSWER_MAX).1.is_some());
    }

    #[test]
    fn so_many_questions_are_under_way_and_what_was_good_goes_on_being_shown() {
        let (mut all, now) = (All::default(), Instant::now());
        let (_outcome, question) = wait(&mut all, [0; 32], now);
        hear(
            &mut all,
            answer(question.expect("new").0, Ok(Some(found(1)))),
            now,
        );
        let later = now + FILES_COUNT;
        assert!(matches!(
            all.ask([0; 32], true, later),
            Asking::Waits(PATIENCE, _, Some(_))
        ));
        for number in 1..QUESTIONS_MAX {
            let mut digest = [1; 32];
            digest[..8].copy_from_slice(&number.to_be_bytes());
            let asking = all.ask(digest, true, later);
            assert!(matches!(asking, Asking::Waits(ANSWER_MAX, _, Some(_))));
        }
        let much_later = later + ANSWER_MAX;
        let asking = all.ask([0; 32], true, much_later);
        assert!(matches!(asking, Asking::Known(outcome) if mark(&outcome) == Some(1)));
        let asking = all.ask([9; 32], true, much_later);
        assert!(matches!(asking, Asking::Known(Err(_))));
        assert!(wait(&mut all, [9; 32], later + 10 * ANSWER_MAX).1.is_some());
    }

    #[test]
    fn what_is_known_is_bounded_and_what_is_used_stays() {
        let (mut all, mut now) = (All::default(), Instant::now());
        let digest = |number: u64| {
            let mut digest = [0; 32];
            digest[..8].copy_from_slice(&number.to_be_bytes());
            digest
        };
        let mut asked = 0;
        for number in 1..=3 * HALF_MAX as u64 {
            let (_outcome, question) = wait(&mut all, digest(number), now);
            hear(
                &mut all,
                answer(question.expect("new").0, Ok(Some(found(number)))),
                now,
            );
            if number % 100 == 0 {
                // The first is used now and then, and never asked for as if nobody knew it.
                now += FILES_COUNT;
                let (_outcome, question) = wait(&mut all, digest(1), now);
                let (number, known) = question.expect("it is time");
                asked += u32::from(known.is_some());
                hear(&mut all, answer(number, Ok(None)), now);
            }
            assert!(all.young.len() <= HALF_MAX && all.old.len() <= HALF_MAX);
            assert!(all.young_bytes <= HALF_BYTES_MAX + 100);
        }
        assert_eq!(asked, 3 * HALF_MAX as u32 / 100);
        assert!(all.asked.is_empty());
        let large = FoundCertificate {
            chain: vec![Blob::from(vec![0; HALF_BYTES_MAX])],
            ..found(0)
        };
        let (_outcome, question) = wait(&mut all, [9; 32], now);
        hear(
            &mut all,
            answer(question.expect("new").0, Ok(Some(large))),
            now,
        );
        drop(wait(&mut all, [8; 32], now));
        assert_eq!((all.young.len(), all.young_bytes), (1, 0));
    }

    #[test]
    fn another_keeper_ends_what_is_known_and_earlier_answers_mean_nothing() {
        let (certifier, now) = (Certifier::default(), Instant::now());
        let (mut outcome, question) = wait(&mut certifier.lock(), [1; 32], now);
        certifier.forget();
        certifier.hear(answer(question.expect("a question").0, Ok(Some(found(1)))));
        assert!(outcome.try_recv().is_err());
        let (_outcome, question) = wait(&mut certifier.lock(), [1; 32], now);
        assert_eq!(question, Some((2, None)));
    }

    #[test]
    fn what_is_wanted_is_told_apart_by_site_kind_and_part() {
        let files = |chain: &str, key: &str| Wanted::Files {
            chain: chain.into(),
            key: key.into(),
        };
        let data = Wanted::Data {
            chain: Blob::from(*b"a"),
            key: Blob::from(*b"b"),
        };
        let all = [
            digest_of("x", &files("a", "b")),
            digest_of("y", &files("a", "b")),
            digest_of("x", &files("ab", "")),
            digest_of("x", &files("", "ab")),
            digest_of("x", &data),
        ];
        let apart: std::collections::HashSet<_> = all.into_iter().collect();
        assert_eq!(apart.len(), 5);
    }
}
