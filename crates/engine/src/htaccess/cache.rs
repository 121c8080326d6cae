//! What is known of `.htaccess` files: each content understood once for all sites that have it, and
//! the files above a directory merged once until one of them changes. Sections of the configuration
//! are levels beside them.
//!
//! Nothing here says that a file is absent (`proofs` does), and one that was changed shortly before it
//! was read is read again: the clock of file systems is coarse.
//! What is kept has a bound in bytes. Beyond it the tenant that has most gives up what it was asked
//! for longest ago: whoever writes files without end loses his own. What many share counts for each
//! of them in part.

use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use aws_lc_rs::digest::{Context, SHA256};
use config::model::{DirectorySection, SiteHtaccess};
use htaccess::{Chain, ChainLevel, Overrides, Program, Stop};
use os::file::FileFacts;

/// A file that was changed this shortly before it was read may change again and look the same.
const SETTLED_NS: u64 = 20_000_000;
/// The same where times have no parts of a second.
const SETTLED_COARSE_NS: u64 = 2_100_000_000;
/// A second.
const SECOND_NS: u64 = 1_000_000_000;
/// Parts of what is kept that have a lock each.
const SHARDS: usize = 16;
/// Files whose lines a tenant is known to have been told of.
const TOLD_MAX: usize = 1_024;

/// What is known of files, for all workers.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    /// By what they were made of; those that no chain has are gone.
    programs: Mutex<HashMap<[u8; 32], Weak<SharedProgram>>>,
    tenants: [Mutex<Tenants>; SHARDS],
    hasher: RandomState,
    /// Of all that is kept.
    bytes: Arc<AtomicUsize>,
}

/// Tenants, by their names.
type Tenants = HashMap<Box<str>, KnownTenant>;

/// What is kept of a tenant.
#[derive(Debug, Default)]
struct KnownTenant {
    /// By site, and the innermost directory that says anything.
    chains: HashMap<Box<[u8]>, KeptChain>,
    /// Times it was asked.
    turn: u64,
    /// How many lines of a file it was told of, by site.
    told: HashMap<[u8; 32], usize>,
}

#[derive(Debug)]
struct KeptChain {
    /// What it was read under: gone with its generation.
    files: Weak<SiteHtaccess>,
    known: Arc<KnownChain>,
    /// The turn of its tenant.
    asked: u64,
}

/// The files that hold for a directory, merged.
#[derive(Debug)]
pub(crate) struct KnownChain {
    /// The merged programs.
    pub(crate) chain: Chain,
    stamps: Box<[Stamp]>,
    programs: Box<[Arc<SharedProgram>]>,
    /// Whether its tenant was told of all that is not obeyed.
    pub(crate) is_told: AtomicBool,
    bytes: usize,
    counted: OnceLock<Counted>,
}

/// A program, and what it takes.
#[derive(Debug)]
pub(crate) struct SharedProgram {
    /// The program.
    pub(crate) program: Arc<Program>,
    /// What it was made of.
    hash: [u8; 32],
    counted: OnceLock<Counted>,
}

/// Bytes that count as long as this lives.
#[derive(Debug)]
struct Counted {
    bytes: usize,
    all: Arc<AtomicUsize>,
}

/// A directory of a site, as its chain is kept.
pub(crate) struct ChainPlace<'a> {
    /// Whose it is.
    pub(crate) tenant: &'a str,
    /// What its files may say.
    pub(crate) files: &'a Arc<SiteHtaccess>,
    /// The innermost directory that says anything, told apart from all others of the tenant.
    pub(crate) directory: &'a [u8],
}

/// Directories, each with what a file or a section says there, the outermost first.
pub(crate) type Levels = Vec<(Arc<[u8]>, Arc<SharedProgram>)>;

/// By what a change of a file is seen; the level is that of its directory below the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// How many directories lie between the root and the file's.
    pub(crate) level: usize,
    /// What is known of the file.
    pub(crate) facts: FileFacts,
}

/// Whether a change will show that was made after this time, at which it was looked at.
pub(crate) fn is_settled_at(facts: &FileFacts, looked_ns: u128) -> bool {
    let changed_ns = facts.changed_ns;
    u128::from(changed_ns.saturating_add(settled_after_ns(changed_ns))) < looked_ns
}

/// How long after a change of this time another one might not show.
pub(super) fn settled_after_ns(changed_ns: u64) -> u64 {
    match changed_ns % SECOND_NS {
        0 => SETTLED_COARSE_NS,
        _ => SETTLED_NS,
    }
}

impl Programs {
    /// Bytes that what is kept takes, about.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// The merged files of a directory, if they are still what they were.
    pub(crate) fn chain(
        &self,
        place: &ChainPlace<'_>,
        stamps: &[Stamp],
    ) -> Option<Arc<KnownChain>> {
        let mut tenants = held(self.shard_of(place.tenant));
        let tenant = tenants.get_mut(place.tenant)?;
        let kept = tenant.chains.get_mut(place.directory)?;
        let is_same = std::ptr::eq(kept.files.as_ptr(), Arc::as_ptr(place.files))
            && *kept.known.stamps == *stamps;
        is_same.then(|| {
            tenant.turn += 1;
            kept.asked = tenant.turn;
            Arc::clone(&kept.known)
        })
    }

    /// Merges what was read, and keeps it if a change will show, in so many bytes with all others.
    ///
    /// # Errors
    /// Too much of it.
    pub(crate) fn merge(
        &self,
        place: &ChainPlace<'_>,
        (stamps, is_settled): (Vec<Stamp>, bool),
        levels: Levels,
        most_bytes: usize,
    ) -> Result<Arc<KnownChain>, Stop> {
        let programs = levels.iter().map(|(_, shared)| Arc::clone(shared));
        let programs: Box<[_]> = programs.collect();
        let levels = levels.into_iter().map(|(directory, shared)| ChainLevel {
            directory,
            program: Arc::clone(&shared.program),
        });
        let chain = Chain::new(levels.collect())?;
        let own = size_of::<(KnownChain, KeptChain)>() + place.directory.len();
        let known = Arc::new(KnownChain {
            bytes: own + chain.memory_bytes() + size_of_val(&*stamps),
            chain,
            stamps: stamps.into(),
            programs,
            is_told: AtomicBool::new(false),
            counted: OnceLock::new(),
        });
        // Where nothing is said nothing is gained by it.
        if is_settled && !known.programs.is_empty() {
            self.keep(place, &known);
            self.make_room(most_bytes);
        }
        Ok(known)
    }

    /// What a file says.
    pub(crate) fn of_file(&self, bytes: &[u8], overrides: &Overrides) -> Arc<SharedProgram> {
        let allowed = format!("{overrides:?}");
        let parts = [allowed.as_bytes(), bytes];
        self.program(&parts, || htaccess::compile(bytes, overrides))
    }

    /// What a section of the configuration says.
    pub(crate) fn of_section(&self, section: &DirectorySection) -> Arc<SharedProgram> {
        let text = section.text.as_bytes();
        let parts = [&b"section"[..], &[section.context as u8], text];
        let compile = || htaccess::compile_section(text, section.context);
        self.program(&parts, compile)
    }

    /// How many lines of a file a site of a tenant was told of.
    pub(crate) fn told(&self, (tenant, site): (&str, &str), shared: &SharedProgram) -> usize {
        let tenants = held(self.shard_of(tenant));
        let told = tenants.get(tenant).map(|tenant| &tenant.told);
        let told = told.and_then(|told| told.get(&hash_of(&[site.as_bytes(), &shared.hash])));
        told.copied().unwrap_or(0)
    }

    /// Notes that a site was told of so many lines of a file. Of a tenant that has very many files it
    /// is forgotten which ones it was told of.
    pub(crate) fn note_told(
        &self,
        (tenant, site): (&str, &str),
        shared: &SharedProgram,
        lines: usize,
    ) {
        let mut tenants = held(self.shard_of(tenant));
        let told = &mut tenants.entry(tenant.into()).or_default().told;
        if told.len() >= TOLD_MAX {
            told.clear();
        }
        told.insert(hash_of(&[site.as_bytes(), &shared.hash]), lines);
    }

    fn program(&self, parts: &[&[u8]], compile: impl FnOnce() -> Program) -> Arc<SharedProgram> {
        let hash = hash_of(parts);
        let known = held(&self.programs).get(&hash).and_then(Weak::upgrade);
        if let Some(shared) = known {
            return shared;
        }
        // Compiled without the lock: others need not wait for it.
        let shared = Arc::new(SharedProgram {
            program: Arc::new(compile()),
            hash,
            counted: OnceLock::new(),
        });
        let mut programs = held(&self.programs);
        if programs.len() == programs.capacity() {
            // Before there are more of them, those are forgotten that nobody has.
            programs.retain(|_, shared| shared.strong_count() > 0);
        }
        programs.insert(hash, Arc::downgrade(&shared));
        shared
    }

    fn keep(&self, place: &ChainPlace<'_>, known: &Arc<KnownChain>) {
        known.count(&self.bytes);
        let mut tenants = held(self.shard_of(place.tenant));
        let tenant = tenants.entry(place.tenant.into()).or_default();
        tenant.turn += 1;
        let kept = KeptChain {
            files: Arc::downgrade(place.files),
            known: Arc::clone(known),
            asked: tenant.turn,
        };
        let before = tenant.chains.insert(place.directory.into(), kept);
        // A program is given back when nobody waits for the lock.
        drop(tenants);
        drop(before);
    }

    /// Has those that have most give up their oldest, as long as it is too much. What is in use
    /// lives on.
    fn make_room(&self, most_bytes: usize) {
        if self.bytes() <= most_bytes {
            return;
        }
        let mut largest = BinaryHeap::new();
        for (at, shard) in self.tenants.iter().enumerate() {
            let mut tenants = held(shard);
            // What earlier generations have left goes first.
            tenants.retain(|_, tenant| {
                drop(tenant.take(|kept| kept.files.strong_count() == 0));
                !tenant.chains.is_empty()
            });
            let known = tenants.iter();
            largest.extend(known.map(|(name, tenant)| (tenant.bytes(), at, name.clone())));
        }
        // More than it must be: all tenants are looked through for it.
        let aim_bytes = most_bytes - most_bytes / 8;
        while self.bytes() > aim_bytes
            && let Some((_, at, name)) = largest.pop()
        {
            let Some(shard) = self.tenants.get(at) else {
                continue;
            };
            let mut tenants = held(shard);
            let given_up = tenants.get_mut(&name).map(KnownTenant::take_oldest);
            match tenants.get(&name) {
                Some(tenant) if !tenant.chains.is_empty() => {
                    largest.push((tenant.bytes(), at, name));
                }
                _ => drop(tenants.remove(&name)),
            }
            drop(tenants);
            drop(given_up);
        }
    }

    fn shard_of(&self, tenant: &str) -> &Mutex<Tenants> {
        let number = self.hasher.hash_one(tenant) % SHARDS as u64;
        let shard = self
            .tenants
            .get(usize::try_from(number).unwrap_or_default());
        shard.unwrap_or(&self.tenants[0])
    }
}

impl KnownTenant {
    /// What its chains take, and its part of the programs that it shares.
    fn bytes(&self) -> usize {
        let chains = self.chains.values();
        chains.map(|kept| kept.known.own_bytes()).sum()
    }

    /// Takes away the half that was asked for longest ago, and at least one.
    fn take_oldest(&mut self) -> Vec<KeptChain> {
        let mut turns: Vec<u64> = self.chains.values().map(|kept| kept.asked).collect();
        let middle = turns.len().saturating_sub(1) / 2;
        turns.sort_unstable();
        let until = turns.get(middle).copied().unwrap_or_default();
        self.take(|kept| kept.asked <= until)
    }

    fn take(&mut self, is_taken: impl Fn(&KeptChain) -> bool) -> Vec<KeptChain> {
        let taken = self.chains.extract_if(|_, kept| is_taken(kept));
        taken.map(|(_, kept)| kept).collect()
    }
}

impl KnownChain {
    /// What its files were like.
    pub(crate) fn stamps(&self) -> &[Stamp] {
        &self.stamps
    }

    /// How a file, or a section of the configuration, is called whose directory is this very one.
    pub(crate) fn name_of(&self, directory: &Arc<[u8]>) -> String {
        let text = String::from_utf8_lossy(directory);
        let mut levels = self.chain.levels().iter();
        let level = levels.find(|level| Arc::ptr_eq(&level.directory, directory));
        match level.is_some_and(|level| level.program.is_section) {
            true => format!("`directories` of the site, {text}"),
            false => format!("{text}.htaccess"),
        }
    }

    /// The files, each with its directory.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&[u8], &SharedProgram)> {
        let levels = self.chain.levels().iter().zip(&self.programs);
        let files = levels.filter(|(level, _)| !level.program.is_section);
        files.map(|(level, shared)| (&*level.directory, &**shared))
    }

    /// What it takes, and its part of the programs that others have, too.
    fn own_bytes(&self) -> usize {
        let programs = self.programs.iter();
        let programs =
            programs.map(|shared| shared.program.memory_bytes() / Arc::strong_count(shared));
        self.bytes + programs.sum::<usize>()
    }

    /// Counts it, and its programs where they are not counted yet.
    fn count(&self, all: &Arc<AtomicUsize>) {
        self.counted.get_or_init(|| Counted::new(self.bytes, all));
        for shared in &self.programs {
            let bytes = shared.program.memory_bytes();
            shared.counted.get_or_init(|| Counted::new(bytes, all));
        }
    }
}

impl Counted {
    fn new(bytes: usize, all: &Arc<AtomicUsize>) -> Self {
        all.fetch_add(bytes, Relaxed);
        let all = Arc::clone(all);
        Self { bytes, all }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Relaxed);
    }
}

/// What tells parts apart from all others.
fn hash_of(parts: &[&[u8]]) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(&part.len().to_le_bytes());
        context.update(part);
    }
    context.finish().as_ref().try_into().unwrap_or_default()
}

fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
