//! The certificates of a generation: read, judged by the keeper, and renewed while it serves.
//!
//! The idea: one pass looks at every file there is to be. What is as it was stays what it was
//! found to be; the rest is read and judged in batches. At a start or a reload what is wrong
//! refuses the whole, unless what stood there before still holds; a file that changes later makes
//! another set, and a wrong one keeps what it was and says so.

pub mod plan;
pub(crate) mod scripted;

use std::collections::{BTreeMap, HashSet};
use std::io::{self, ErrorKind};
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ipc::certificates::{
    Blob, Broken, Certificate, CertificateSet, Interned, KeyId, Source, Validity,
};
use ipc::keeper::{BATCH_BYTES_MAX, BATCH_MAX, Candidate, Judged};

use self::plan::{Harm, Plan, Planned, Stamp};
use self::scripted::Scripted;
use crate::authority;
use crate::keeper::Keys;

/// How often files are looked at, at most.
const LOOK: Duration = Duration::from_secs(2);
/// Of this process's time looking at them takes a hundredth, unless they would be looked at more seldom than this.
const LOOK_SHARE: u32 = 100;
const LOOK_AT_LEAST: Duration = Duration::from_secs(10);
/// How long a key that is in no set any more may still be asked for.
const KEY_LINGERS: Duration = Duration::from_secs(60);
/// A certificate made here is made again when it has less to live.
const LOCAL_LEFT_S: i64 = 30 * 86_400;

/// The certificates of a generation.
#[derive(Debug)]
pub(super) struct Certificates {
    plan: Plan,
    /// Where the authority for development is kept.
    authority: PathBuf,
    entries: BTreeMap<Source, Entry>,
    /// What could not be looked through the last time, and why.
    unread: Vec<String>,
    /// The keeper that judged them.
    life: u64,
    /// DER that many chains have, each once.
    shared: HashSet<Arc<Blob>>,
    next_look: Instant,
    /// When keys that are in no set any more are to be forgotten.
    forget: Option<Instant>,
}

/// What is known of a source.
#[derive(Debug, Clone)]
struct Entry {
    stamps: Option<(Stamp, Option<Stamp>)>,
    found: Option<Arc<Found>>,
    /// What is wrong with what stands there.
    problem: Option<String>,
    /// The keeper that judged it.
    life: u64,
}

/// A certificate as it was judged.
#[derive(Debug)]
struct Found {
    judged: Judged,
    chain: Vec<Arc<Blob>>,
}

/// Why certificates cannot be had.
#[derive(Debug)]
pub(super) enum Lacking {
    /// They are wrong: a problem each.
    Wrong(Vec<String>),
    /// There is no keeper to judge them.
    Keeper(String),
}

impl Lacking {
    /// What is to be said, a problem each.
    pub(super) fn into_problems(self) -> Vec<String> {
        match self {
            Lacking::Wrong(problems) => problems,
            Lacking::Keeper(problem) => vec![problem],
        }
    }
}

/// What a source that is wrong does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// It refuses all, unless it has a certificate from before.
    Plan,
    /// It keeps what it had.
    Look,
}

impl Certificates {
    /// Reads what is planned, beside what is known of a generation before.
    pub(super) fn prepare(
        plan: Plan,
        authority: PathBuf,
        before: Option<&Certificates>,
        keys: &mut Keys,
    ) -> Result<Certificates, Lacking> {
        if let Some(before) = before {
            let lost = plan.lost(&before.plan, before.files());
            if !lost.is_empty() {
                return Err(Lacking::Wrong(lost.into_iter().map(lacking).collect()));
            }
        }
        for missing in plan.missing() {
            tracing::warn!("{missing}");
        }
        let mut certificates = Certificates {
            plan,
            authority,
            life: 0,
            unread: Vec::new(),
            entries: before.map_or_else(BTreeMap::new, |before| before.entries.clone()),
            shared: before.map_or_else(HashSet::new, |before| before.shared.clone()),
            next_look: Instant::now() + LOOK,
            forget: before.map(|_| Instant::now() + KEY_LINGERS),
        };
        certificates.pass(keys, Mode::Plan)?;
        Ok(certificates)
    }

    /// Has everything judged again by a keeper that knows nothing.
    pub(super) fn renew(&mut self, keys: &mut Keys) -> Result<(), Lacking> {
        self.pass(keys, Mode::Look).map(drop)
    }

    /// When files are to be looked at.
    pub(super) fn next_look(&self) -> Instant {
        self.next_look
    }

    /// Looks at files not before a while has passed.
    pub(super) fn look_later(&mut self) {
        self.next_look = Instant::now() + LOOK;
    }

    /// Looks at the files; tells whether something changed.
    pub(super) fn look(&mut self, keys: &mut Keys) -> Result<bool, Lacking> {
        let begun = Instant::now();
        let changed = self.pass(keys, Mode::Look);
        let now = Instant::now();
        self.next_look = now + ((now - begun) * LOOK_SHARE).clamp(LOOK, LOOK_AT_LEAST);
        if matches!(changed, Ok(true)) {
            self.forget = Some(now + KEY_LINGERS);
        }
        if self.forget.is_some_and(|forget| forget <= now) {
            self.forget = None;
            let told = keys.keep(self.keys());
            told.map_err(Lacking::Keeper)?;
        }
        changed
    }

    /// Has files looked at now.
    pub(super) fn look_soon(&mut self) {
        self.next_look = Instant::now();
    }

    /// The certificate of a source, and it as DER, where there is one.
    pub(super) fn judged(&self, source: &Source) -> Option<(&Judged, Option<&Blob>)> {
        let found = self.entries.get(source)?.found.as_ref()?;
        Some((&found.judged, found.chain.first().map(|leaf| &**leaf)))
    }

    /// What authorities have issued: the paths of chains in stores, and until when each is valid.
    pub(super) fn ordered(&self) -> impl Iterator<Item = (&str, i64)> {
        self.entries.iter().filter_map(|(source, entry)| {
            let found = entry.found.as_ref()?;
            match source {
                Source::Acme(path) => Some((path.as_str(), found.judged.not_after_s)),
                Source::File(_) | Source::Upstream(_) | Source::Local(_) => None,
            }
        })
    }

    /// The files that certificates for clients were found in.
    fn files(&self) -> impl Iterator<Item = &Path> + Clone {
        let found = self.entries.iter().filter(|(_, it)| it.found.is_some());
        found.filter_map(|(source, _)| match source {
            Source::File(path) => Some(Path::new(path)),
            Source::Upstream(_) | Source::Acme(_) | Source::Local(_) => None,
        })
    }

    /// How many sources have something wrong in them, which a start would refuse.
    pub(super) fn broken(&self) -> usize {
        let entries = self.entries.values();
        entries.filter(|entry| entry.problem.is_some()).count()
    }

    /// What scripts may choose.
    pub(super) fn scripted(&self) -> &Scripted {
        &self.plan.scripted
    }

    /// Has keys that nobody asks for forgotten, in a while.
    pub(super) fn forget_keys(&mut self, now: Instant) {
        self.forget.get_or_insert(now + KEY_LINGERS);
    }

    /// The numbers of all keys.
    pub(super) fn keys(&self) -> Vec<KeyId> {
        let found = self.entries.values().filter_map(|it| it.found.as_ref());
        found.map(|found| found.judged.key).collect()
    }

    /// The keeper whose numbers the keys have.
    pub(super) fn life(&self) -> u64 {
        self.life
    }

    /// Their set, as a server takes it.
    pub(super) fn set(&self) -> io::Result<OwnedFd> {
        let mut interned = Interned::default();
        let mut set = CertificateSet {
            number: os::cpu::monotonic_us(),
            ..CertificateSet::default()
        };
        let tenants = self.plan.tenants();
        for (source, entry) in &self.entries {
            match (&entry.found, &entry.problem) {
                (Some(found), problem) => {
                    let chain = found.chain.iter();
                    let chain = chain.map(|blob| interned.place((**blob).clone()));
                    let chain = chain.collect();
                    let mut certificate = found.certificate(source, chain, problem.clone());
                    certificate.tenant = tenants.get(source).map(|&tenant| tenant.to_owned());
                    set.certificates.push(certificate);
                }
                (None, Some(problem)) => set.broken.push(Broken {
                    source: source.clone(),
                    problem: problem.clone(),
                }),
                // It is still to be written.
                (None, None) => {}
            }
        }
        set.blobs = interned.into_blobs();
        set.to_memory()
    }

    /// One look at everything that is planned; tells whether something changed.
    fn pass(&mut self, keys: &mut Keys, mode: Mode) -> Result<bool, Lacking> {
        let life = keys.life();
        let (files, mut problems, mut unread) = self.plan.files();
        match mode {
            Mode::Plan if problems.is_empty() => {}
            Mode::Plan => return Err(Lacking::Wrong(problems)),
            Mode::Look => unread.extend(self.plan.lost(&self.plan, self.files())),
        }
        let local = self.plan.local.clone();
        let mut wanted: HashSet<Source> = files.iter().map(|it| it.source.clone()).collect();
        wanted.extend(local.iter().map(|(site, _)| Source::Local(site.clone())));
        let count = self.entries.len();
        let unread: Vec<_> = problems.iter().cloned().chain(unread).collect();
        // What cannot be looked for has not gone.
        let may_be_there = |entry: &Entry| !unread.is_empty() && entry.life == life;
        let entries = &mut self.entries;
        entries.retain(|source, entry| wanted.contains(source) || may_be_there(entry));
        if self.unread != unread {
            for what in &unread {
                tracing::warn!("certificates cannot be looked for, those known stay: {what}");
            }
            self.unread = unread;
        }
        let mut changed = self.entries.len() != count;
        let (fresh, unread) = self.read_changed(files, life, mode);
        for (planned, entry) in unread {
            changed |= self.enter(&planned, entry, mode, &mut problems);
        }
        for batch in batches(fresh) {
            let (planned, candidates): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
            let verdicts = keys.judge(candidates).map_err(Lacking::Keeper)?;
            for ((planned, stamps), verdict) in planned.into_iter().zip(verdicts) {
                let entry = self.entry(stamps, verdict, life);
                changed |= self.enter(&planned, entry, mode, &mut problems);
            }
        }
        for (site, hosts) in local {
            changed |= self.make(site, hosts, keys, &mut problems)?;
        }
        if mode == Mode::Plan && !problems.is_empty() {
            return Err(Lacking::Wrong(problems));
        }
        self.life = life;
        Ok(changed)
    }

    /// Reads what is not as it was: what is to be judged, and what cannot be read.
    fn read_changed(
        &self,
        files: Vec<Planned>,
        life: u64,
        mode: Mode,
    ) -> (Vec<Fresh>, Vec<Unread>) {
        let (mut fresh, mut unread) = (Vec::new(), Vec::new());
        for planned in files {
            let stamps = planned.stamps();
            let known = self.entries.get(&planned.source);
            let is_known = known.is_some_and(|entry| {
                let is_judged = entry.problem.is_none() || mode == Mode::Look;
                entry.life == life && entry.stamps == stamps && is_judged
            });
            if is_known {
                continue;
            }
            match planned.read() {
                Ok(candidate) => fresh.push(((planned, stamps), candidate)),
                Err(why) => {
                    let is_to_come =
                        planned.harm == Harm::Nobody && why.kind == ErrorKind::NotFound;
                    let entry = Entry {
                        stamps,
                        found: None,
                        problem: (!is_to_come).then_some(why.problem),
                        life,
                    };
                    unread.push((planned, entry));
                }
            }
        }
        (fresh, unread)
    }

    fn entry(
        &mut self,
        stamps: Option<(Stamp, Option<Stamp>)>,
        verdict: Result<Judged, String>,
        life: u64,
    ) -> Entry {
        let (found, problem) = match verdict {
            Ok(judged) => (Some(Arc::new(self.share(judged))), None),
            Err(problem) => (None, Some(problem)),
        };
        Entry {
            stamps,
            found,
            problem,
            life,
        }
    }

    /// Takes what was found about a source; tells whether that changes anything.
    fn enter(
        &mut self,
        planned: &Planned,
        mut entry: Entry,
        mode: Mode,
        problems: &mut Vec<String>,
    ) -> bool {
        let before = self.entries.get(&planned.source);
        if let Some(problem) = &entry.problem {
            // What another keeper had cannot be asked for any more.
            let kept = before.filter(|before| before.life == entry.life);
            entry.found = kept.and_then(|before| before.found.clone());
            match (&entry.found, planned.harm) {
                (Some(_), _) => {
                    tracing::error!("{problem}; the certificate from before is answered with");
                }
                (None, Harm::Configuration) if mode == Mode::Plan => {
                    problems.push(problem.clone());
                }
                (None, _) => tracing::error!("{problem}; there is no certificate in its place"),
            }
        } else if let Some(found) = &entry.found {
            found.warn(&planned.source, now_s());
            if let Some(exposed) = planned.exposed() {
                tracing::warn!("{exposed}");
            }
            if mode == Mode::Look && before.is_some_and(|before| before.life == entry.life) {
                let name = found.judged.names.first();
                tracing::info!(name, "{}: taken", describe(&planned.source));
            }
        }
        let is_another = before.is_none_or(|before| !before.is_as(&entry));
        self.entries.insert(planned.source.clone(), entry);
        is_another
    }

    /// Makes a certificate for development, where there is none that will last.
    fn make(
        &mut self,
        site: String,
        hosts: Vec<String>,
        keys: &mut Keys,
        problems: &mut Vec<String>,
    ) -> Result<bool, Lacking> {
        let life = keys.life();
        let source = Source::Local(site);
        let lasts = |found: &Arc<Found>| {
            found.judged.names == hosts && found.judged.not_after_s - now_s() > LOCAL_LEFT_S
        };
        let known = self.entries.get(&source).filter(|it| it.life == life);
        if known.and_then(|it| it.found.as_ref()).is_some_and(lasts) {
            return Ok(false);
        }
        let made = authority::certify(&self.authority, hosts, keys).map_err(Lacking::Keeper)?;
        if let Err(problem) = &made {
            let problem = format!("{}: {problem}", describe(&source));
            tracing::error!("{problem}");
            problems.push(problem);
        }
        let entry = self.entry(None, made, life);
        self.entries.insert(source, entry);
        Ok(true)
    }

    /// Has what a chain shares with others once.
    fn share(&mut self, mut judged: Judged) -> Found {
        let blobs = std::mem::take(&mut judged.chain).into_iter().map(Arc::new);
        let chain = blobs.enumerate().map(|(place, blob)| {
            if place == 0 {
                return blob;
            }
            let known = self.shared.get(&blob).cloned();
            known.unwrap_or_else(|| {
                self.shared.insert(blob.clone());
                blob
            })
        });
        let chain = chain.collect();
        Found { judged, chain }
    }
}

/// What is said of a directory by whose want certificates would be lost.
fn lacking(lost: String) -> String {
    format!(
        "tls.certificates: {lost}, and certificates would be lost that clients are shown: correct it, or make the directory"
    )
}

/// A planned certificate whose files were read.
type Fresh = (FreshPlanned, Candidate);
/// It, and how its files were.
type FreshPlanned = (Planned, Option<(Stamp, Option<Stamp>)>);
/// One that could not be.
type Unread = (Planned, Entry);

/// What is to be judged, in portions that the keeper takes.
fn batches(fresh: Vec<Fresh>) -> Vec<Vec<Fresh>> {
    let mut batches: Vec<Vec<Fresh>> = Vec::new();
    let mut bytes = 0;
    for one in fresh {
        let more = one.1.chain.0.len() + one.1.key.0.len();
        match batches.last_mut() {
            Some(batch) if batch.len() < BATCH_MAX && bytes + more <= BATCH_BYTES_MAX => {
                bytes += more;
                batch.push(one);
            }
            _ => {
                bytes = more;
                batches.push(vec![one]);
            }
        }
    }
    batches
}

impl Entry {
    /// Whether both say the same to a server.
    fn is_as(&self, other: &Entry) -> bool {
        let key = |entry: &Entry| entry.found.as_ref().map(|found| found.judged.key);
        let chain = |entry: &Entry| entry.found.as_ref().map(|found| found.chain.clone());
        self.life == other.life
            && self.problem == other.problem
            && key(self) == key(other)
            && chain(self) == chain(other)
    }
}

impl Found {
    fn certificate(
        &self,
        source: &Source,
        chain: Vec<u32>,
        problem: Option<String>,
    ) -> Certificate {
        Certificate {
            source: source.clone(),
            tenant: None,
            names: self.judged.names.clone(),
            not_before_s: self.judged.not_before_s,
            not_after_s: self.judged.not_after_s,
            kind: self.judged.kind,
            key: self.judged.key,
            chain,
            problem,
        }
    }

    /// Says what of its dates does not fit.
    fn warn(&self, source: &Source, now_s: i64) {
        let valid_s = self.judged.not_before_s..=self.judged.not_after_s;
        if let Some(warning) = validity_warning(source, valid_s, now_s) {
            tracing::warn!("{warning}");
        }
    }
}

/// What is to be said at `now_s` of a certificate that is valid in these seconds since 1970.
#[must_use]
pub fn validity_warning(
    source: &Source,
    valid_s: RangeInclusive<i64>,
    now_s: i64,
) -> Option<String> {
    let source = describe(source);
    let (first, last) = (date(*valid_s.start()), date(*valid_s.end()));
    match Validity::at(now_s, valid_s) {
        Validity::Valid => None,
        Validity::Expired => Some(format!(
            "{source}: expired on {last}: clients refuse it; put a newer one in its place"
        )),
        Validity::NotYet => Some(format!(
            "{source}: not valid before {first}: clients refuse it until then; look at the clock"
        )),
    }
}

/// How a source is called where something is said of it.
#[must_use]
pub fn describe(source: &Source) -> String {
    match source {
        Source::File(path) | Source::Upstream(path) | Source::Acme(path) => path.clone(),
        Source::Local(site) => format!("site {site}: its certificate for development"),
    }
}

/// A day, as RFC 3339 writes it.
#[must_use]
pub fn date(seconds: i64) -> String {
    let day = jiff::Timestamp::from_second(seconds);
    day.map_or_else(
        |_| format!("{seconds} s after 1970"),
        |day| day.strftime("%Y-%m-%d").to_string(),
    )
}

fn now_s() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(i64::MAX))
}
