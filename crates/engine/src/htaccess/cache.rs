//! What is known of `.htaccess` files: each content understood once for all sites that have it, and
//! the files above a directory merged once until one of them changes. Sections of the configuration
//! are levels beside them.
//!
//! Files are looked at for every request, so nothing here says that one is absent, and a file that
//! was changed shortly before it was read is read again: the clock of file systems is coarse.
//! What is kept has a bound in bytes. Beyond it the tenant that has most gives up what it was asked
//! for longest ago: whoever writes files without end loses his own. What many share counts for each
//! of them in part.

use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest::{Context, SHA256};
use config::model::{DirectorySection, SiteHtaccess};
use htaccess::{Chain, ChainLevel, Program, Stop};
use os::file::FileFacts;

/// A file that was changed this shortly before it was read may change again and look the same.
const SETTLED_NS: u64 = 20_000_000;
/// The same where times have no parts of a second.
const SETTLED_COARSE_NS: u64 = 2_100_000_000;
/// A second.
const SECOND_NS: u64 = 1_000_000_000;
/// Parts of what is kept that have a lock each.
const SHARDS: usize = 16;

/// What is known of files, for all workers.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    /// By what they were made of; those that no chain has are gone, but were told of.
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
    bytes: usize,
    counted: OnceLock<Counted>,
}

/// A program, and what it takes.
#[derive(Debug)]
pub(crate) struct SharedProgram {
    /// The program.
    pub(crate) program: Arc<Program>,
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

impl Stamp {
    /// Whether a later change of the file will show, if it was read now.
    pub(crate) fn is_settled(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        self.is_settled_at(now.map_or(0, |now| now.as_nanos()))
    }

    fn is_settled_at(&self, now_ns: u128) -> bool {
        let changed_ns = self.facts.changed_ns;
        let margin_ns = match changed_ns % SECOND_NS {
            0 => SETTLED_COARSE_NS,
            _ => SETTLED_NS,
        };
        u128::from(changed_ns.saturating_add(margin_ns)) < now_ns
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
            counted: OnceLock::new(),
        });
        // Where nothing is said nothing is gained by it.
        if is_settled && !known.programs.is_empty() {
            self.keep(place, &known);
            self.make_room(most_bytes);
        }
        Ok(known)
    }

    /// What a file says, and whether that was not known before.
    pub(crate) fn of_file(&self, bytes: &[u8], files: &SiteHtaccess) -> (Arc<SharedProgram>, bool) {
        let words = files.words.join(" ");
        let is_strict = files.unknown as u8;
        let parts = [words.as_bytes(), &[is_strict], bytes];
        self.program(&parts, || htaccess::compile(bytes, &files.overrides))
    }

    /// What a section of the configuration says.
    pub(crate) fn of_section(&self, section: &DirectorySection) -> Arc<SharedProgram> {
        let text = section.text.as_bytes();
        let parts = [&b"section"[..], &[section.context as u8], text];
        let compile = || htaccess::compile_section(text, section.context);
        self.program(&parts, compile).0
    }

    fn program(
        &self,
        parts: &[&[u8]],
        compile: impl FnOnce() -> Program,
    ) -> (Arc<SharedProgram>, bool) {
        let hash = hash_of(parts);
        let known = held(&self.programs).get(&hash).map(Weak::upgrade);
        if let Some(Some(shared)) = known {
            return (shared, false);
        }
        // Compiled without the lock: others need not wait for it.
        let shared = Arc::new(SharedProgram {
            program: Arc::new(compile()),
            counted: OnceLock::new(),
        });
        let mut programs = held(&self.programs);
        if programs.len() == programs.capacity() {
            // Before there are more of them, those are forgotten that nobody has.
            programs.retain(|_, shared| shared.strong_count() > 0);
        }
        programs.insert(hash, Arc::downgrade(&shared));
        (shared, known.is_none())
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
mod tests {
    use config::model::UnknownLines;
    use htaccess::Overrides;
    use htaccess::overrides::Unknown;
    use os::file::FileKind;

    use super::*;

    /// As much as a test needs.
    const ENOUGH: usize = 1 << 30;

    fn stamp(changed_ns: u64) -> Stamp {
        let facts = FileFacts {
            kind: FileKind::Regular,
            size: 1,
            modified_s: 1,
            modified_ns: 1,
            changed_ns,
            device: 1,
            inode: 1,
            uid: 0,
            gid: 0,
            mode: 0o644,
        };
        Stamp { level: 0, facts }
    }

    fn files(word: &str) -> Arc<SiteHtaccess> {
        Arc::new(SiteHtaccess {
            words: vec![word.to_owned()],
            unknown: UnknownLines::Log,
            overrides: Overrides::new([word], Unknown::Log).expect("a class"),
            handlers: Vec::new(),
            directories: Vec::new(),
        })
    }

    /// Has a directory of a site with this file kept.
    fn keep(
        programs: &Programs,
        (site, directory): (&str, &str),
        (files, text): (&Arc<SiteHtaccess>, &str),
        most_bytes: usize,
    ) -> Arc<KnownChain> {
        let (shared, _) = programs.of_file(text.as_bytes(), files);
        let levels = vec![(Arc::from(directory.as_bytes()), shared)];
        let directory = directory.as_bytes();
        let place = ChainPlace {
            tenant: site,
            files,
            directory,
        };
        let merged = programs.merge(&place, (vec![stamp(1)], true), levels, most_bytes);
        merged.expect("few levels")
    }

    fn is_kept(
        programs: &Programs,
        site: &str,
        directory: &str,
        files: &Arc<SiteHtaccess>,
    ) -> bool {
        let directory = directory.as_bytes();
        let place = ChainPlace {
            tenant: site,
            files,
            directory,
        };
        programs.chain(&place, &[stamp(1)]).is_some()
    }

    #[test]
    fn the_same_bytes_are_understood_once_for_all_that_allow_the_same() {
        let programs = Programs::default();
        let all = files("All");
        let (one, is_new) = programs.of_file(b"Require all denied\n", &all);
        let (again, is_new_again) = programs.of_file(b"Require all denied\n", &files("All"));
        assert!(is_new && !is_new_again && Arc::ptr_eq(&one, &again));
        let (other, is_new) = programs.of_file(b"Require all denied\n", &files("FileInfo"));
        assert!(is_new && !Arc::ptr_eq(&one, &other));
        let mut problems = other.program.problems.iter();
        assert!(problems.any(|problem| problem.refuses));
        drop((one, again));
        let (_, is_new) = programs.of_file(b"Require all denied\n", &all);
        assert!(!is_new, "what was told once is not told again");
    }

    #[test]
    fn what_is_kept_has_a_bound_in_bytes_and_is_counted_until_it_is_gone() {
        let (programs, all) = (Programs::default(), files("All"));
        let most_bytes = 200_000;
        let used = keep(
            &programs,
            ("a", "/a/"),
            (&all, "Require all denied"),
            most_bytes,
        );
        for number in 0..1_000 {
            let text = format!("RewriteRule ^{number}$ /x\n").repeat(10);
            let at = format!("/srv/{number}/");
            keep(&programs, ("a", &at), (&all, &text), most_bytes);
            assert!(programs.bytes() <= most_bytes, "{}", programs.bytes());
            assert!(is_kept(&programs, "a", &at, &all), "the newest is kept");
        }
        assert!(programs.bytes() > most_bytes / 3, "{}", programs.bytes());
        assert!(!is_kept(&programs, "a", "/a/", &all));
        assert_eq!(used.chain.levels().len(), 1, "what is in use lives on");
        programs.make_room(0);
        drop(used);
        assert_eq!(programs.bytes(), 0);
    }

    #[test]
    fn a_site_that_writes_without_end_gives_up_its_own_and_nobody_elses() {
        let (programs, all) = (Programs::default(), files("All"));
        let few = "RewriteEngine on\nRewriteRule . /index.php [L]\n";
        let names: Vec<_> = (0..100).map(|number| format!("s{number}")).collect();
        for site in &names {
            keep(&programs, (site, "/srv/"), (&all, few), ENOUGH);
        }
        let most_bytes = 4 * programs.bytes();
        for number in 0..2_000 {
            let text = format!("Redirect /{number} /\n").repeat(20);
            let at = format!("/evil/{number}/");
            keep(&programs, ("evil", &at), (&all, &text), most_bytes);
        }
        assert!(programs.bytes() <= most_bytes);
        let mut names = names.iter();
        assert!(names.all(|site| is_kept(&programs, site, "/srv/", &all)));
    }

    #[test]
    fn who_shares_a_large_file_with_many_is_not_taken_for_who_has_most() {
        let (programs, all) = (Programs::default(), files("All"));
        let shared = "SetEnv A b\n".repeat(2_000);
        for number in 0..50 {
            let site = format!("s{number}");
            keep(&programs, (&site, "/srv/"), (&all, &shared), ENOUGH);
        }
        let most_bytes = programs.bytes() * 3 / 2;
        for number in 0..200 {
            let text = format!("Redirect /{number} /\n").repeat(20);
            let at = format!("/own/{number}/");
            keep(&programs, ("own", &at), (&all, &text), most_bytes);
        }
        assert!(programs.bytes() <= most_bytes);
        let mut sites = (0..50).map(|number| format!("s{number}"));
        assert!(sites.all(|site| is_kept(&programs, &site, "/srv/", &all)));
    }

    #[test]
    fn what_a_generation_left_goes_before_anything_that_counts() {
        let (programs, old, new) = (Programs::default(), files("All"), files("All"));
        for number in 0..100 {
            let site = format!("s{number}");
            keep(
                &programs,
                (&site, "/srv/"),
                (&old, "Require all denied"),
                ENOUGH,
            );
        }
        assert!(!is_kept(&programs, "s1", "/srv/", &new), "read again");
        drop(old);
        let most_bytes = programs.bytes();
        for at in ["/a/", "/b/"] {
            let text = "Require all granted\n".repeat(80);
            keep(&programs, ("large", at), (&new, &text), most_bytes);
        }
        assert!(is_kept(&programs, "large", "/a/", &new));
        let tenants = programs.tenants.iter().map(|it| held(it).len());
        assert_eq!(tenants.sum::<usize>(), 1);
    }

    #[test]
    fn a_file_that_was_changed_a_moment_before_it_was_read_is_read_again() {
        let now_ns = 1_000 * SECOND_NS + 5;
        for (age_ns, is_settled) in [
            (0, false),
            (SETTLED_NS - 1, false),
            (SETTLED_NS + 1, true),
            // Where times have no parts of a second.
            (5, false),
            (2 * SECOND_NS + 5, false),
            (3 * SECOND_NS + 5, true),
        ] {
            let stamp = stamp(now_ns - age_ns);
            assert_eq!(stamp.is_settled_at(now_ns.into()), is_settled, "{age_ns}");
        }
        let tomorrow = stamp(now_ns + SECOND_NS);
        assert!(!tomorrow.is_settled_at(now_ns.into()));
        let (programs, all) = (Programs::default(), files("All"));
        let place = ChainPlace {
            tenant: "a",
            files: &all,
            directory: b"/srv/a/",
        };
        let (shared, _) = programs.of_file(b"Require all denied\n", &all);
        for is_settled in [false, true] {
            let levels = vec![(Arc::from(&b"/srv/a/"[..]), Arc::clone(&shared))];
            let merged = programs.merge(&place, (vec![stamp(1)], is_settled), levels, ENOUGH);
            merged.expect("few levels");
            let known = programs.chain(&place, &[stamp(1)]);
            assert_eq!(known.is_some(), is_settled);
            assert_eq!(programs.bytes() > 0, is_settled, "only what is kept counts");
        }
        assert!(programs.chain(&place, &[stamp(2)]).is_none());
        assert!(programs.chain(&place, &[]).is_none());
    }
}
