//! Which files a configuration takes certificates from, and what stands in them.
//!
//! The idea: this process may read what only root may, and tenants may have written it, so it
//! opens, counts bytes and hands them on; what they mean is found out elsewhere. A file that is as
//! it was when it was read last is known by its stamp, and not opened.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use config::model::{DemandedHosts, HostPattern, Model};
use config::reason;
use ipc::certificates::{Blob, Source, called};
use ipc::keeper::{CHAIN_FILE_BYTES_MAX, Candidate, KEY_FILE_BYTES_MAX, ShownTo};
use os::file::{FileKind, Wait};

use super::scripted::Scripted;

/// Files that one pattern may lead to.
const FILES_MAX: usize = ipc::certificates::CERTIFICATES_MAX;
/// By what names a machine calls itself.
const THIS_MACHINE: [&str; 3] = ["localhost", "127.0.0.1", "::1"];
/// The directory of a store that has certificates (`config::model::AcmeCertificate::file`).
const CERTIFICATES: &str = "certificates";
/// Bytes of a secret of tickets.
const SECRET_BYTES_MIN: usize = 32;
const SECRET_BYTES_MAX: usize = 1_024;
/// What certbot calls a chain and a key, in a directory for each certificate.
const CERTBOT: (&str, &str) = ("fullchain.pem", "privkey.pem");
/// What a key's name ends in where it lies beside its chain, as panels have it.
const KEY: &str = "key";

/// What a configuration has of certificates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Files that sites name.
    named: Vec<Planned>,
    /// Where more are looked for: patterns, each from an absolute directory on.
    patterns: Vec<String>,
    /// Sites that have theirs made here: by name, with their hosts.
    pub(super) local: Vec<(String, Vec<String>)>,
    /// Which hosts have theirs ordered on demand, and the directory of each account's.
    demanded: Option<(DemandedHosts, Vec<PathBuf>)>,
    /// What scripts may choose.
    pub(super) scripted: Scripted,
}

/// A certificate that is to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// Which it is.
    pub source: Source,
    /// The file of its chain.
    pub chain: PathBuf,
    /// The file of its key, if that is another.
    pub key: Option<PathBuf>,
    /// Who suffers if there is something wrong with it.
    pub harm: Harm,
    /// Whose site names it; `None` where the configuration has it for everybody.
    pub tenant: Option<String>,
}

/// Who suffers from a certificate that cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Harm {
    /// Everybody: the configuration is not taken.
    Configuration,
    /// Its site: the file that has it may be set aside.
    Site,
    /// Nobody yet: it is still to be written.
    Nobody,
}

/// By what a file is known to be as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl Plan {
    /// That of a configuration; `None` where no listener speaks TLS and no upstream is shown a certificate.
    #[must_use]
    pub fn of(model: &Model) -> Option<Plan> {
        let upstreams = model.upstreams.iter().filter_map(|it| it.tls.as_ref());
        let shown = upstreams.filter_map(|tls| tls.certificate.as_ref());
        let shown = shown.map(|files| Planned {
            source: Source::Upstream(files.certificate.display().to_string()),
            chain: files.certificate.clone(),
            key: (files.key != files.certificate).then(|| files.key.clone()),
            harm: match files.is_loose {
                true => Harm::Site,
                false => Harm::Configuration,
            },
            tenant: None,
        });
        let shown: Vec<_> = shown.collect();
        if shown.is_empty() && model.listeners.iter().all(|it| it.tls.is_none()) {
            return None;
        }
        let named = model.sites.iter().filter_map(|site| {
            let files = site.tls.files.as_ref()?;
            Some(Planned {
                source: Source::File(files.certificate.display().to_string()),
                chain: files.certificate.clone(),
                key: (files.key != files.certificate).then(|| files.key.clone()),
                harm: match files.is_loose {
                    true => Harm::Site,
                    false => Harm::Configuration,
                },
                tenant: Some(site.tenant.clone()),
            })
        });
        let local = model
            .sites
            .iter()
            .filter(|site| site.tls.local && site.tls.files.is_none());
        let local = local.map(|site| (site.name(), names_here(&site.hosts)));
        // Whoever is to be given one has none to begin with.
        let ordered = model.acme_certificates().map(|certificate| {
            let chain = certificate.file(model);
            Planned {
                source: Source::Acme(chain.display().to_string()),
                chain,
                key: None,
                harm: Harm::Nobody,
                // It was ordered for hosts of the site alone.
                tenant: None,
            }
        });
        Some(Plan {
            named: named.chain(ordered).chain(shown).collect(),
            patterns: model.tls.certificates.clone(),
            local: local.collect(),
            demanded: model.demanded_hosts().map(|hosts| {
                let stores = model.acme.iter().map(|it| it.store.join(CERTIFICATES));
                (hosts, stores.collect())
            }),
            scripted: Scripted::of(model),
        })
    }

    /// The tenant whose site names a source.
    pub(super) fn tenants(&self) -> HashMap<&Source, &str> {
        let named = self.named.iter();
        let of_tenants = named.filter_map(|it| Some((&it.source, it.tenant.as_deref()?)));
        of_tenants.collect()
    }

    /// What is to be said of directories that certificates are looked for in and that are not there
    /// yet: certbot makes its with the first certificate.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        let missing = self.to_come().map(|(_, directory)| {
            let directory = directory.display();
            format!(
                "tls.certificates: `{directory}`: there is no such directory yet, and so no certificate from it"
            )
        });
        missing.collect()
    }

    /// Patterns, each with the directory that is still to be made.
    fn to_come(&self) -> impl Iterator<Item = (&String, &Path)> {
        let patterns = self.patterns.iter();
        patterns.filter_map(|pattern| Some((pattern, to_come(pattern)?)))
    }

    /// The directories that are not there although certificates are known from them, or from where
    /// the plan before looked in their place.
    pub(super) fn lost<'a>(
        &self,
        before: &Plan,
        known: impl Iterator<Item = &'a Path> + Clone,
    ) -> Vec<String> {
        let has = |directory: &Path| known.clone().any(|path| path.starts_with(directory));
        let is_new = |pattern: &String| !before.patterns.contains(pattern);
        let is_moved = || {
            let there: HashSet<PathBuf> = self.files().0.into_iter().map(|it| it.chain).collect();
            let mut left = before
                .patterns
                .iter()
                .filter(|it| !self.patterns.contains(it));
            left.any(|pattern| {
                let mut lost = known.clone().filter(|path| !there.contains(*path));
                lost.any(|path| path.starts_with(above(pattern)))
            })
        };
        let lost = self
            .to_come()
            .filter(|(pattern, directory)| has(directory) || is_new(pattern) && is_moved());
        lost.map(|(_, directory)| format!("`{}`: there is no such directory", directory.display()))
            .collect()
    }

    /// Every certificate there is to be read, each once; what is wrong with patterns; and which
    /// stores cannot be looked through now, so that more may be there.
    #[must_use]
    pub fn files(&self) -> (Vec<Planned>, Vec<String>, Vec<String>) {
        let mut files = self.named.clone();
        let mut problems = Vec::new();
        let mut unread = Vec::new();
        let there = self.patterns.iter().filter(|it| to_come(it).is_none());
        for pattern in there {
            match found(pattern) {
                Ok(found) => files.extend(found),
                Err(why) => problems.push(format!("tls.certificates: {why}")),
            }
        }
        files.extend(self.demanded(&mut unread));
        // What a site names as well stays as the site has it.
        let mut known = HashSet::new();
        files.retain(|file| known.insert(file.source.clone()));
        (files, problems, unread)
    }
}

/// What the certificate for development of a site with these hosts is good for. The default site's
/// is good for this machine.
fn names_here(hosts: &[HostPattern]) -> Vec<String> {
    let mut names = Vec::new();
    for host in hosts {
        match host {
            HostPattern::Any => names.extend(THIS_MACHINE.map(str::to_owned)),
            other => names.push(other.to_string().replace(['[', ']'], "")),
        }
    }
    names.sort();
    names.dedup();
    names
}

impl Plan {
    /// What was ordered on demand and lies in the stores. One that is not there has none as yet.
    fn demanded(&self, unread: &mut Vec<String>) -> Vec<Planned> {
        let mut planned = Vec::new();
        let Some((hosts, stores)) = &self.demanded else {
            return planned;
        };
        for (account, store) in stores.iter().enumerate() {
            let is_theirs = |host: &str| {
                let covering = hosts.covering(host);
                covering.is_some_and(|it| it.account == account)
            };
            let entries = std::fs::read_dir(store).and_then(|entries| {
                let names = entries.take(FILES_MAX).map(|entry| Ok(entry?.file_name()));
                names.collect::<std::io::Result<Vec<_>>>()
            });
            let entries = entries.unwrap_or_else(|error| {
                if error.kind() != ErrorKind::NotFound {
                    let why = config::reason(&error);
                    unread.push(format!("`{}`: {why}", store.display()));
                }
                Vec::new()
            });
            let names = entries.into_iter().filter_map(|name| {
                let name = name.into_string().ok()?;
                is_theirs(name.strip_suffix(".pem")?).then_some(name)
            });
            planned.extend(names.map(|name| {
                let chain = store.join(name);
                Planned {
                    source: Source::Acme(chain.display().to_string()),
                    chain,
                    key: None,
                    harm: Harm::Nobody,
                    tenant: None,
                }
            }));
        }
        planned
    }
}

/// The directory of a pattern that is still to be made, if it is.
fn to_come(pattern: &str) -> Option<&Path> {
    let directory = above(pattern);
    let there = std::fs::symlink_metadata(directory);
    let is_missing = there.is_err_and(|error| error.kind() == ErrorKind::NotFound);
    (is_missing && directory != Path::new(pattern)).then_some(directory)
}

/// What everything lies below that a pattern leads to; of one without wildcards all of it.
fn above(pattern: &str) -> &Path {
    let wildcard = pattern.find(['*', '?', '[']);
    let slash = wildcard.and_then(|at| pattern.get(..at)?.rfind('/'));
    let directory = slash.and_then(|at| pattern.get(..at.max(1)));
    Path::new(directory.unwrap_or(pattern))
}

/// What the certificates of `[tls]` are called, by their files, or what is wrong with a pattern.
///
/// # Errors
/// See above.
pub fn certificate_names(model: &Model) -> Result<BTreeSet<String>, String> {
    let mut names = BTreeSet::new();
    for pattern in &model.tls.certificates {
        let found = found(pattern)?.into_iter();
        names.extend(found.filter_map(|it| Some(called(&it.chain)?.to_owned())));
    }
    Ok(names)
}

/// The certificates that a pattern leads to: files, and directories as certbot makes them. Of files
/// that are not named in full only those count that are called as certificates are.
fn found(pattern: &str) -> Result<Vec<Planned>, String> {
    let pattern = pattern.trim_end_matches('/');
    let is_named = Path::new(pattern).exists();
    let directories = config::expand(Path::new("/"), &format!("{pattern}/{}", CERTBOT.0))?;
    let mut chains = config::expand(Path::new("/"), pattern)?;
    let is_certificate = |path: &PathBuf| {
        let extension = path.extension().and_then(|it| it.to_str());
        matches!(extension, Some("pem" | "crt"))
    };
    if !is_named {
        chains.retain(is_certificate);
    }
    let is_directory = is_named && Path::new(pattern).is_dir();
    match is_directory {
        true => chains = directories,
        false if is_named => {}
        false => chains.extend(directories.into_iter().filter(|chain| chain.is_file())),
    }
    if chains.len() > FILES_MAX {
        return Err(format!("`{pattern}`: more than {FILES_MAX} files"));
    }
    let planned = chains.into_iter().map(|chain| {
        let is_certbot = chain.file_name().is_some_and(|name| name == CERTBOT.0);
        let key = match is_certbot {
            true => chain.with_file_name(CERTBOT.1),
            false => chain.with_extension(KEY),
        };
        Planned {
            source: Source::File(chain.display().to_string()),
            key: key.is_file().then_some(key),
            chain,
            harm: Harm::Configuration,
            tenant: None,
        }
    });
    Ok(planned.collect())
}

impl Planned {
    /// How its files are as of now; `None` where one is not there.
    pub(super) fn stamps(&self) -> Option<(Stamp, Option<Stamp>)> {
        let key = match &self.key {
            Some(key) => Some(Stamp::of(key)?),
            None => None,
        };
        Some((Stamp::of(&self.chain)?, key))
    }

    /// By whom its key may be read beside those who should, if by anybody: everybody, or whoever
    /// is served the file by another name that it has.
    #[must_use]
    pub fn exposed(&self) -> Option<String> {
        exposed(self.key.as_ref().unwrap_or(&self.chain), "private key")
    }

    /// Reads its files.
    ///
    /// # Errors
    /// In words, where one cannot be read.
    pub fn read(&self) -> Result<Candidate, Unread> {
        let chain_file = self.chain.display().to_string();
        let chain = read(&self.chain, CHAIN_FILE_BYTES_MAX)?;
        let (key_file, key) = match &self.key {
            Some(key) => (key.display().to_string(), read(key, KEY_FILE_BYTES_MAX)?),
            None => (chain_file.clone(), Vec::new()),
        };
        Ok(Candidate {
            chain_file,
            key_file,
            chain: chain.into(),
            key: key.into(),
            shown_to: match self.source {
                Source::Upstream(_) => ShownTo::Servers,
                Source::File(_) | Source::Acme(_) | Source::Local(_) => ShownTo::Clients,
            },
        })
    }
}

/// What keys of tickets are derived from, where machines share it, nothing where they do not; with what is to be said
/// where others may read it, too.
///
/// # Errors
/// It cannot be had.
pub fn ticket_secret(model: &Model) -> Result<(Blob, Option<String>), Unread> {
    let Some(file) = &model.tls.ticket_secret else {
        return Ok((Blob::default(), None));
    };
    let bytes = read(file, SECRET_BYTES_MAX)?;
    let secret = bytes.trim_ascii();
    if secret.len() < SECRET_BYTES_MIN {
        let (file, bytes) = (file.display(), secret.len());
        return Err(Unread {
            kind: ErrorKind::InvalidData,
            problem: format!(
                "{file}: ticket_secret has {bytes} bytes, of {SECRET_BYTES_MIN} at least: make one by `openssl rand -hex 32`"
            ),
        });
    }
    Ok((Blob::from(secret), exposed(file, "secret of tickets")))
}

/// Why a file was not read.
#[derive(Debug)]
pub struct Unread {
    /// What kind of error it is.
    pub kind: ErrorKind,
    /// The file, and why, and what to do.
    pub problem: String,
}

impl Stamp {
    fn of(path: &Path) -> Option<Stamp> {
        let facts = std::fs::metadata(path).ok()?;
        Some(Stamp {
            device: facts.dev(),
            inode: facts.ino(),
            bytes: facts.size(),
            changed: (facts.ctime(), facts.ctime_nsec()),
        })
    }
}

/// By whom the file of a secret may be read beside those who should.
fn exposed(file: &Path, what: &str) -> Option<String> {
    let facts = std::fs::metadata(file).ok()?;
    let (path, names) = (file.display(), facts.nlink());
    if facts.mode() & 0o007 != 0 {
        return Some(format!(
            "{path}: anybody on this machine may read the {what}: chmod o= {path}"
        ));
    }
    (names > 1).then(|| {
        format!(
            "{path}: the file of the {what} has {names} names (hard links), and may be served by another: copy it and remove the others"
        )
    })
}

fn read(path: &Path, bytes_max: usize) -> Result<Vec<u8>, Unread> {
    read_whole(path, bytes_max).map_err(|error| {
        let kind = error.kind();
        let advice = match kind {
            ErrorKind::NotFound => ": write it there, or correct the path",
            ErrorKind::FileTooLarge => ": a chain, a key or a secret is never that long",
            _ => "",
        };
        let (path, reason) = (path.display(), reason(&error));
        Unread {
            kind,
            problem: format!("{path}: {reason}{advice}"),
        }
    })
}

fn read_whole(path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
    let file = os::file::open(path, Wait::Allowed)?;
    if os::file::facts(file.as_fd())?.kind != FileKind::Regular {
        return Err(io::Error::other("not a regular file"));
    }
    os::file::read_whole(file.as_fd(), bytes_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(pattern: &str) -> Vec<(String, bool)> {
        let found = found(pattern).unwrap();
        let named = found.into_iter().map(|planned| {
            let chain = planned.chain.to_str().unwrap();
            let end = chain.rsplitn(3, '/').take(2).collect::<Vec<_>>();
            (format!("{}/{}", end[1], end[0]), planned.key.is_some())
        });
        named.collect()
    }

    #[test]
    fn a_certificate_for_development_names_hosts_and_this_machine() {
        let hosts = [
            HostPattern::Exact("[2001:db8::1]".into()),
            HostPattern::Any,
            HostPattern::Below("a.example".into()),
            HostPattern::Exact("localhost".into()),
        ];
        let names = [
            "*.a.example",
            "127.0.0.1",
            "2001:db8::1",
            "::1",
            "localhost",
        ];
        assert_eq!(names_here(&hosts), names);
    }

    #[test]
    fn a_directory_of_a_pattern_may_be_still_to_come() {
        let directory = testkit::TempDir::new();
        let root = directory.path().display();
        let plan = |pattern: &str| Plan {
            patterns: vec![format!("{root}/{pattern}")],
            ..Plan::default()
        };
        let live = plan("etc/live/*");
        assert_eq!(live.files(), (vec![], vec![], vec![]));
        assert!(live.missing()[0].contains("etc/live`: there is no such directory yet"));
        directory.write("etc/live/a.example/fullchain.pem", "");
        assert_eq!(live.files().0.len(), 1);
        assert!(live.missing().is_empty());
        // What stands in a directory that is there is no directory to come.
        directory.write("file", "");
        assert_eq!(plan("file/*").files().1.len(), 1);
    }

    #[test]
    fn a_directory_that_certificates_came_from_is_lost_and_so_is_one_in_its_place() {
        let directory = testkit::TempDir::new();
        let root = directory.path().display();
        let plan = |patterns: &[&str]| Plan {
            patterns: patterns.iter().map(|it| format!("{root}/{it}")).collect(),
            ..Plan::default()
        };
        let file = directory.write("live/a.example/fullchain.pem", "");
        let lost = |before: &[&str], next: &[&str]| {
            let lost = plan(next).lost(&plan(before), [&*file].into_iter());
            assert!(
                lost.iter()
                    .all(|it| it.contains("there is no such directory"))
            );
            lost.len()
        };
        let (live, other) = ("live/*", "lvie/*");
        assert_eq!(lost(&[live], &[live]), 0);
        assert_eq!(lost(&[live], &[other]), 1, "misspelt");
        assert_eq!(lost(&["live/a.example"], &[other]), 1);
        assert_eq!(lost(&[live], &[live, other]), 0, "to come");
        assert_eq!(lost(&[live], &["live/*.example", other]), 0);
        assert_eq!(lost(&[live], &[]), 0, "wanted so");
        assert_eq!(lost(&[other], &[other]), 0, "of another pattern");
        std::fs::remove_dir_all(directory.path().join("live")).expect("ours");
        assert_eq!(lost(&[live], &[live]), 1);
    }

    #[test]
    fn a_store_that_is_still_to_come_is_empty_and_one_that_cannot_be_read_is_told() {
        let directory = testkit::TempDir::new();
        let store = directory.path().join("store");
        let text = format!(
            "[[listen]]\naddress = '127.0.0.1:1'\ntls = true\n[maps.m]\nfile = 'm'\n\
             [acme.le]\ndirectory = 'https://a/dir'\ncontact = 'a@b.c'\nstore = '{}'\non_demand = {{ map = 'm' }}\n\
             [[sites]]\nhosts = ['*.a.example']\ntls = {{ acme = 'le' }}\n\
             rules = [{{ handler = {{ respond = {{ body = 'a' }} }} }}]\n",
            store.display()
        );
        let sources = config::Sources::from_text("/etc/nagaya.toml", &text);
        let sources = sources.with_file("/etc/m", b"");
        let model = config::load(&sources).expect("valid");
        let plan = Plan::of(&model).expect("a listener speaks TLS");
        assert_eq!(plan.files(), (vec![], vec![], vec![]));
        directory.write("store/le/certificates/b.a.example.pem", "");
        assert_eq!(plan.files().0.len(), 1);
        std::fs::remove_dir_all(store.join("le")).expect("ours");
        directory.write("store/le", "no directory");
        let (files, problems, unread) = plan.files();
        assert_eq!((files, problems), (vec![], vec![]));
        assert!(unread[0].contains("le/certificates`: "), "{unread:?}");
    }

    #[test]
    fn a_key_that_others_may_come_by_is_told() {
        use std::os::unix::fs::PermissionsExt;
        let directory = testkit::TempDir::new();
        let key = directory.write("a.key", "");
        let planned = Planned {
            source: Source::File("a".into()),
            chain: directory.write("a.pem", ""),
            key: Some(key.clone()),
            harm: Harm::Nobody,
            tenant: None,
        };
        let told = |mode: u32| {
            std::fs::set_permissions(&key, PermissionsExt::from_mode(mode)).unwrap();
            planned.exposed().unwrap_or_default()
        };
        assert_eq!(told(0o640), "");
        assert!(told(0o644).contains("anybody on this machine"));
        std::fs::hard_link(&key, directory.path().join("other.txt")).unwrap();
        assert!(told(0o600).contains("has 2 names"));
    }

    #[test]
    fn patterns_lead_to_files_with_their_keys_and_to_certbots_directories() {
        let directory = testkit::TempDir::new();
        for file in ["c/a.pem", "c/b.crt", "c/b.key", "c/README", "live/README"] {
            directory.write(file, "");
        }
        for site in ["a.example", "b.example"] {
            directory.write(&format!("live/{site}/fullchain.pem"), "");
            directory.write(&format!("live/{site}/privkey.pem"), "");
        }
        let root = directory.path().display();
        let certbot = |site: &str| (format!("{site}/fullchain.pem"), true);
        let file = |name: &str| (format!("c/{name}"), false);
        assert_eq!(
            names(&format!("{root}/c/*")),
            [file("a.pem"), ("c/b.crt".into(), true)]
        );
        assert_eq!(names(&format!("{root}/c/README")), [file("README")]);
        for pattern in ["live/*", "live/*/", "live/*/fullchain.pem"] {
            let found = names(&format!("{root}/{pattern}"));
            assert_eq!(found, [certbot("a.example"), certbot("b.example")]);
        }
        for pattern in ["live/a.example", "live/a.example/"] {
            assert_eq!(names(&format!("{root}/{pattern}")), [certbot("a.example")]);
        }
        for (leads_to, link) in [
            ("a.pem", "c/z.pem"),
            ("nowhere", "c/y.pem"),
            ("../c", "live/c.example"),
            ("b.example", "live/d.example"),
        ] {
            std::os::unix::fs::symlink(leads_to, directory.path().join(link)).unwrap();
        }
        let linked = names(&format!("{root}/c/*.pem"));
        assert_eq!(linked, [file("a.pem"), file("z.pem")]);
        let linked = names(&format!("{root}/live/*"));
        let sites = ["a.example", "b.example", "d.example"];
        assert_eq!(linked, sites.map(certbot));
        let absent = names(&format!("{root}/c/absent.pem"));
        assert_eq!(
            absent,
            [file("absent.pem")],
            "reading it says what is wrong"
        );
        assert!(found(&format!("{root}/no/*.pem")).is_err());
    }

    #[test]
    fn what_cannot_be_read_is_said_with_its_file() {
        let directory = testkit::TempDir::new();
        let long = directory.write("long.pem", vec![b'x'; CHAIN_FILE_BYTES_MAX + 1]);
        for (chain, expected) in [
            (directory.path().join("no.pem"), "no.pem: no such file"),
            (long, "long.pem: file too large: a chain"),
            (directory.path().to_owned(), ": not a regular file"),
        ] {
            let planned = Planned {
                source: Source::File("a".into()),
                chain,
                key: None,
                harm: Harm::Configuration,
                tenant: None,
            };
            let problem = planned.read().unwrap_err().problem;
            assert!(problem.contains(expected), "{problem}");
        }
    }
}
