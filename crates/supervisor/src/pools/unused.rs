//! Directories of rows' pools: how many there may be, and which of them nobody uses any more.
//!
//! The idea: a pool that is idle leaves its directory, with sessions and compiled files, for the next time. What nobody
//! has used for a week goes; where there are many, for an hour, so that a table that makes rows up fills no disk. One
//! that goes loses its name at once, and is emptied by a thread as its owner, who may have put anything there.

use std::fs::{File, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use config::model::is_row_pool_id;
use config::reason;
use os::directory;
use os::user::User;

/// Directories there may be.
const DIRECTORIES_MAX: usize = if cfg!(test) { 4 } else { 20_000 };
/// How long one is kept that nobody uses, and where more than half of all are there.
const KEPT: Duration = Duration::from_secs(7 * 86_400);
const KEPT_OF_MANY: Duration = Duration::from_secs(3_600);
/// How often is looked for those.
const LOOK: Duration = Duration::from_secs(3_600);
const LOOK_AT_MANY: Duration = Duration::from_secs(60);
/// How a directory is called that goes.
const GONE: &str = "gone-";

/// The directories of rows' pools in one directory of pools.
#[derive(Debug, Default)]
pub(super) struct RowDirectories {
    count: usize,
    /// When they were counted last.
    looked: Option<Instant>,
    remover: Option<JoinHandle<()>>,
}

impl RowDirectories {
    /// Has room made for another one, and counts it where it is new; `is_used` tells which are in use.
    pub(super) fn add(
        &mut self,
        (all, opened): (&Path, &File),
        id: &str,
        is_used: impl Fn(&str) -> bool,
    ) -> Result<(), String> {
        self.look(all, is_used).map_err(|error| reason(&error))?;
        match directory::open_in(opened.as_fd(), Path::new(id)) {
            Ok(own) => touch(own.into()),
            Err(_) if self.count >= DIRECTORIES_MAX => {
                return Err(format!("{DIRECTORIES_MAX} pools of rows have directories"));
            }
            Err(_) => self.count += 1,
        }
        Ok(())
    }

    /// One has been used until now.
    pub(super) fn note_used(opened: &File, id: &str) {
        if let Ok(own) = directory::open_in(opened.as_fd(), Path::new(id)) {
            touch(own.into());
        }
    }

    /// Counts them if it is time, and from the second time on has those go that nobody uses: who was at work before
    /// this process began has come again by then.
    fn look(&mut self, all: &Path, is_used: impl Fn(&str) -> bool) -> io::Result<()> {
        let are_many = self.count > DIRECTORIES_MAX / 2;
        let every = if are_many { LOOK_AT_MANY } else { LOOK };
        if self.looked.is_some_and(|at| at.elapsed() < every) {
            return Ok(());
        }
        let is_first = self.looked.replace(Instant::now()).is_none();
        self.look_now(all, is_first, is_used)
    }

    fn look_now(
        &mut self,
        all: &Path,
        is_first: bool,
        is_used: impl Fn(&str) -> bool,
    ) -> io::Result<()> {
        let are_many = self.count > DIRECTORIES_MAX / 2;
        let kept = if are_many { KEPT_OF_MANY } else { KEPT };
        let (mut count, mut gone) = (0, Vec::new());
        for entry in std::fs::read_dir(all)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(GONE) {
                // What could not be removed is there all the same.
                count += 1;
                gone.push(entry.path());
            }
            if !is_row_pool_id(&name) {
                continue;
            }
            count += 1;
            let used = entry.metadata()?.modified()?;
            let rested = SystemTime::now().duration_since(used).unwrap_or_default();
            if is_used(&name) {
                // Who is not told of its end, as after this process has ended, knows of its use all the same.
                if rested >= KEPT_OF_MANY / 2 {
                    directory::open(&entry.path()).map(|own| touch(own.into()))?;
                }
            } else if rested >= kept && !is_first {
                let away = all.join(format!("{GONE}{name}"));
                if std::fs::rename(entry.path(), &away).is_ok() {
                    gone.push(away);
                    count -= 1;
                }
            }
        }
        self.count = count;
        if !gone.is_empty() && self.remover.as_ref().is_none_or(JoinHandle::is_finished) {
            let remove_all = move || gone.iter().for_each(remove);
            let thread = std::thread::Builder::new().name("nagaya-remover".into());
            self.remover = Some(thread.spawn(remove_all)?);
        }
        Ok(())
    }
}

/// Writes down when it was used.
fn touch(directory: File) {
    // Where that cannot be written it goes earlier.
    let _ = directory.set_modified(SystemTime::now());
}

/// Removes a directory, as its owner but for its name; what is left of it goes with the next look.
fn remove(path: &PathBuf) {
    let removed = directory::open(path).and_then(|opened| {
        let opened = File::from(opened);
        // Its owner may have shut itself out.
        opened.set_permissions(Permissions::from_mode(0o700))?;
        let facts = opened.metadata()?;
        let owner = User {
            uid: facts.uid(),
            gid: facts.gid(),
            groups: vec![facts.gid()],
        };
        owner.act(|| empty(path))??;
        std::fs::remove_dir(path)
    });
    if let Err(error) = removed {
        let (path, error) = (path.display(), reason(&error));
        tracing::warn!(%path, error, "a directory of a pool that nobody uses cannot be removed");
    }
}

fn empty(path: &Path) -> io::Result<()> {
    directory::prune(path, 0)?;
    for entry in std::fs::read_dir(path)? {
        std::fs::remove_dir(entry?.path())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use config::model::row_pool_id;
    use testkit::temp::TempDir;

    use super::*;

    fn make(all: &TempDir, name: &str, age: Duration) -> String {
        let id = row_pool_id(&[name]);
        all.write(&format!("{id}/sessions/a/b"), "x");
        let own = File::open(all.path().join(&id)).unwrap();
        own.set_modified(SystemTime::now() - age).unwrap();
        id
    }

    #[test]
    fn directories_that_nobody_uses_go_and_there_are_never_too_many() {
        let all = TempDir::new();
        let opened = File::open(all.path()).unwrap();
        let old = make(&all, "old", KEPT * 2);
        let shut = all.path().join(&old).join("sessions");
        std::fs::set_permissions(shut, Permissions::from_mode(0o000)).unwrap();
        let used = make(&all, "used", KEPT * 2);
        let young = make(&all, "young", KEPT / 2);
        let mut rows = RowDirectories::default();
        let is_there = |id: &str| all.path().join(id).exists();
        let add = |rows: &mut RowDirectories, id: &str| {
            let added = rows.add((all.path(), &opened), id, |id| id == used);
            added.inspect(|()| drop(std::fs::create_dir(all.path().join(id))))
        };
        add(&mut rows, &row_pool_id(&["new"])).unwrap();
        assert!(is_there(&old), "who was at work may come again");
        assert_eq!(rows.count, 4);
        let full = add(&mut rows, &row_pool_id(&["more"])).unwrap_err();
        assert!(full.contains("have directories"), "{full}");
        add(&mut rows, &young).unwrap();
        rows.looked = Instant::now().checked_sub(LOOK);
        assert!(rows.looked.is_some(), "the machine has run for an hour");
        add(&mut rows, &row_pool_id(&["more"])).unwrap();
        assert!(!is_there(&old) && is_there(&used) && is_there(&young));
        let modified = std::fs::metadata(all.path().join(&used))
            .unwrap()
            .modified();
        let rested = modified.unwrap().elapsed().unwrap_or_default();
        assert!(rested < KEPT / 2, "it is used to this day");
        rows.remover.take().unwrap().join().unwrap();
        // What stays of one is counted, whoever is to blame.
        let stays = all.path().join(format!("{GONE}x"));
        std::fs::write(&stays, "no directory").unwrap();
        rows.look_now(all.path(), false, |_| true).unwrap();
        assert_eq!(rows.count, 5);
        rows.remover.take().unwrap().join().unwrap();
        std::fs::remove_file(&stays).unwrap();
        let names = std::fs::read_dir(all.path()).unwrap();
        assert_eq!(names.count(), 4, "nothing is left of it");
    }
}
