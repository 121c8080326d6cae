//! From a path to the `.htaccess` files that hold for it, and to what stands there.
//!
//! Plain system calls beneath the root, run by a worker while nothing has to be waited for and by
//! a helper thread otherwise. A file that was not read lately is read and understood there, too.
//! Sections of the configuration hold as if they stood in the files of their directories, before
//! what stands there; those of directories above the root come first of all.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use config::model::{DirectorySection, SiteHtaccess};
use htaccess::tree::FILE_BYTES_MAX;
use htaccess::{LEVELS_MAX, Overrides, SectionContext};
use os::file::{self, FileFacts, FileKind, NoFile, Wait};

use super::cache::{ChainPlace, KnownChain, Levels, Programs, SharedProgram, Stamp, is_settled_at};
use crate::resolve::file::now_ns;
use crate::resolve::search::Root;

/// Its name.
pub(super) const NAME: &[u8] = b".htaccess";
/// Why a file that is being written is not obeyed.
const CHANGING: &str = "htaccess_changing";

/// What a path comes to before any file has said anything.
#[derive(Debug)]
pub(crate) struct Landing {
    /// The name below the root up to the file, the directory, or the first part that is missing.
    pub(crate) relative: Vec<u8>,
    /// What of the path follows it.
    pub(crate) path_info: Vec<u8>,
    /// What is there.
    pub(crate) kind: LandingKind,
    /// What is known of that.
    pub(crate) facts: Option<FileFacts>,
    /// What files that ask for its name are told of it, where the whole path is one.
    pub(crate) seen: Option<htaccess::FileFacts>,
}

impl Landing {
    /// A file that is known to stand there, and to which no link has led.
    pub(super) fn of_file(relative: &[u8], facts: &FileFacts) -> Self {
        Self {
            relative: relative.to_vec(),
            path_info: Vec::new(),
            kind: LandingKind::File,
            facts: Some(*facts),
            seen: Some(told(facts, false)),
        }
    }
}

/// What is at the end of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LandingKind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// Nothing, or nothing that may be looked at.
    Missing,
}

/// What a walk has found.
#[derive(Debug)]
pub(crate) enum Walked {
    /// Where the path leads, and the files, merged.
    Known(Landing, Arc<KnownChain>),
    /// A file is there that cannot be obeyed: its name, and why.
    Refused(Vec<u8>, &'static str),
}

/// What a walk needs.
#[derive(Debug, Clone)]
pub(crate) struct Walk {
    /// What is known of files.
    pub(crate) programs: Arc<Programs>,
    /// How much of it is kept.
    pub(crate) most_bytes: usize,
    /// Whose it is.
    pub(crate) tenant: Arc<str>,
    /// The site.
    pub(crate) site: Arc<str>,
    /// What they may say, and what the configuration says beside them.
    pub(crate) files: Arc<SiteHtaccess>,
    /// The root's full name, a slash at its end.
    pub(crate) root_name: Vec<u8>,
    /// The path below the root, without a slash at its start.
    pub(crate) relative: Vec<u8>,
}

impl Walk {
    /// Looks.
    ///
    /// # Errors
    /// `WouldBlock` or `CrossesDevices` where it must not wait and would have to; else the
    /// machine's trouble.
    pub(crate) fn look(&self, root: &Root, wait: Wait) -> io::Result<Walked> {
        match self.find(root, wait) {
            Ok(walked) => Ok(walked),
            Err(Fault::Refused(name, why)) => Ok(Walked::Refused(name, why)),
            Err(Fault::Io(error)) => Err(error),
        }
    }

    fn find(&self, root: &Root, wait: Wait) -> Result<Walked, Fault> {
        let landing = landing(root, &self.relative, wait)?;
        let mut name = landing.relative.clone();
        if landing.kind == LandingKind::Directory && !name.is_empty() && !name.ends_with(b"/") {
            name.push(b'/');
        }
        let directories = directories(&name);
        if directories.len() > LEVELS_MAX {
            return Err(self.refused(&name, "htaccess_too_large"));
        }
        let opened = self.open(root, &directories, wait)?;
        self.merged(landing, (&directories, opened), wait)
    }

    /// What the virtual host says of a path that leads into no root: no file is looked for.
    pub(crate) fn outside(&self) -> Walked {
        let landing = Landing {
            relative: self.relative.clone(),
            path_info: Vec::new(),
            kind: LandingKind::Missing,
            facts: None,
            seen: None,
        };
        let nothing = (&[][..], (Vec::new(), Vec::new()));
        match self.merged(landing, nothing, Wait::Allowed) {
            Ok(walked) => walked,
            Err(Fault::Refused(name, why)) => Walked::Refused(name, why),
            Err(Fault::Io(_)) => Walked::Refused(Vec::new(), "htaccess_unreadable"),
        }
    }

    /// Takes what is known of directories with these files, or reads and merges it.
    fn merged(
        &self,
        landing: Landing,
        (directories, (opened, stamps)): (&[&[u8]], (OpenedFiles<'_>, Vec<Stamp>)),
        wait: Wait,
    ) -> Result<Walked, Fault> {
        // Directories below it share its chain.
        let innermost = self.innermost(directories, &stamps);
        // No name has a NUL byte: roots within each other are told apart by it.
        let parts = [self.site.as_bytes(), &*self.root_name, innermost];
        let directory = parts.join(&b'\0');
        let place = ChainPlace {
            tenant: &self.tenant,
            files: &self.files,
            directory: &directory,
        };
        let known = match self.programs.chain(&place, &stamps) {
            Some(known) => known,
            // To read and understand takes its time.
            None if wait == Wait::Never && self.says_anything(&opened) => {
                return Err(io::Error::from(io::ErrorKind::WouldBlock).into());
            }
            None => {
                let files = (&opened, &*stamps);
                let (levels, is_settled) = self.read(directories, files, now_ns())?;
                let stamps = (stamps, is_settled);
                let merged = self.programs.merge(&place, stamps, levels, self.most_bytes);
                merged.map_err(|stop| self.refused(innermost, stop.reason))?
            }
        };
        Ok(Walked::Known(landing, known))
    }

    /// Opens the files of directories, which is all that is done where they have not changed.
    fn open(
        &self,
        root: &Root,
        directories: &[&[u8]],
        wait: Wait,
    ) -> Result<(OpenedFiles<'_>, Vec<Stamp>), Fault> {
        let (mut opened, mut stamps) = (Vec::new(), Vec::new());
        if !self.files.obeys_files() {
            return Ok((opened, stamps));
        }
        let mut sections = self.files.directories.iter();
        let has_parts = sections.any(|it| it.overrides.is_some());
        for (level, directory) in directories.iter().enumerate() {
            let overrides = match has_parts {
                true => self
                    .files
                    .overrides_in(&[&*self.root_name, directory].concat()),
                false => &self.files.overrides,
            };
            if overrides.is_none() {
                continue;
            }
            let name = [directory, NAME].concat();
            match root.descriptor(&name, wait) {
                Ok(descriptor) => {
                    let facts = file::facts(descriptor.as_fd())?;
                    if facts.kind != FileKind::Regular {
                        return Err(self.refused(&name, "htaccess_unreadable"));
                    }
                    stamps.push(Stamp { level, facts });
                    opened.push((overrides, descriptor));
                }
                Err(error) => match absence(error, wait)? {
                    Absence::Nothing => {}
                    Absence::Refused => return Err(self.refused(&name, "htaccess_unreadable")),
                },
            }
        }
        Ok((opened, stamps))
    }

    /// How the innermost directory that has a file or a section is called; the root where none has.
    fn innermost<'d>(&self, directories: &[&'d [u8]], stamps: &[Stamp]) -> &'d [u8] {
        let last = stamps.last().map(|stamp| stamp.level);
        let says = |(level, directory): &(usize, &&[u8])| {
            Some(*level) == last || self.sections_of(directory).next().is_some()
        };
        let found = directories.iter().enumerate().rev().find(says);
        found.map_or(b"", |(_, directory)| directory)
    }

    /// Whether there is anything to be understood.
    fn says_anything(&self, opened: &OpenedFiles<'_>) -> bool {
        !opened.is_empty() || !self.files.directories.is_empty()
    }

    /// The sections of the virtual host, and of directories above the root.
    fn outer_sections(&self) -> impl Iterator<Item = &DirectorySection> {
        let is_outer = |section: &&DirectorySection| {
            let is_above = section.holds(&self.root_name);
            is_of_server(section) || (is_above && !section.is_at(&self.root_name, b""))
        };
        self.files.directories.iter().filter(is_outer)
    }

    /// The sections of a directory below the root.
    fn sections_of(&self, directory: &[u8]) -> impl Iterator<Item = &DirectorySection> {
        let is_it = move |section: &&DirectorySection| {
            !is_of_server(section) && section.is_at(&self.root_name, directory)
        };
        self.files.directories.iter().filter(is_it)
    }

    /// Reads and understands all levels at this time, the outermost first; says as well whether a
    /// later change of a file will show.
    fn read(
        &self,
        directories: &[&[u8]],
        (opened, stamps): (&OpenedFiles<'_>, &[Stamp]),
        looked_ns: u128,
    ) -> Result<(Levels, bool), Fault> {
        let section = |section: &DirectorySection| {
            let directory = Arc::from(section.directory.as_bytes());
            (directory, self.programs.of_section(section))
        };
        let mut levels: Levels = self.outer_sections().map(section).collect();
        let mut files = opened.iter().zip(stamps).peekable();
        let mut is_settled = true;
        for (level, directory) in directories.iter().enumerate() {
            levels.extend(self.sections_of(directory).map(section));
            let file = files.next_if(|(_, stamp)| stamp.level == level);
            let Some(((overrides, descriptor), stamp)) = file else {
                continue;
            };
            let is_old = is_settled_at(&stamp.facts, looked_ns);
            let shared = self.read_file(directory, (overrides, descriptor), (stamp, is_old))?;
            is_settled &= is_old;
            let directory = [&*self.root_name, directory].concat();
            levels.push((directory.into(), shared));
        }
        Ok((levels, is_settled))
    }

    /// Reads and understands a file.
    fn read_file(
        &self,
        directory: &[u8],
        (overrides, descriptor): (&Overrides, &OwnedFd),
        (stamp, is_old): (&Stamp, bool),
    ) -> Result<Arc<SharedProgram>, Fault> {
        let name = [directory, NAME].concat();
        let bytes = match file::read_whole(descriptor.as_fd(), FILE_BYTES_MAX) {
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                return Err(self.refused(&name, "htaccess_too_large"));
            }
            bytes => bytes?,
        };
        let has_changed = file::facts(descriptor.as_fd())? != stamp.facts;
        let shared = self.programs.of_file(&bytes, overrides);
        // Cut off or still empty it would say less than whoever writes it wants to say.
        let is_begun = !is_old && (bytes.is_empty() || !shared.program.is_whole);
        match has_changed || is_begun {
            true => Err(self.refused(&name, CHANGING)),
            false => Ok(shared),
        }
    }

    fn refused(&self, name: &[u8], why: &'static str) -> Fault {
        Fault::Refused([&*self.root_name, name].concat(), why)
    }
}

/// Whether a section is the virtual host's.
fn is_of_server(section: &DirectorySection) -> bool {
    section.context == SectionContext::Server
}

/// What a client is answered of a file that cannot be obeyed.
pub(crate) fn status_of(reason: &str) -> u16 {
    match reason {
        CHANGING => 503,
        _ => 403,
    }
}

/// Files that were opened, each with what it may say.
type OpenedFiles<'o> = Vec<(&'o Overrides, OwnedFd)>;

/// Why a walk comes to nothing.
enum Fault {
    /// The machine's trouble, or that it must not wait.
    Io(io::Error),
    /// A file is there that cannot be obeyed.
    Refused(Vec<u8>, &'static str),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Why there is no descriptor of a file.
enum Absence {
    /// The file is not there, or its directory is none.
    Nothing,
    /// It is there, and may not be read.
    Refused,
}

/// Tells what is not there from what may not be read.
fn absence(error: io::Error, wait: Wait) -> io::Result<Absence> {
    match NoFile::of(&error) {
        // Only what is surely not there is: a name too long, or a socket, is none of that.
        Some(NoFile::Absent) if error.kind() == io::ErrorKind::NotFound => Ok(Absence::Nothing),
        Some(NoFile::FileInTheWay) => Ok(Absence::Nothing),
        // To another mount, as long as nobody may wait.
        Some(NoFile::Outside) if wait == Wait::Never => Err(error),
        Some(_) => Ok(Absence::Refused),
        None => Err(error),
    }
}

/// What stands at a path.
fn landing(root: &Root, relative: &[u8], wait: Wait) -> io::Result<Landing> {
    let at = |name: &[u8], kind, facts| Landing {
        relative: name.to_vec(),
        path_info: relative.get(name.len()..).unwrap_or_default().to_vec(),
        kind,
        facts,
        seen: None,
    };
    if let Some((facts, is_link)) = found(root.facts_and_link(relative, wait), wait)? {
        let kind = match facts.kind {
            FileKind::Directory => LandingKind::Directory,
            _ => LandingKind::File,
        };
        return Ok(Landing {
            seen: Some(told(&facts, is_link)),
            ..at(relative, kind, Some(facts))
        });
    }
    // Something on the way is a file, or missing: the first such part is what is meant.
    let slashes = relative.iter().enumerate();
    let slashes = slashes.filter(|(_, byte)| **byte == b'/').take(LEVELS_MAX);
    for (end, _) in slashes {
        let name = relative.get(..end).unwrap_or_default();
        match facts(root, name, wait)? {
            Some(facts) if facts.kind == FileKind::Directory => {}
            Some(facts) => return Ok(at(name, LandingKind::File, Some(facts))),
            None => return Ok(at(name, LandingKind::Missing, None)),
        }
    }
    Ok(at(relative, LandingKind::Missing, None))
}

/// What is known of a name below the root; `None` where nothing may be looked at.
pub(crate) fn facts(root: &Root, relative: &[u8], wait: Wait) -> io::Result<Option<FileFacts>> {
    found(root.facts(relative, wait), wait)
}

/// What was found; `None` where nothing may be looked at.
pub(super) fn found<T>(looked: io::Result<T>, wait: Wait) -> io::Result<Option<T>> {
    match looked {
        Ok(found) => Ok(Some(found)),
        Err(error) => match NoFile::of(&error) {
            Some(NoFile::Outside) if wait == Wait::Never => Err(error),
            Some(_) => Ok(None),
            None => Err(error),
        },
    }
}

/// What is told of a file, and whether a link leads to it.
pub(super) fn told(facts: &FileFacts, is_link: bool) -> htaccess::FileFacts {
    htaccess::FileFacts {
        kind: match facts.kind {
            FileKind::Regular => htaccess::FileKind::Regular,
            FileKind::Directory => htaccess::FileKind::Directory,
            FileKind::Symlink | FileKind::Other => htaccess::FileKind::Other,
        },
        is_link,
        bytes: facts.size,
        is_executable: facts.mode & 0o111 != 0,
    }
}

/// The directories whose files hold for a name, the root first, each with a slash at its end but
/// the root.
fn directories(relative: &[u8]) -> Vec<&[u8]> {
    let slashes = relative.iter().enumerate();
    let slashes = slashes.filter(|(_, byte)| **byte == b'/');
    let above = slashes.filter_map(|(at, _)| relative.get(..=at));
    let mut directories = vec![&relative[..0]];
    directories.extend(above);
    directories
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;
    use std::path::PathBuf;

    use config::model::{self, Symlinks, UnknownLines};
    use htaccess::overrides::Unknown;

    use super::super::cache::settled_after_ns;
    use super::*;

    /// A root with these files, which are old enough.
    pub(crate) fn root(test: &str, files: &[(&str, &str)]) -> (PathBuf, Root) {
        let path = std::env::temp_dir().join(format!("nagaya-{test}-{}", std::process::id()));
        for (name, text) in files {
            let file = path.join(name);
            fs::create_dir_all(file.parent().expect("a directory")).expect("a directory");
            fs::write(&file, text).expect("a file");
        }
        let root = model::Root {
            path: path.clone(),
            within: path.clone(),
            symlinks: Symlinks::Owner,
        };
        (path, Root::open(&root).expect("it is there"))
    }

    pub(crate) fn walk(
        path: &std::path::Path,
        words: &[&str],
        directories: Vec<DirectorySection>,
    ) -> Walk {
        let overrides = Overrides::new(words.iter().copied(), Unknown::Log);
        Walk {
            programs: Arc::default(),
            most_bytes: 1 << 24,
            tenant: "a".into(),
            site: "a.test".into(),
            files: Arc::new(SiteHtaccess {
                words: words.iter().map(|word| (*word).to_owned()).collect(),
                unknown: UnknownLines::Log,
                overrides: overrides.expect("words are known"),
                handlers: Vec::new(),
                directories,
            }),
            root_name: format!("{}/", path.display()).into_bytes(),
            relative: Vec::new(),
        }
    }

    pub(crate) fn found(walk: &Walk, root: &Root, relative: &str) -> Arc<KnownChain> {
        let walk = Walk {
            relative: relative.as_bytes().to_vec(),
            ..walk.clone()
        };
        match walk.look(root, Wait::Allowed).expect("it can be read") {
            Walked::Known(_, known) => known,
            Walked::Refused(file, why) => panic!("{}: {why}", file.escape_ascii()),
        }
    }

    /// The levels that hold below a root, each by its name.
    fn names(known: &KnownChain, path: &std::path::Path) -> Vec<String> {
        let root = path.display().to_string();
        let levels = known.chain.levels().iter();
        let name = |level: &htaccess::ChainLevel| known.name_of(&level.directory);
        levels.map(|it| name(it).replace(&root, "ROOT")).collect()
    }

    #[test]
    fn directories_without_a_file_share_the_chain_of_the_one_above_that_has_one() {
        let text = "Redirect /a /b\n".repeat(100);
        let (path, root) = root("shared-chain", &[(".htaccess", &text), ("a/b/c/x", "")]);
        let walk = walk(&path, &["All"], Vec::new());
        settle(&walk, &root);
        let at_root = found(&walk, &root, "");
        let bytes = walk.programs.bytes();
        for relative in ["a/", "a/b/", "a/b/c/x", "a/none/of/these"] {
            let below = found(&walk, &root, relative);
            assert!(Arc::ptr_eq(&at_root, &below), "{relative}");
        }
        assert!(bytes > 0 && walk.programs.bytes() == bytes);
    }

    #[test]
    fn sections_come_before_the_files_of_their_directories_and_need_none() {
        let (path, root) = root(
            "sections",
            &[
                (".htaccess", "Options -Indexes\n"),
                ("a/.htaccess", "Options -Indexes\n"),
                ("a/x", ""),
            ],
        );
        let section = |directory: String, context| DirectorySection {
            directory,
            overrides: None,
            context,
            text: "Require all granted".to_owned(),
        };
        let below = |name: &str| format!("{}/{name}", path.display());
        let directories = vec![
            section(below(""), SectionContext::Server),
            section("/".to_owned(), SectionContext::Directory),
            section(below(""), SectionContext::Directory),
            section(below("a/"), SectionContext::Directory),
            section(below("a/"), SectionContext::Directory),
            section(below("other/"), SectionContext::Directory),
        ];
        let section = |name: &str| format!("`directories` of the site, {name}");
        let at_root = [section("ROOT/"), section("/"), section("ROOT/")];
        let at_a = [section("ROOT/a/"), section("ROOT/a/")];
        let file = |name: &str| vec![format!("ROOT/{name}.htaccess")];
        for (words, expected) in [
            (
                &["All"][..],
                [&at_root[..], &file(""), &at_a, &file("a/")].concat(),
            ),
            (&[], [&at_root[..], &at_a].concat()),
        ] {
            let walk = walk(&path, words, directories.clone());
            assert_eq!(names(&found(&walk, &root, "a/x"), &path), expected);
        }
    }

    #[test]
    fn a_file_is_kept_once_a_change_of_it_would_show_and_until_then_only_a_whole_one_counts() {
        let whole = "Require all denied\n";
        for (test, text, is_whole) in [
            ("young", whole, true),
            ("young-half", "<Files x>\nRequire all denied\n", false),
            ("young-empty", "", false),
        ] {
            let (path, root) = root(test, &[(".htaccess", text)]);
            let walk = walk(&path, &["All"], Vec::new());
            let directories = directories(b"");
            let opened = walk.open(&root, &directories, Wait::Allowed);
            let Ok((opened, stamps)) = opened else {
                panic!("{test}: it can be opened");
            };
            let written_ns = stamps[0].facts.changed_ns;
            let shows_ns = written_ns + settled_after_ns(written_ns);
            for (looked_ns, is_old) in
                [(written_ns, false), (shows_ns, false), (shows_ns + 1, true)]
            {
                let read = walk.read(&directories, (&opened, &stamps), looked_ns.into());
                match read {
                    Ok((levels, is_settled)) => {
                        assert_eq!((is_settled, is_old || is_whole), (is_old, true), "{test}");
                        let place = ChainPlace {
                            tenant: "a",
                            files: &walk.files,
                            directory: b"",
                        };
                        let stamped = (stamps.clone(), is_settled);
                        let merged = walk.programs.merge(&place, stamped, levels, 1 << 24);
                        assert!(merged.is_ok(), "{test}");
                        let is_kept = walk.programs.chain(&place, &stamps).is_some();
                        assert_eq!(is_kept, is_old, "{test}");
                    }
                    Err(Fault::Refused(_, why)) => {
                        assert_eq!((why, is_old || is_whole), (CHANGING, false), "{test}");
                    }
                    Err(Fault::Io(error)) => panic!("{test}: {error}"),
                }
            }
        }
    }

    /// Waits until a change of the files would show.
    fn settle(walk: &Walk, root: &Root) {
        let since = std::time::Instant::now();
        while walk.programs.bytes() == 0 {
            found(walk, root, "");
            assert!(since.elapsed().as_secs() < 30, "it never settles");
        }
    }
}
