//! Certificates that scripts of the server want shown.
//!
//! The idea: the server says files or hands over data, and gets a chain and the number of a key. Only
//! for sites that let scripts choose, only what is good for one of the site's hosts, and of files only
//! those below the directories that the configuration names for it. Keys are kept as long as they are
//! asked for.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use config::model::{HostPattern, Model};
use config::reason;
use ipc::certificates::Blob;
use ipc::keeper::{CHAIN_FILE_BYTES_MAX, Candidate, KEY_FILE_BYTES_MAX, ShownTo};
use ipc::scripted::{
    CertificateAnswer, CertificateQuestion, FoundCertificate, KnownCertificate, QUESTIONS_MAX,
    Wanted,
};
use ipc::server::ToServer;
use os::file::{FileFacts, FileKind, Symlinks, Wait};

use crate::Supervisor;
use crate::keeper::Keys;
use crate::phase::Phase;

/// What a configuration lets scripts choose.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Scripted {
    directories: Vec<PathBuf>,
    /// Sites by name, with their hosts.
    sites: HashMap<String, Vec<HostPattern>>,
}

/// A file that was read, and how it was.
type Read = (Vec<u8>, FileFacts);

impl Scripted {
    /// That of a configuration.
    pub(crate) fn of(model: &Model) -> Scripted {
        let sites = model.sites.iter().filter(|site| site.tls.script);
        Scripted {
            directories: model.tls.script_files.clone(),
            sites: sites
                .map(|site| (site.name(), site.hosts.clone()))
                .collect(),
        }
    }

    /// The certificate that is wanted; `None` where it is as it is known.
    fn find(
        &self,
        question: CertificateQuestion,
        keys: &mut Keys,
    ) -> Result<Option<FoundCertificate>, String> {
        let site = question.site;
        let hosts = self.sites.get(&site).ok_or_else(|| {
            format!("site {site} lets no script choose its certificate: tls = {{ script = true }}")
        })?;
        let mut mark = DefaultHasher::new();
        (keys.life(), hosts).hash(&mut mark);
        let candidate = self.candidate(&site, question.wanted, &mut mark)?;
        let mark = mark.finish();
        if let Some(known) = question.known
            && known.mark == mark
            && keys.is_still_scripted(known.key)
        {
            return Ok(None);
        }
        let chain_file = candidate.chain_file.clone();
        let judged = keys.judge_scripted(candidate)??;
        let is_for = |name: &String| hosts.iter().any(|host| is_for(host, name));
        if !hosts.contains(&HostPattern::Any) && !judged.names.iter().any(is_for) {
            return Err(format!(
                "{chain_file}: it is good for no host of the site {site}: take the certificate that was made for it"
            ));
        }
        keys.keep_scripted(judged.key);
        Ok(Some(FoundCertificate {
            known: KnownCertificate {
                mark,
                key: judged.key,
            },
            kind: judged.kind,
            chain: judged.chain,
        }))
    }

    /// What is to be judged; how its files are goes into the mark.
    fn candidate(
        &self,
        site: &str,
        wanted: Wanted,
        mark: &mut DefaultHasher,
    ) -> Result<Candidate, String> {
        let (chain_file, key_file, chain, key) = match wanted {
            Wanted::Data { chain, key } => {
                let called = |what: &str| format!("{what} by a script of site {site}");
                let key_file = called("certificate_key_data");
                (called("certificate_data"), key_file, chain, key)
            }
            Wanted::Files { chain, key } => {
                let mut read = |path: &str, bytes_max| -> Result<Blob, String> {
                    let (bytes, facts) = self.read(Path::new(path), bytes_max)?;
                    let when = (facts.changed_ns, facts.size);
                    (facts.device, facts.inode, when).hash(mark);
                    Ok(bytes.into())
                };
                let pem = read(&chain, CHAIN_FILE_BYTES_MAX)?;
                let key_pem = match key.is_empty() {
                    true => Blob::default(),
                    false => read(&key, KEY_FILE_BYTES_MAX)?,
                };
                let key = if key.is_empty() { chain.clone() } else { key };
                (chain, key, pem, key_pem)
            }
        };
        Ok(Candidate {
            chain_file,
            key_file,
            chain,
            key,
            shown_to: ShownTo::Clients,
        })
    }

    /// Reads a file below one of the directories, out of which no link leads.
    fn read(&self, path: &Path, bytes_max: usize) -> Result<Read, String> {
        let shown = path.display();
        let mut directories = self.directories.iter();
        let (directory, rest) = directories
            .find_map(|directory| Some((directory, path.strip_prefix(directory).ok()?)))
            .ok_or_else(|| {
                format!("{shown}: not below a directory of script_files in [tls]: add its directory there, or name it in full")
            })?;
        let open = || {
            let directory = os::file::open_directory(directory)?;
            let rest = rest.as_os_str().as_bytes();
            let file =
                os::file::open_beneath(directory.as_fd(), rest, Symlinks::Allow, Wait::Allowed)?;
            let facts = os::file::facts(file.as_fd())?;
            if facts.kind != FileKind::Regular {
                return Err(std::io::Error::other("not a regular file"));
            }
            Ok((os::file::read_whole(file.as_fd(), bytes_max)?, facts))
        };
        open().map_err(|error| format!("{shown}: {}", reason(&error)))
    }
}

/// Whether a certificate for this name is of use to a host of the pattern.
fn is_for(host: &HostPattern, name: &str) -> bool {
    match host {
        HostPattern::Any => true,
        HostPattern::Exact(host) => {
            let below = name.strip_prefix("*.");
            let is_below = |domain| host.split_once('.').is_some_and(|(_, it)| it == domain);
            host == name || below.is_some_and(is_below)
        }
        HostPattern::Below(domain) => name
            .strip_suffix(domain.as_str())
            .is_some_and(|before| before.ends_with('.')),
    }
}

impl Supervisor {
    /// Answers what certificate a script's wish leads to.
    pub(crate) fn find_certificate(&mut self, question: CertificateQuestion) {
        let number = question.number;
        let is_reloading = matches!(self.phase, Phase::Reloading { .. });
        if is_reloading && self.keys.unanswered.len() < QUESTIONS_MAX {
            // A server that gets ready for the next generation does not hear.
            return self.keys.unanswered.push(question);
        }
        let found = match &self.current.certificates {
            _ if is_reloading => {
                Err("more is asked than can be answered after the reload".to_owned())
            }
            // Numbers of keys mean something with the keeper that the server has links to.
            Some(certificates) if self.keys.is_running() && self.linked == self.keys.life() => {
                certificates.scripted().find(question, &mut self.keys)
            }
            _ => Err("there is no keeper of private keys now".to_owned()),
        };
        let answer = ToServer::Certificate(CertificateAnswer { number, found });
        let told = self.phase.server().map(|server| server.send(&answer));
        if let Some(Err(error)) = told {
            self.lose_server_by("it does not take a certificate", &error);
        }
    }

    /// Answers what was asked while the server got ready for a generation.
    pub(crate) fn answer_late_questions(&mut self) {
        for question in std::mem::take(&mut self.keys.unanswered) {
            self.find_certificate(question);
        }
    }

    /// Has keys forgotten that no script asks for any more.
    pub(crate) fn forget_scripted(&mut self, now: Instant) {
        if self.keys.has_unused_scripted(now)
            && let Some(certificates) = &mut self.current.certificates
        {
            certificates.forget_keys(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_for_the_hosts_that_it_names_or_that_lie_below() {
        let exact = HostPattern::Exact("a.example.jp".into());
        let below = HostPattern::Below("example.jp".into());
        for (host, name, expected) in [
            (&exact, "a.example.jp", true),
            (&exact, "*.example.jp", true),
            (&exact, "*.a.example.jp", false),
            (&exact, "b.example.jp", false),
            (&exact, "*.jp", false),
            (&below, "a.example.jp", true),
            (&below, "*.example.jp", true),
            (&below, "*.b.example.jp", true),
            (&below, "example.jp", false),
            (&below, "an-example.jp", false),
            (&HostPattern::Any, "anything", true),
        ] {
            assert_eq!(is_for(host, name), expected, "{host} {name}");
        }
    }

    #[test]
    fn files_are_read_below_the_directories_alone() {
        let directory = testkit::TempDir::new();
        directory.write("customers/a/chain.pem", "inside");
        directory.write("customers/long.pem", vec![b'x'; 11]);
        let secret = directory.write("secret.pem", "outside");
        let below = directory.path().join("customers");
        let link = |target: &Path, name: &str| {
            std::os::unix::fs::symlink(target, below.join(name)).unwrap();
        };
        link(&secret, "out.pem");
        link(Path::new("../secret.pem"), "up.pem");
        link(Path::new("a/chain.pem"), "in.pem");
        os::file::open_directory(&below).unwrap();
        let scripted = Scripted {
            directories: vec![below.clone()],
            sites: HashMap::new(),
        };
        let read = |path: &str| scripted.read(Path::new(path), 10);
        let inside = |name: &str| below.join(name).display().to_string();
        for name in ["a/chain.pem", "in.pem", "./a/../a/chain.pem"] {
            assert_eq!(read(&inside(name)).unwrap().0, b"inside", "{name}");
        }
        for (path, why) in [
            (inside("out.pem"), "out.pem: "),
            (inside("up.pem"), "up.pem: "),
            (inside("../secret.pem"), "secret.pem: "),
            (inside("none.pem"), "none.pem: no such file"),
            (inside("long.pem"), "long.pem: file too large"),
            (inside("a"), "a: not a regular file"),
            (inside(""), ": not a regular file"),
            (
                secret.display().to_string(),
                "not below a directory of script_files",
            ),
            (
                "a/chain.pem".to_owned(),
                "not below a directory of script_files",
            ),
            (String::new(), "not below a directory of script_files"),
        ] {
            let problem = read(&path).unwrap_err();
            assert!(problem.contains(why), "{path}: {problem}");
        }
    }
}
