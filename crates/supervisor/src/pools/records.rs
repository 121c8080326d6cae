//! Which masters run, written down for a gateway that comes after one which was killed.
//!
//! The idea: a link that leads nowhere for each of them. Its name is the number of the process, and
//! where it leads tells when that began, so that nobody else is ever taken for it; it is there or
//! not, and never half. They lie in the directory of pools, which one gateway has at a time: what it
//! finds there when it comes is of one that is no more.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use config::reason;
use os::spawn::Adopted;
use os::{process, tree};

/// What their names begin with.
const PREFIX: &str = "master-";
/// Names that are looked at.
const NAMES_MAX: usize = 1 << 20;
/// How long those that are killed may take to end, and how often they are looked at.
const ENDS_MAX: Duration = Duration::from_millis(800);
const ENDS_LOOK: Duration = Duration::from_millis(10);

/// Writes a master down, unless it has ended.
pub(super) fn write(directory: &Path, pid: u32) {
    let Some(moment) = moment(pid) else { return };
    let path = path_of(directory, pid);
    // One that had its number was not crossed out.
    let removed = fs::remove_file(&path).or_else(super::places::if_absent);
    if let Err(error) = removed.and_then(|()| symlink(moment, &path)) {
        let (path, error) = (path.display(), reason(&error));
        tracing::warn!(%path, error, "a master is not written down: it is left if this process is killed");
    }
}

/// Crosses out one that has ended.
pub(super) fn remove(directory: &Path, pid: u32) {
    // It was not written down, or will be found to have ended.
    let _ = fs::remove_file(path_of(directory, pid));
}

/// Ends every master that is written down, and what it has started, and waits a while for it.
pub(super) fn end_all(directory: &Path) -> io::Result<()> {
    let mut left = Vec::new();
    for entry in fs::read_dir(directory)?.take(NAMES_MAX) {
        let path = entry?.path();
        let name = path.file_name().and_then(OsStr::to_str);
        let number = name.and_then(|name| name.strip_prefix(PREFIX)?.parse().ok());
        let Some(pid) = number else { continue };
        // Held first: from then on the number is nobody else's.
        let held = Adopted::open(pid).ok();
        let written = fs::read_link(&path).ok();
        let is_it = moment(pid).is_some_and(|moment| written == Some(moment.into()));
        match held.filter(|_| is_it && process::has_no_new_privileges(pid)) {
            Some(held) => left.push((held, path)),
            None => fs::remove_file(&path)?,
        }
    }
    let (found, until) = (left.len(), Instant::now() + ENDS_MAX);
    loop {
        left.retain(|(held, path)| {
            tree::kill_below(held.pid());
            held.kill();
            let has_ended = held.has_ended();
            if has_ended {
                let _ = fs::remove_file(path);
            }
            !has_ended
        });
        if left.is_empty() || Instant::now() >= until {
            break;
        }
        std::thread::sleep(ENDS_LOOK);
    }
    if found > 0 {
        let left = left.len();
        tracing::warn!(
            found,
            left,
            "masters of pools that a killed gateway has left are ended"
        );
    }
    Ok(())
}

fn path_of(directory: &Path, pid: u32) -> PathBuf {
    directory.join(format!("{PREFIX}{pid}"))
}

/// When a process began: on which start of the machine, and how long after that.
fn moment(pid: u32) -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(format!("{}.{}", boot.trim(), tree::born(pid)?))
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use testkit::temp::TempDir;

    use super::*;

    /// A process that never gains privileges, with a child.
    fn master() -> Child {
        Command::new("setpriv")
            .args(["--no-new-privs", "sh", "-c", "sleep 600 & echo; wait"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn wait_until_it_runs(master: &mut Child) {
        use std::io::Read as _;
        let mut said = [0];
        let stdout = master.stdout.as_mut().unwrap();
        stdout.read_exact(&mut said).unwrap();
    }

    #[test]
    fn who_is_written_down_is_ended_with_what_it_has_started_and_nobody_else() {
        let here = TempDir::new();
        let [mut known, mut other] = [master(), master()];
        wait_until_it_runs(&mut known);
        wait_until_it_runs(&mut other);
        let children = tree::children(known.id());
        assert_eq!(children.len(), 1);
        write(here.path(), known.id());
        write(here.path(), known.id());
        // It has the number of one that began at another time.
        symlink("then.1", path_of(here.path(), other.id())).unwrap();
        fs::write(here.path().join("master-of-none"), "").unwrap();
        fs::write(here.path().join("a.sock"), "").unwrap();
        let (reaped, waits) = std::sync::mpsc::channel();
        std::thread::spawn(move || reaped.send(known.wait()).unwrap());
        end_all(here.path()).unwrap();
        waits.recv().unwrap().unwrap();
        testkit::eventually(
            Duration::from_secs(20),
            "the end of what it has started",
            || {
                let stat = fs::read_to_string(format!("/proc/{}/stat", children[0]));
                stat.map_or(true, |stat| stat.contains(") Z")).then_some(())
            },
        );
        assert!(other.try_wait().unwrap().is_none());
        let names = fs::read_dir(here.path()).unwrap().count();
        assert_eq!(names, 2, "what is no record stays");
        tree::kill_below(other.id());
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn one_that_has_ended_is_crossed_out() {
        let here = TempDir::new();
        let mut master = master();
        wait_until_it_runs(&mut master);
        write(here.path(), master.id());
        let path = path_of(here.path(), master.id());
        assert!(fs::read_link(&path).is_ok());
        remove(here.path(), master.id());
        remove(here.path(), master.id());
        assert!(fs::read_link(&path).is_err());
        tree::kill_below(master.id());
        master.kill().unwrap();
        master.wait().unwrap();
        write(here.path(), master.id());
        assert!(fs::read_link(&path).is_err(), "it is no more");
    }
}
