//! Every file a configuration consists of, read once.
//!
//! The idea: [`Sources::read`] is the only function of this crate that touches files (and
//! [`Sources::read_overrides_again`] one of them), by looks as `looks` has them. It follows
//! includes and fetches whatever the keys name (password files, error pages, scripts, whether directories
//! exist, whether maps' files can be read), so that [`crate::load`] is a pure function and two processes that hold the same bytes
//! hold the same configuration. One thing is not among them: which time zones there are is looked
//! up by [`crate::load`], in the machine's tz database or else the one built in. A file that cannot be read is remembered as such and becomes a
//! problem at its key, beside all the others. Nothing is validated here.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use crate::aside::{Aside, Stays};
use crate::countries::CountryFile;
use crate::diagnostics::Diagnostics;
use crate::include::Broken;
use crate::last_good::{LastGood, Standing};
use crate::looks::{
    BadLines, Existence, find_phps, look_at_clients, look_at_directory, look_at_map, meant_name,
    read_bytes, read_text,
};
use crate::model::FileIdentity;
use crate::reason::reason;
use crate::{include, keys, library, mentions, packing};

/// Largest configuration file.
const CONFIG_BYTES_MAX: u64 = 64 << 20;
/// Largest file a key names: a password file, an error page or a script.
const DATA_BYTES_MAX: u64 = 16 << 20;
/// Largest overrides file.
const OVERRIDES_BYTES_MAX: u64 = 1 << 20;
/// What is added to a configuration's name to make that of its overrides file.
const OVERRIDES_SUFFIX: &str = ".overrides";
/// What is added for that of its files' last good versions.
const LAST_GOOD_SUFFIX: &str = ".last-good";
/// What a file's mode has where everybody may read it.
const READ_BY_OTHERS: u32 = 0o004;
/// Configuration files of one configuration.
const FILES_MAX: usize = 200_000;

/// A configuration as bytes: its files, and what was found where its keys point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sources {
    pub(crate) cores: usize,
    pub(crate) existence: Existence,
    pub(crate) files: Vec<SourceFile>,
    /// Includes that failed: including file, pattern as written, why.
    pub(crate) broken_includes: Vec<(usize, String, String)>,
    /// Changes of limits that were kept.
    pub(crate) overrides: Overrides,
    pub(crate) data: BTreeMap<PathBuf, Result<Vec<u8>, String>>,
    pub(crate) directories: BTreeMap<PathBuf, Result<(), String>>,
    /// The files of Ruby below the directories that scripts may require from.
    pub(crate) libraries: BTreeMap<PathBuf, Result<BTreeSet<PathBuf>, String>>,
    /// Canonical names of files that keys name, and of FastCGI sockets, that are called by another.
    pub(crate) canonical: BTreeMap<PathBuf, PathBuf>,
    /// What the files of scripts and passwords are, whatever they are called.
    pub(crate) identities: BTreeMap<PathBuf, FileIdentity>,
    /// Those of them that users of the machine may read who are neither their owner nor of their group.
    pub(crate) open_to_others: BTreeSet<PathBuf>,
    /// Every php-fpm that was found, by its version; none where nobody asks for one.
    pub(crate) phps: BTreeMap<String, PathBuf>,
    /// What was seen of the files of maps, which workers read themselves. Not looked at in another process.
    pub(crate) map_files: BTreeMap<PathBuf, Result<BadLines, String>>,
    /// The same of files that name clients.
    pub(crate) client_files: BTreeMap<PathBuf, Result<BadLines, String>>,
    /// Files that say which country an address is in, which the server reads itself. Likewise.
    pub(crate) country_files: BTreeMap<PathBuf, Result<(), String>>,
    /// Directories logs are to be made in, that are missing. Not looked at in another process.
    pub(crate) missing_for_logs: BTreeMap<PathBuf, String>,
    /// Users named, and why the server, or programs, cannot become them. Not looked at in another process.
    pub(crate) users: BTreeMap<String, Result<(), String>>,
    /// Where the last good versions of files are named to be. Not looked at in another process.
    pub(crate) last_good: Option<PathBuf>,
    /// Whether the user of the server is one of them. Not looked at in another process.
    pub(crate) is_user_named: bool,
    /// Whether the server becomes its user, and programs theirs. Not looked at in another process.
    pub(crate) becomes_users: bool,
}

/// What was found of the overrides file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Overrides {
    /// There is none, or nobody wants it.
    Absent,
    /// This.
    Read(SourceFile),
    /// It is there, but could not be read: its name, and why.
    Unread(String, String),
}

/// One configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SourceFile {
    /// Its name in messages.
    pub(crate) name: String,
    /// What relative paths in it start from; absolute.
    pub(crate) directory: PathBuf,
    pub(crate) text: String,
    /// What becomes of the others if it is wrong. Not looked at in another process.
    pub(crate) broken: Broken,
    /// Why it could not be read. Not looked at in another process.
    pub(crate) unread: Option<String>,
}

impl Sources {
    /// Reads `path`, its includes and the files their keys name.
    pub fn read(path: &Path) -> Result<Sources, Diagnostics> {
        Sources::read_beside(path, &Aside::default())
    }

    /// As [`Sources::read`], with something else in place of the files that are set aside.
    pub fn read_beside(path: &Path, aside: &Aside) -> Result<Sources, Diagnostics> {
        let failed = |why: String| {
            let help = (!path.exists()).then(|| "name the configuration with `-c FILE`".to_owned());
            Diagnostics::placeless(format!("cannot read `{}`: {why}", path.display()), help)
        };
        let absolute = std::path::absolute(path).map_err(|error| failed(reason(&error)))?;
        let text = read_text(&absolute, CONFIG_BYTES_MAX).map_err(failed)?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut sources = Sources::empty(cores, Existence::Checked);
        sources
            .files
            .push(source_file(path.display().to_string(), &absolute, text));
        let mut seen = BTreeSet::from([absolute]);
        let (mut next, mut is_user_named, mut overrides) = (0, false, None);
        while let Some(file) = sources.files.get(next) {
            let mentions = mentions::find(&file.text);
            sources.follow_includes(next, &mentions.includes, &mut seen, aside);
            sources.fetch(next, &mentions);
            is_user_named |= mentions.user.is_some();
            if mentions.wants_php && sources.phps.is_empty() {
                sources.phps = find_phps(Path::new("/"));
            }
            let named = mentions.limits_overrides.as_deref();
            overrides = overrides.or(named.map(|path| sources.resolve(next, path)));
            if let Some(path) = mentions.last_good.filter(|_| next == 0) {
                sources.last_good = Some(sources.resolve(0, &path));
            }
            next += 1;
        }
        sources.is_user_named = is_user_named;
        let overrides = overrides.unwrap_or_else(|| sources.default_overrides());
        sources.overrides = read_overrides(&overrides);
        Ok(sources)
    }

    /// Where the last good versions of files are; `None` where no file may be set aside.
    #[must_use]
    pub fn last_good(&self) -> Option<PathBuf> {
        let mut files = self.files.iter();
        files.find(|file| file.broken == Broken::Keep)?;
        let named = self.last_good.clone();
        Some(named.unwrap_or_else(|| self.default_last_good()))
    }

    /// The last good versions there will be when this has come into force at `now`, with files set
    /// aside. Of files that are no longer included nothing is left.
    #[must_use]
    pub fn last_good_after(&self, aside: &Aside, known: &LastGood, now: &str) -> LastGood {
        let loose = self.files.iter();
        let loose = loose.filter(|file| file.broken == Broken::Keep);
        let files = loose.map(|file| {
            let path = file.path();
            let standing = match aside.of(&path).map(|aside| &aside.stays) {
                None => Standing::AsWritten(&file.text),
                Some(Stays::LastGood(_)) => Standing::SetAside,
                Some(Stays::LeftOut { .. }) => Standing::LeftOut,
            };
            (path, standing)
        });
        known.followed_by(files, now)
    }

    /// The control socket that is named, whatever else is wrong.
    #[must_use]
    pub fn control_socket(&self) -> Option<PathBuf> {
        let named = |(number, file): (usize, &SourceFile)| {
            let path = mentions::find(&file.text).control?;
            let path = Some(path).filter(|path| !path.is_empty())?;
            Some(self.resolve(number, &path))
        };
        self.files.iter().enumerate().find_map(named)
    }

    /// Asks `find` for the users named, and for the one the server becomes where none is named;
    /// until then any user is taken to exist.
    pub fn look_up_users(&mut self, find: impl Fn(&str) -> Result<(), String>) {
        if !self.is_user_named {
            let default = keys::default_of(&keys::TOP, "user");
            self.users.insert(default.to_owned(), Ok(()));
        }
        self.becomes_users = true;
        self.look_up_named_users(find);
    }

    /// As [`Sources::look_up_users`], for a server that stays who it is.
    pub fn look_up_named_users(&mut self, find: impl Fn(&str) -> Result<(), String>) {
        for (name, found) in &mut self.users {
            *found = find(name);
        }
    }

    /// Does without directories of logs for which `excuse` holds: somebody else may have removed
    /// them, who should not decide what becomes of the configuration.
    pub fn excuse_logs(&mut self, excuse: impl Fn(&Path) -> bool) {
        self.missing_for_logs
            .retain(|directory, _| !excuse(directory));
    }

    /// A configuration of one text, for tests and examples. Directories are taken to exist;
    /// files it names are given by [`Sources::with_file`].
    pub fn from_text(name: &str, text: &str) -> Sources {
        let mut sources = Sources::empty(1, Existence::Assumed);
        let absolute = Path::new("/").join(name);
        sources
            .files
            .push(source_file(name.to_owned(), &absolute, text.to_owned()));
        sources
    }

    /// Adds a file that keys may name, as if it had been read at `path` (absolute).
    pub fn with_file(mut self, path: &str, bytes: &[u8]) -> Sources {
        self.data.insert(PathBuf::from(path), Ok(bytes.to_vec()));
        self
    }

    /// Adds a php-fpm, as if it had been found at `path` (absolute).
    pub fn with_php(mut self, version: &str, path: &str) -> Sources {
        self.phps.insert(version.to_owned(), PathBuf::from(path));
        self
    }

    /// Adds an overrides file, as if it had been read at `path` (absolute).
    pub fn with_overrides(mut self, path: &str, text: &str) -> Sources {
        let file = source_file(path.to_owned(), Path::new(path), text.to_owned());
        self.overrides = Overrides::Read(file);
        self
    }

    /// The overrides file alone, to find out whether it is another later on.
    pub fn overrides_alone(&self) -> Sources {
        Sources {
            overrides: self.overrides.clone(),
            ..Sources::empty(self.cores, self.existence)
        }
    }

    /// Reads the overrides file again, which is at `path`; `false` where it is as it was.
    pub fn read_overrides_again(&mut self, path: &Path) -> bool {
        let before = std::mem::replace(&mut self.overrides, read_overrides(path));
        before != self.overrides
    }

    /// Does without the overrides file; `false` where there was none.
    pub fn set_overrides_aside(&mut self) -> bool {
        let before = std::mem::replace(&mut self.overrides, Overrides::Absent);
        before != Overrides::Absent
    }

    /// Adds a configuration file, as if it had been included.
    pub fn with_include(mut self, name: &str, text: &str) -> Sources {
        let absolute = Path::new("/").join(name);
        self.files
            .push(source_file(name.to_owned(), &absolute, text.to_owned()));
        self
    }

    /// The sources as one run of bytes, for another process.
    pub fn to_bytes(&self) -> Vec<u8> {
        packing::pack(self)
    }

    /// The inverse of [`Sources::to_bytes`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Sources, Damaged> {
        packing::unpack(bytes).ok_or(Damaged)
    }

    pub(crate) fn empty(cores: usize, existence: Existence) -> Sources {
        Sources {
            cores,
            existence,
            files: Vec::new(),
            broken_includes: Vec::new(),
            overrides: Overrides::Absent,
            data: BTreeMap::new(),
            directories: BTreeMap::new(),
            libraries: BTreeMap::new(),
            canonical: BTreeMap::new(),
            identities: BTreeMap::new(),
            open_to_others: BTreeSet::new(),
            phps: BTreeMap::new(),
            map_files: BTreeMap::new(),
            client_files: BTreeMap::new(),
            country_files: BTreeMap::new(),
            missing_for_logs: BTreeMap::new(),
            users: BTreeMap::new(),
            last_good: None,
            is_user_named: false,
            becomes_users: false,
        }
    }

    /// File number `number`; the overrides file comes after the last.
    pub(crate) fn file(&self, number: usize) -> Option<&SourceFile> {
        match &self.overrides {
            Overrides::Read(file) if number == self.files.len() => Some(file),
            _ => self.files.get(number),
        }
    }

    /// Where the overrides file is, if nothing is said.
    pub(crate) fn default_overrides(&self) -> PathBuf {
        self.beside(OVERRIDES_SUFFIX)
    }

    /// Where the last good versions are, if nothing is said.
    pub(crate) fn default_last_good(&self) -> PathBuf {
        self.beside(LAST_GOOD_SUFFIX)
    }

    /// The configuration's own name with more behind it.
    fn beside(&self, suffix: &str) -> PathBuf {
        let Some(first) = self.files.first() else {
            return PathBuf::from("/").join(suffix);
        };
        let mut name = Path::new(&first.name)
            .file_name()
            .unwrap_or_default()
            .to_owned();
        name.push(suffix);
        first.directory.join(name)
    }

    /// `path` as written in file number `file`, made absolute.
    pub(crate) fn resolve(&self, file: usize, path: &str) -> PathBuf {
        let directory = self
            .files
            .get(file)
            .map_or(Path::new("/"), |file| &file.directory);
        normal(&directory.join(path))
    }

    fn follow_includes(
        &mut self,
        from: usize,
        includes: &[(String, Broken)],
        seen: &mut BTreeSet<PathBuf>,
        aside: &Aside,
    ) {
        for (pattern, broken) in includes {
            if let Err(why) = self.include(from, (pattern, *broken), seen, aside) {
                self.broken_includes.push((from, pattern.clone(), why));
            }
        }
    }

    fn include(
        &mut self,
        from: usize,
        (pattern, broken): (&str, Broken),
        seen: &mut BTreeSet<PathBuf>,
        aside: &Aside,
    ) -> Result<(), String> {
        let Some(including) = self.files.get(from) else {
            return Ok(());
        };
        // Whoever may be set aside cannot make the others depend on a further file.
        let broken = match including.broken {
            Broken::Keep => Broken::Keep,
            Broken::Refuse => broken,
        };
        let directory = including.directory.clone();
        let name_start = Path::new(&including.name)
            .parent()
            .unwrap_or(Path::new(""))
            .to_owned();
        // One that is named and not there is the mistake of whoever names it.
        let may_be_unread = broken == Broken::Keep;
        for found in include::expand(&directory, pattern)? {
            let absolute = normal(&directory.join(&found));
            if !seen.insert(absolute.clone()) {
                continue;
            }
            if self.files.len() >= FILES_MAX {
                return Err(format!("more than {FILES_MAX} files"));
            }
            let text = match aside.text_of(&absolute) {
                Some(text) => Ok(text.to_string()),
                None => read_text(&absolute, CONFIG_BYTES_MAX),
            };
            let (text, unread) = match text {
                Ok(text) => (text, None),
                Err(why) if may_be_unread && absolute.exists() => (String::new(), Some(why)),
                Err(why) => return Err(format!("`{}`: {why}", found.display())),
            };
            let name = name_start.join(&found).display().to_string();
            self.files.push(SourceFile {
                broken,
                unread,
                ..source_file(name, &absolute, text)
            });
        }
        Ok(())
    }

    fn fetch(&mut self, from: usize, mentions: &mentions::Mentions) {
        for path in &mentions.data {
            let path = self.resolve(from, path);
            self.identify(&path);
            self.data
                .entry(path)
                .or_insert_with_key(|path| read_bytes(path, DATA_BYTES_MAX));
        }
        for path in &mentions.scripts {
            self.fetch_script(self.resolve(from, path));
        }
        for path in &mentions.libraries {
            self.fetch_library(self.resolve(from, path));
        }
        for path in &mentions.client_files {
            self.client_files
                .entry(self.resolve(from, path))
                .or_insert_with_key(|path| look_at_clients(path));
        }
        for path in &mentions.country_files {
            self.country_files
                .entry(self.resolve(from, path))
                .or_insert_with_key(|path| CountryFile::look(path));
        }
        for path in &mentions.map_files {
            self.map_files
                .entry(self.resolve(from, path))
                .or_insert_with_key(|path| look_at_map(path));
        }
        for path in &mentions.directories {
            let path = self.resolve(from, path);
            self.directories
                .entry(path)
                .or_insert_with_key(|path| look_at_directory(path));
        }
        for path in &mentions.fastcgi_sockets {
            self.fetch_socket(self.resolve(from, path));
        }
        for path in &mentions.logs {
            if let Some(directory) = self.resolve(from, path).parent()
                && let Err(why) = look_at_directory(directory)
            {
                self.missing_for_logs.insert(directory.to_owned(), why);
            }
        }
        for path in &mentions.sockets {
            if let Some(directory) = self.resolve(from, path).parent() {
                self.directories
                    .entry(directory.to_owned())
                    .or_insert_with_key(|path| look_at_directory(path));
            }
        }
        let users = mentions.user.iter().chain(&mentions.program_users);
        self.users.extend(users.map(|name| (name.clone(), Ok(()))));
    }

    /// A socket has as many names as links lead to it, whether or not its server runs already.
    fn fetch_socket(&mut self, path: PathBuf) {
        let (directory, name) = (path.parent(), path.file_name());
        let there = || Some(std::fs::canonicalize(directory?).ok()?.join(name?));
        let canonical = std::fs::canonicalize(&path).ok().or_else(there);
        if let Some(canonical) = canonical.filter(|canonical| *canonical != path) {
            self.canonical.insert(path, canonical);
        }
    }

    fn fetch_script(&mut self, path: PathBuf) {
        if self.data.contains_key(&path) {
            return;
        }
        self.identify(&path);
        let found = read_bytes(&path, DATA_BYTES_MAX).map_err(|why| match path.exists() {
            true => why,
            false => why + &meant_name(&path),
        });
        self.data.insert(path, found);
    }

    fn fetch_library(&mut self, directory: PathBuf) {
        let found = library::files_below(&directory);
        for file in found.iter().flatten() {
            self.fetch_script(file.clone());
        }
        let found = found.map_err(|why| match directory.exists() {
            true => why,
            false => why + &meant_name(&directory),
        });
        self.libraries.insert(directory, found);
    }

    /// Notes what a file is, and its canonical name where that is another.
    fn identify(&mut self, path: &Path) {
        if self.data.contains_key(path) {
            return;
        }
        let canonical = std::fs::canonicalize(path).ok();
        if let Some(canonical) = canonical.filter(|canonical| canonical != path) {
            self.canonical.insert(path.to_owned(), canonical);
        }
        if let Ok(facts) = std::fs::metadata(path) {
            let identity = FileIdentity::of(&facts);
            self.identities.insert(path.to_owned(), identity);
            if facts.permissions().mode() & READ_BY_OTHERS != 0 {
                self.open_to_others.insert(path.to_owned());
            }
        }
    }

    /// Why there is no such directory, if there is none.
    pub(crate) fn directory_missing(&self, path: &Path) -> Option<&str> {
        match (self.directories.get(path), self.existence) {
            (Some(Ok(())), _) | (None, Existence::Assumed) => None,
            (Some(Err(why)), _) => Some(why),
            (None, Existence::Checked) => Some("no such file or directory"),
        }
    }
}

impl SourceFile {
    /// Where it is: absolute.
    pub(crate) fn path(&self) -> PathBuf {
        let name = Path::new(&self.name).file_name().unwrap_or_default();
        self.directory.join(name)
    }
}

impl FileIdentity {
    fn of(facts: &Metadata) -> Self {
        let born = facts.created().ok();
        let age = born.and_then(|born| born.duration_since(UNIX_EPOCH).ok());
        Self {
            device: facts.dev(),
            inode: facts.ino(),
            born_ns: age.map_or(0, |age| u64::try_from(age.as_nanos()).unwrap_or(0)),
        }
    }
}

/// Bytes that [`Sources::to_bytes`] did not write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damaged;

impl std::fmt::Display for Damaged {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("damaged configuration sources")
    }
}

impl std::error::Error for Damaged {}

pub(crate) fn source_file(name: String, absolute: &Path, text: String) -> SourceFile {
    let directory = normal(absolute.parent().unwrap_or(Path::new("/")));
    SourceFile {
        name,
        directory,
        text,
        broken: Broken::Refuse,
        unread: None,
    }
}

fn read_overrides(path: &Path) -> Overrides {
    if std::fs::metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        return Overrides::Absent;
    }
    let name = path.display().to_string();
    match read_text(path, OVERRIDES_BYTES_MAX) {
        Ok(text) => Overrides::Read(source_file(name, path, text)),
        Err(why) => Overrides::Unread(name, why),
    }
}

/// `path` without `.` and `..`, by its text alone.
pub(crate) fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            std::path::Component::CurDir => {}
            std::path::Component::ParentDir => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}
