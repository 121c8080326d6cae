//! The search itself: a site's `try` entries, one after the other, against the file system.
//!
//! Plain system calls, run by a worker while nothing has to be waited for and by a helper thread
//! otherwise; both get the same answer. Every decision is made on an opened descriptor.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use config::model::{self, TryEntry};
use os::file::{FileFacts, FileKind, NoFile, Symlinks, Wait, Wish};

use super::file::Opened;
use super::resolved::relative_of;
use crate::helper::Lane;
use crate::site::Site;
use crate::tree::Tree;

/// A site's boundary, opened.
#[derive(Debug)]
pub(crate) struct Root {
    /// The directory nothing leads out of.
    within: OwnedFd,
    /// The document root's place in it; empty or ending with a slash.
    prefix: Box<[u8]>,
    /// Where the boundary is, no links in its path, a slash at its end.
    place: Box<[u8]>,
    symlinks: Symlinks,
    /// Why it may not be entered, and why it may not be listed: found out at the first refusal.
    closed: [OnceLock<Option<Arc<str>>>; 2],
    /// Whom its file system makes wait.
    pub(super) lane: Lane,
}

impl Root {
    /// Opens the boundary of a site. May wait.
    pub(crate) fn open(root: &model::Root) -> io::Result<Self> {
        let within = os::file::open_directory(&root.within)?;
        let below = root.path.strip_prefix(&root.within).unwrap_or(&root.path);
        let mut prefix = below.as_os_str().as_bytes().to_vec();
        if !prefix.is_empty() {
            prefix.push(b'/');
        }
        let mut place = os::file::path_of(within.as_fd())?;
        if !place.ends_with(b"/") {
            place.push(b'/');
        }
        Ok(Self {
            lane: lane_of(within.as_fd())?,
            place: place.into(),
            within,
            prefix: prefix.into(),
            closed: Default::default(),
            symlinks: match root.symlinks {
                model::Symlinks::Deny => Symlinks::Deny,
                model::Symlinks::Owner => Symlinks::Owner,
                model::Symlinks::Allow => Symlinks::Allow,
            },
        })
    }

    /// Opens a file of the root and looks at it.
    pub(super) fn look(&self, relative: &[u8], wait: Wait) -> io::Result<Seen> {
        let path = [&self.prefix, relative].concat();
        let opened = os::file::open_beneath(self.within.as_fd(), &path, self.symlinks, wait);
        let descriptor = match opened {
            Ok(descriptor) => descriptor,
            // Into another mount or out of the root: which, a helper finds out.
            Err(error) if wait == Wait::Never && error.kind() == io::ErrorKind::CrossesDevices => {
                return Err(error);
            }
            Err(error) => {
                return match not_opened(error)? {
                    Seen::Denied => self.find(&path, wait),
                    other => Ok(other),
                };
            }
        };
        let lane = match wait {
            // What needed no waiting lies in the root's own file system.
            Wait::Never => self.lane,
            Wait::Allowed => lane_of(descriptor.as_fd())?,
        };
        let facts = os::file::facts(descriptor.as_fd())?;
        let behind_links = self.behind_links(descriptor.as_fd(), &path)?;
        if behind_links.as_deref().is_some_and(is_hidden_place) {
            return Ok(Seen::Nothing("dotfile"));
        }
        let opened = Opened {
            descriptor,
            facts,
            lane,
            place: self.place_of(&path, behind_links.as_deref()),
            behind_links,
        };
        Ok(match facts.kind {
            FileKind::Regular => Seen::File(opened),
            FileKind::Directory => Seen::Directory(opened),
            FileKind::Symlink | FileKind::Other => Seen::Nothing("no_file"),
        })
    }

    /// Opens what is at a name for reading, whatever it is.
    pub(crate) fn descriptor(&self, relative: &[u8], wait: Wait) -> io::Result<OwnedFd> {
        let path = [&self.prefix, relative].concat();
        os::file::open_beneath(self.within.as_fd(), &path, self.symlinks, wait)
    }

    /// The directories on the way to one, the boundary first, each with what is known of it.
    ///
    /// # Errors
    /// There are more than so many, or there is a link among them.
    pub(crate) fn way(
        &self,
        directory: &[u8],
        most: usize,
        wait: Wait,
    ) -> io::Result<Vec<(OwnedFd, FileFacts)>> {
        let path = [&self.prefix, directory].concat();
        let slashes = path.iter().enumerate();
        let slashes = slashes.filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        let ends: Vec<usize> = std::iter::once(0).chain(slashes).take(most + 1).collect();
        if ends.len() > most {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut way = Vec::new();
        for end in ends {
            let path = path.get(..end).unwrap_or_default();
            let found = os::file::find_beneath(self.within.as_fd(), path, Symlinks::Deny, wait)?;
            let facts = os::file::facts(found.as_fd())?;
            way.push((found, facts));
        }
        Ok(way)
    }

    /// Finds what is at a name to which no link leads.
    pub(crate) fn find_plain(&self, relative: &[u8], wait: Wait) -> io::Result<OwnedFd> {
        let path = [&self.prefix, relative].concat();
        os::file::find_beneath(self.within.as_fd(), &path, Symlinks::Deny, wait)
    }

    /// What is known of what is at a name, which need not be readable.
    pub(crate) fn facts(&self, relative: &[u8], wait: Wait) -> io::Result<FileFacts> {
        let path = [&self.prefix, relative].concat();
        let found = os::file::find_beneath(self.within.as_fd(), &path, self.symlinks, wait)?;
        os::file::facts(found.as_fd())
    }

    /// What is known of what is at a name, and whether that is a link. Where there is no link on the
    /// way it takes one look.
    pub(crate) fn facts_and_link(
        &self,
        relative: &[u8],
        wait: Wait,
    ) -> io::Result<(FileFacts, bool)> {
        let path = [&self.prefix, relative].concat();
        match os::file::facts_without_links(self.within.as_fd(), &path, wait)? {
            Some(facts) => Ok((facts, false)),
            None => {
                let is_link = self.is_link(relative, wait)?;
                Ok((self.facts(relative, wait)?, is_link))
            }
        }
    }

    /// How a full name below the boundary is called from the root; `None` outside of it.
    pub(crate) fn relative_of_full(&self, root: &model::Root, name: &[u8]) -> Option<Vec<u8>> {
        let within = root.within.as_os_str().as_bytes();
        let below = name.strip_prefix(within.strip_suffix(b"/").unwrap_or(within))?;
        let below = below.strip_prefix(b"/")?;
        let levels = self.prefix.iter().filter(|byte| **byte == b'/').count();
        let up = b"../".repeat(levels);
        match below.strip_prefix(&*self.prefix) {
            Some(below) => Some(below.to_vec()),
            None => Some([&*up, below].concat()),
        }
    }

    /// Whether a link is at a name where no file is found.
    ///
    /// # Errors
    /// As [`Self::look`].
    pub(crate) fn is_link(&self, relative: &[u8], wait: Wait) -> io::Result<bool> {
        let path = [&self.prefix, relative].concat();
        let path = path.strip_suffix(b"/").unwrap_or(&path);
        os::file::is_link_beneath(self.within.as_fd(), path, wait)
    }

    /// Looks for a file that may not be read: the user of a program may be one who may.
    fn find(&self, path: &[u8], wait: Wait) -> io::Result<Seen> {
        let found = os::file::find_beneath(self.within.as_fd(), path, self.symlinks, wait);
        let found = match found {
            Ok(found) => found,
            Err(error) => return not_opened(error),
        };
        if os::file::facts(found.as_fd())?.kind != FileKind::Regular {
            return Ok(Seen::Denied);
        }
        let behind_links = self.behind_links(found.as_fd(), path)?;
        Ok(match behind_links.as_deref().is_some_and(is_hidden_place) {
            true => Seen::Nothing("dotfile"),
            false => Seen::Unreadable,
        })
    }

    /// Which directory keeps the server from what it was refused below the root, if it is not the
    /// refused file's own business.
    ///
    /// # Errors
    /// `WouldBlock` where it must not wait and it is not known yet.
    fn advice(&self, root: &Path, relative: &[u8], wait: Wait) -> io::Result<Option<Arc<str>>> {
        let (wish, known) = match relative {
            b"" => (Wish::Read, &self.closed[0]),
            _ => (Wish::Enter, &self.closed[1]),
        };
        match wait {
            Wait::Never => known.get().ok_or(io::ErrorKind::WouldBlock.into()),
            Wait::Allowed => Ok(known.get_or_init(|| closed(root, wish).map(Into::into))),
        }
        .cloned()
    }

    /// What a path names once its links are followed, below the boundary; `None` when it has none.
    ///
    /// A link must not dress a hidden file or a program's source as something harmless.
    fn behind_links(&self, file: BorrowedFd<'_>, path: &[u8]) -> io::Result<Option<Vec<u8>>> {
        if self.symlinks == Symlinks::Deny {
            return Ok(None);
        }
        let place = os::file::path_of(file)?;
        let below = match place.strip_prefix(&*self.place) {
            Some(below) => below,
            None if self.place.strip_suffix(b"/") == Some(&*place) => b"",
            None => &place,
        };
        let asked = path.strip_suffix(b"/").unwrap_or(path);
        Ok((below != asked).then(|| below.to_vec()))
    }

    /// The full name of what was found at `path`, given what it names behind its links.
    fn place_of(&self, path: &[u8], behind_links: Option<&[u8]>) -> Vec<u8> {
        match behind_links {
            Some(outside) if outside.starts_with(b"/") => outside.to_vec(),
            below => [&*self.place, below.unwrap_or(path)].concat(),
        }
    }
}

/// Whether it is a script or holds passwords, or a link led to a program's source.
pub(super) fn leads_to_source(opened: &Opened, site: &Site) -> bool {
    let name = opened.behind_links.as_deref();
    name.is_some_and(|name| site.is_source(name))
        || site.is_guarded(&opened.place)
        || site.is_guarded_file(opened.descriptor.as_fd(), &opened.facts)
}

/// What stands at a name.
#[derive(Debug)]
pub(super) enum Seen {
    File(Opened),
    Directory(Opened),
    /// Nothing that could be served; the word says why.
    Nothing(&'static str),
    /// A regular file stands in the way.
    FileInTheWay,
    /// A regular file that the server may not read.
    Unreadable,
    /// The server may not even look.
    Denied,
}

/// What a path came to, with its name below the root.
#[derive(Debug)]
pub(super) struct SearchOutcome {
    pub(super) relative: Vec<u8>,
    /// How much of the path's end is no part of the file's name.
    pub(super) path_info: Vec<u8>,
    /// Whether a directory was met at the path itself.
    pub(super) is_directory: bool,
    pub(super) ending: Ending,
    /// What the operator can do about a refusal.
    pub(super) advice: Option<Arc<str>>,
}

#[derive(Debug)]
pub(super) enum Ending {
    File(Opened),
    /// A directory to be listed.
    Directory(Opened),
    /// A directory asked for without the slash at its end.
    Unslashed,
    /// The word says why.
    Missing(&'static str),
    Unreadable,
    Denied,
    Status(u16),
}

/// Searches for a canonical path that leads into this tree of the site.
///
/// # Errors
/// `WouldBlock` or `CrossesDevices` where it must not wait and might have to; anything else is the machine's trouble.
pub(super) fn search(
    (site, tree): (&Site, &Tree),
    root: &Root,
    path: &[u8],
    wait: Wait,
) -> io::Result<SearchOutcome> {
    let below = tree.below(path).unwrap_or_default();
    let relative = relative_of(below);
    let search = Search {
        site,
        tree,
        root,
        relative,
        wait,
    };
    let mut outcome = if below.is_empty() && tree.has_directories() {
        // A mount without the slash at its end.
        SearchOutcome::named(relative, Ending::Unslashed)
    } else if is_hidden(relative) {
        let found = search.fixed_only()?;
        found.unwrap_or_else(|| SearchOutcome::named(relative, Ending::Missing("dotfile")))
    } else {
        search.run()?
    };
    if let Ending::Denied = outcome.ending {
        outcome.advice = root.advice(&tree.root.path, &outcome.relative, wait)?;
    }
    Ok(outcome)
}

struct Search<'a> {
    site: &'a Site,
    tree: &'a Tree,
    root: &'a Root,
    relative: &'a [u8],
    wait: Wait,
}

impl Search<'_> {
    fn run(&self) -> io::Result<SearchOutcome> {
        // What `$path` found, for `$path/` to go on from.
        let mut seen = None;
        let (mut why, mut is_directory) = ("no_file", false);
        for entry in self.tree.resolve.iter() {
            let found = match entry {
                TryEntry::Path => match self.root.look(self.relative, self.wait)? {
                    Seen::FileInTheWay => self.cut()?,
                    other => {
                        why = other.why_missing();
                        is_directory = matches!(other, Seen::Directory(_));
                        self.file_or_note(other, &mut seen)
                    }
                },
                TryEntry::Directory => {
                    let seen = match seen.take() {
                        Some(seen) => seen,
                        None => self.root.look(self.relative, self.wait)?,
                    };
                    is_directory = matches!(seen, Seen::Directory(_));
                    self.directory(seen)?
                }
                TryEntry::Suffix(suffix) => self.suffixed(suffix)?,
                other => self.fixed(other)?,
            };
            if let Some(mut found) = found {
                found.is_directory = is_directory;
                return Ok(found);
            }
        }
        if why == "no_file" && self.root.is_link(self.relative, self.wait)? {
            why = "symlink_dangling";
        }
        let mut outcome = SearchOutcome::named(self.relative, Ending::Missing(why));
        outcome.is_directory = is_directory;
        Ok(outcome)
    }

    /// A hidden path is nobody's file; the front controller may still answer for it.
    fn fixed_only(&self) -> io::Result<Option<SearchOutcome>> {
        for entry in self.tree.resolve.iter() {
            let found = self.fixed(entry)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    fn file_or_note(&self, found: Seen, note: &mut Option<Seen>) -> Option<SearchOutcome> {
        match found {
            Seen::File(opened) => Some(SearchOutcome::named(self.relative, Ending::File(opened))),
            Seen::Unreadable => Some(SearchOutcome::named(self.relative, Ending::Unreadable)),
            Seen::Denied => Some(SearchOutcome::named(self.relative, Ending::Denied)),
            other => {
                *note = Some(other);
                None
            }
        }
    }

    /// A regular file stands in the middle of the path: what follows it is PATH_INFO.
    fn cut(&self) -> io::Result<Option<SearchOutcome>> {
        let slashes = self.relative.iter().enumerate();
        for (at, _) in slashes.filter(|(_, byte)| **byte == b'/') {
            let (name, path_info) = self.relative.split_at(at);
            let ending = match self.root.look(name, self.wait)? {
                Seen::File(opened) => Ending::File(opened),
                Seen::Unreadable => Ending::Unreadable,
                Seen::Denied => return Ok(Some(SearchOutcome::named(name, Ending::Denied))),
                Seen::Directory(_) => continue,
                Seen::Nothing(_) | Seen::FileInTheWay => break,
            };
            let mut outcome = SearchOutcome::named(name, ending);
            outcome.path_info = path_info.to_vec();
            return Ok(Some(outcome));
        }
        Ok(None)
    }

    /// The directory's index, the directory itself if it may be listed, or nothing.
    fn directory(&self, seen: Seen) -> io::Result<Option<SearchOutcome>> {
        let Seen::Directory(opened) = seen else {
            return Ok(None);
        };
        let slashed = self.relative.is_empty() || self.relative.ends_with(b"/");
        for index in self.tree.index.iter() {
            let slash: &[u8] = if slashed { b"" } else { b"/" };
            let name = [self.relative, slash, index.as_bytes()].concat();
            let ending = match self.root.look(&name, self.wait)? {
                Seen::File(_) | Seen::Unreadable if !slashed => return self.unslashed(),
                Seen::File(opened) => Ending::File(opened),
                Seen::Unreadable => Ending::Unreadable,
                Seen::Denied => Ending::Denied,
                _ => continue,
            };
            return Ok(Some(SearchOutcome::named(&name, ending)));
        }
        match (self.site.files.listing, slashed) {
            (false, _) => Ok(None),
            (true, false) => self.unslashed(),
            (true, true) => {
                let listed = Ending::Directory(opened);
                Ok(Some(SearchOutcome::named(self.relative, listed)))
            }
        }
    }

    fn unslashed(&self) -> io::Result<Option<SearchOutcome>> {
        Ok(Some(SearchOutcome::named(self.relative, Ending::Unslashed)))
    }

    fn suffixed(&self, suffix: &str) -> io::Result<Option<SearchOutcome>> {
        if self.relative.is_empty() || self.relative.ends_with(b"/") {
            return Ok(None);
        }
        let name = [self.relative, suffix.as_bytes()].concat();
        self.file(&name)
    }

    fn fixed(&self, entry: &TryEntry) -> io::Result<Option<SearchOutcome>> {
        match entry {
            TryEntry::Fixed(file) => self.file(relative_of(file.as_bytes())),
            // It comes last, and why there is no file says more.
            TryEntry::Status(404) => Ok(None),
            TryEntry::Status(status) => {
                let ending = Ending::Status(*status);
                Ok(Some(SearchOutcome::named(self.relative, ending)))
            }
            TryEntry::Path | TryEntry::Directory | TryEntry::Suffix(_) => Ok(None),
        }
    }

    fn file(&self, name: &[u8]) -> io::Result<Option<SearchOutcome>> {
        let ending = match self.root.look(name, self.wait)? {
            Seen::File(opened) => Ending::File(opened),
            Seen::Unreadable => Ending::Unreadable,
            Seen::Denied => Ending::Denied,
            _ => return Ok(None),
        };
        Ok(Some(SearchOutcome::named(name, ending)))
    }
}

impl Seen {
    /// Why there is no file, should nothing else be found.
    fn why_missing(&self) -> &'static str {
        match self {
            Seen::Nothing(why) => why,
            Seen::Directory(_) => "no_index",
            Seen::File(_) | Seen::FileInTheWay | Seen::Unreadable | Seen::Denied => "no_file",
        }
    }
}

impl SearchOutcome {
    pub(super) fn named(relative: &[u8], ending: Ending) -> Self {
        Self {
            relative: relative.to_vec(),
            path_info: Vec::new(),
            is_directory: false,
            ending,
            advice: None,
        }
    }
}

fn lane_of(descriptor: BorrowedFd<'_>) -> io::Result<Lane> {
    Ok(if os::file::is_local(descriptor)? {
        Lane::Local
    } else {
        Lane::Remote
    })
}

/// Says which directory keeps the server out of a root, and what to do. May wait.
pub(super) fn closed(root: &Path, wish: Wish) -> Option<String> {
    let (closed, user) = (os::file::first_closed(root, wish)?, os::process::user_id());
    let (verb, mode) = match wish {
        Wish::Read if closed == root => ("read", "o+rx"),
        _ => ("enter", "o+x"),
    };
    // What is somebody's own is opened to the server, and not to everybody.
    let owner = std::fs::metadata(closed).map_or(0, |facts| facts.uid());
    let is_home = owner != 0 || closed.starts_with("/root");
    let (closed, group) = (closed.display(), os::process::group_id());
    let remedy = match is_home {
        true => format!("chgrp {group} {closed} && chmod 750 {closed}"),
        false => format!("chmod {mode} {closed}"),
    };
    Some(format!(
        "user {user} may not {verb} {closed}: try {remedy}, or another `user`"
    ))
}

/// Why no request can open anything of a root, if that is so for the user of this thread. May wait.
pub fn unreachable(root: &model::Root) -> Option<String> {
    let found = Root::open(root).and_then(|opened| {
        let path = [&opened.prefix, &b"."[..]].concat();
        let within = opened.within.as_fd();
        let found = os::file::find_beneath(within, &path, opened.symlinks, Wait::Allowed)?;
        opened.behind_links(found.as_fd(), &opened.prefix)
    });
    Some(match found.map_err(|error| (NoFile::of(&error), error)) {
        Ok(place) if place.as_deref().is_some_and(is_hidden_place) => {
            "it is a link to a place with a name that begins with a dot".to_owned()
        }
        Ok(_) | Err((None, _)) => return None,
        Err((Some(NoFile::Denied), error)) => {
            closed(&root.path, Wish::Enter).unwrap_or_else(|| config::reason(&error))
        }
        Err((Some(NoFile::Link), _)) => "it is reached by a link that `symlinks` refuses: try \
            `symlinks = \"allow\"`, or name the directory itself"
            .to_owned(),
        Err((Some(NoFile::Outside), _)) => format!(
            "it is a link to a place outside of {}: try a `within` that holds both",
            root.within.display()
        ),
        Err((Some(NoFile::Absent | NoFile::FileInTheWay), error)) => config::reason(&error),
    })
}

/// A name that can't be opened is nothing to serve, unless the machine is in trouble.
fn not_opened(error: io::Error) -> io::Result<Seen> {
    match NoFile::of(&error) {
        Some(NoFile::Absent) => Ok(Seen::Nothing("no_file")),
        Some(NoFile::Link) => Ok(Seen::Nothing("symlink_refused")),
        Some(NoFile::Outside) => Ok(Seen::Nothing("symlink_outside")),
        Some(NoFile::FileInTheWay) => Ok(Seen::FileInTheWay),
        Some(NoFile::Denied) => Ok(Seen::Denied),
        None => Err(error),
    }
}

/// Whether a component begins with a dot; `/.well-known/` is made to be seen.
fn is_hidden(relative: &[u8]) -> bool {
    let shown = relative.strip_prefix(b".well-known/").unwrap_or(relative);
    shown
        .split(|byte| *byte == b'/')
        .any(|component| component.starts_with(b"."))
}

/// The same for a name that links led to, where `.well-known` may stand anywhere.
fn is_hidden_place(place: &[u8]) -> bool {
    place
        .split(|byte| *byte == b'/')
        .any(|component| component.starts_with(b".") && component != b".well-known")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dot_hides_a_path_wherever_it_begins_a_component() {
        for (path, hidden) in [
            ("/a.b/c.", false),
            ("/.git/config", true),
            ("/a/.htaccess", true),
            ("/.well-known/acme", false),
            ("/.well-known/.git", true),
            ("/.well-known", true),
            ("/a/.well-known/x", true),
            ("//.env", true),
        ] {
            assert_eq!(is_hidden(relative_of(path.as_bytes())), hidden, "{path}");
        }
    }

    #[test]
    fn what_closes_a_root_is_found_out_once_and_not_by_a_worker() {
        let path = std::env::temp_dir();
        let root = Root::open(&model::Root {
            within: path.clone(),
            path: path.clone(),
            symlinks: model::Symlinks::Owner,
        });
        let root = root.expect("a directory for everybody");
        for name in [&b""[..], b"a/b"] {
            let unknown = root.advice(&path, name, Wait::Never);
            let unknown = unknown.expect_err("nobody has looked");
            assert_eq!(unknown.kind(), io::ErrorKind::WouldBlock);
            let looked = root.advice(&path, name, Wait::Allowed);
            assert_eq!(looked.expect("a look"), None, "it is open");
            let known = root.advice(Path::new("/gone"), name, Wait::Never);
            assert_eq!(known.expect("no further look"), None);
        }
    }
}
