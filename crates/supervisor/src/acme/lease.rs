//! Who writes a store that several machines may share.
//!
//! The idea: the holder of the lease with the highest number writes, and nobody else. A lease is a
//! file, `lease.N`, made where there was none of that number; its holder changes it again and again
//! while it lives. Whoever sees it unchanged for the lease's time, by a clock of its own, makes the
//! next one. Each holder prepares what it writes in a directory of its own, `writing.N.OWNER`, made
//! before its lease, and the next holder removes that before it writes anything. So one that was
//! held up and goes on later finds a higher number before it renames, and if it was held up between
//! that look and the renaming, what it would rename is gone.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Who may read what is written.
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;
/// Entries of a store's directory that are looked at.
const ENTRIES_MAX: usize = 10_000;
/// How often a lease is changed, in its time.
const BEATS: u32 = 3;
/// Bytes of a lease.
const LEASE_BYTES_MAX: u64 = 256;
/// How often a directory that fills while it is removed is removed again.
const REMOVALS_MAX: usize = 10;

/// This machine's part in a store.
#[derive(Debug)]
pub(super) struct Lease {
    directory: PathBuf,
    time: Duration,
    owner: String,
    standing: Standing,
}

#[derive(Debug)]
enum Standing {
    /// It writes.
    Holder {
        number: u64,
        beat: u64,
        next: Instant,
    },
    /// Somebody else does: what its lease said, since when.
    Other {
        number: u64,
        text: Vec<u8>,
        since: Instant,
        next: Instant,
    },
    /// It does not know, and looks at this time.
    Unknown { next: Instant },
}

impl Lease {
    /// The lease of the store in this directory, which is made if it isn't there.
    pub(super) fn new(directory: &Path, time: Duration) -> io::Result<Lease> {
        make_directory(directory)?;
        Ok(Lease {
            directory: directory.to_owned(),
            time,
            owner: owner(),
            standing: Standing::Unknown {
                next: Instant::now(),
            },
        })
    }

    /// Whether this machine writes, as far as it knows.
    pub(super) fn is_held(&self) -> bool {
        matches!(self.standing, Standing::Holder { .. })
    }

    /// What this process is called in the store.
    pub(super) fn owner(&self) -> &str {
        &self.owner
    }

    /// When to look again.
    pub(super) fn until(&self) -> Instant {
        match &self.standing {
            Standing::Holder { next, .. }
            | Standing::Other { next, .. }
            | Standing::Unknown { next } => *next,
        }
    }

    /// Keeps the lease alive, or takes it over from one that is dead. Whoever cannot holds it no
    /// more.
    pub(super) fn step(&mut self, now: Instant) -> io::Result<()> {
        let stepped = self.try_step(now);
        if stepped.is_err() {
            let next = now + self.time / BEATS;
            self.standing = Standing::Unknown { next };
        }
        stepped
    }

    fn try_step(&mut self, now: Instant) -> io::Result<()> {
        let highest = self.highest()?;
        match &mut self.standing {
            Standing::Holder { next, .. } if *next > now => return Ok(()),
            Standing::Holder { number, beat, .. } if highest == Some(*number) => {
                let (number, beat) = (*number, *beat + 1);
                let text = self.text(beat);
                self.replace(number, &lease_name(number), &text)?;
                let next = now + self.time / BEATS;
                self.standing = Standing::Holder { number, beat, next };
                return Ok(());
            }
            _ => {}
        }
        let Some(number) = highest else {
            return self.claim(1, now);
        };
        let text = self.read(number);
        let since = match &self.standing {
            Standing::Other {
                number: of,
                text: known,
                since,
                ..
            } if *of == number && *known == text => *since,
            _ => now,
        };
        if now.duration_since(since) > self.time || has_died_here(&text) {
            return self.claim(number + 1, now);
        }
        self.standing = Standing::Other {
            number,
            text,
            since,
            next: now + self.time / BEATS,
        };
        Ok(())
    }

    /// Puts a file in the place of what was there, unless somebody else writes by now. `name` is a
    /// path below the store.
    pub(super) fn write(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let number = self.number()?;
        self.replace(number, name, bytes)
    }

    /// Removes a file, unless somebody else writes by now.
    pub(super) fn remove(&mut self, name: &str) -> io::Result<()> {
        let number = self.number()?;
        self.check(number)?;
        match fs::remove_file(self.directory.join(name)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    fn number(&self) -> io::Result<u64> {
        match &self.standing {
            Standing::Holder { number, .. } => Ok(*number),
            Standing::Other { .. } | Standing::Unknown { .. } => Err(another()),
        }
    }

    fn replace(&self, number: u64, name: &str, bytes: &[u8]) -> io::Result<()> {
        let prepared = self.place(number).join("file");
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(true);
        let mut file = options.mode(FILE_MODE).open(&prepared)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        self.check(number)?;
        let path = self.directory.join(name);
        fs::rename(&prepared, &path)?;
        File::open(path.parent().unwrap_or(&self.directory))?.sync_all()
    }

    /// Nobody may have a higher number.
    fn check(&self, number: u64) -> io::Result<()> {
        (self.highest()? == Some(number))
            .then_some(())
            .ok_or_else(another)
    }

    fn claim(&mut self, number: u64, now: Instant) -> io::Result<()> {
        self.standing = Standing::Unknown {
            next: now + self.time / BEATS,
        };
        let place = self.place(number);
        make_directory(&place)?;
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true).mode(FILE_MODE);
        let claimed = options
            .open(self.directory.join(lease_name(number)))
            .and_then(|mut file| {
                file.write_all(&self.text(0))?;
                file.sync_all()
            });
        let claimed = claimed.and_then(|()| self.check(number));
        if let Err(error) = claimed {
            let _ = fs::remove_dir_all(&place);
            let is_late = [ErrorKind::AlreadyExists, ErrorKind::PermissionDenied];
            return match is_late.contains(&error.kind()) && self.highest()?.is_some() {
                // Somebody else was quicker.
                true => Ok(()),
                false => Err(error),
            };
        }
        self.remove_those_before(number)?;
        let next = now + self.time / BEATS;
        self.standing = Standing::Holder {
            number,
            beat: 0,
            next,
        };
        Ok(())
    }

    fn remove_those_before(&self, number: u64) -> io::Result<()> {
        for name in self.entries()? {
            let text = name.to_string_lossy();
            let is_before = |of: &str| of.parse::<u64>().is_ok_and(|of| of < number);
            if let Some(rest) = text.strip_prefix("writing.") {
                let (of, owner) = rest.split_once('.').unwrap_or((rest, ""));
                if is_before(of) || (of == number.to_string() && owner != self.owner) {
                    remove_directory(&self.directory.join(&name))?;
                }
            } else if text.strip_prefix("lease.").is_some_and(is_before) {
                fs::remove_file(self.directory.join(&name))?;
            }
        }
        Ok(())
    }

    fn place(&self, number: u64) -> PathBuf {
        self.directory
            .join(format!("writing.{number}.{}", self.owner))
    }

    fn text(&self, beat: u64) -> Vec<u8> {
        format!("{} {beat}\n", self.owner).into_bytes()
    }

    fn highest(&self) -> io::Result<Option<u64>> {
        let entries = self.entries()?;
        let number = |name: &OsString| name.to_str()?.strip_prefix("lease.")?.parse().ok();
        Ok(entries.iter().filter_map(number).max())
    }

    fn entries(&self) -> io::Result<Vec<OsString>> {
        let entries = fs::read_dir(&self.directory)?.take(ENTRIES_MAX);
        entries.map(|entry| Ok(entry?.file_name())).collect()
    }

    fn read(&self, number: u64) -> Vec<u8> {
        use std::io::Read;
        let mut text = Vec::new();
        if let Ok(file) = File::open(self.directory.join(lease_name(number))) {
            // What cannot be read is like what does not change.
            let _ = file.take(LEASE_BYTES_MAX).read_to_end(&mut text);
        }
        text
    }
}

impl Drop for Lease {
    /// Leaves at once to others what would be theirs after the lease's time.
    fn drop(&mut self) {
        if let Standing::Holder { number, .. } = &self.standing
            && self.check(*number).is_ok()
        {
            let _ = fs::remove_file(self.directory.join(lease_name(*number)));
            let _ = fs::remove_dir_all(self.place(*number));
        }
    }
}

/// Makes a directory that nobody else may enter, and those above it, unless it is there.
pub(super) fn make_directory(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(DIRECTORY_MODE).create(path)
}

fn remove_directory(path: &Path) -> io::Result<()> {
    let mut removed = Ok(());
    for _ in 0..REMOVALS_MAX {
        removed = fs::remove_dir_all(path);
        match &removed {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(_) => {}
            Ok(()) => return Ok(()),
        }
    }
    removed
}

fn lease_name(number: u64) -> String {
    format!("lease.{number}")
}

fn another() -> io::Error {
    io::Error::new(
        ErrorKind::PermissionDenied,
        "another machine, or another gateway, writes the store",
    )
}

/// What tells this process from every other of any machine: the kernel's start, the space of process
/// numbers, the number, and when it was given.
fn owner() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let boot = boot.trim();
    let pid = std::process::id();
    format!(
        "{boot}-{}-{pid}-{}",
        process_space(),
        born(pid).unwrap_or(0)
    )
}

fn process_space() -> String {
    let space = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let digits = |letter: &char| letter.is_ascii_digit();
    space.to_string_lossy().chars().filter(digits).collect()
}

/// When a process was started, in the kernel's ticks.
fn born(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Whether a lease's owner was a process of this kernel and space that is not there any more.
fn has_died_here(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    let Some(owner) = text.split(' ').next() else {
        return false;
    };
    let mut parts = owner.rsplitn(4, '-');
    let (Some(born_at), Some(pid), Some(space), Some(boot)) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    let ours = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let (Ok(pid), Ok(born_at)) = (pid.parse(), born_at.parse::<u64>()) else {
        return false;
    };
    !boot.is_empty()
        && boot == ours.trim()
        && space == process_space()
        && born(pid) != Some(born_at)
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use testkit::{TempDir, eventually};

    use super::*;

    const TIME: Duration = Duration::from_millis(300);
    const PATIENCE: Duration = Duration::from_secs(30);
    /// Where the process of the test writes.
    const VARIABLE: &str = "NAGAYA_TEST_STORE";

    fn lease(directory: &TempDir, owner: &str) -> Lease {
        let mut lease = Lease::new(directory.path(), TIME).unwrap();
        lease.owner = owner.to_owned();
        lease
    }

    fn names(directory: &TempDir) -> Vec<String> {
        let entries = fs::read_dir(directory.path()).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn one_of_two_writes_and_the_other_takes_over_when_it_is_silent_for_the_leases_time() {
        let directory = TempDir::new();
        let (mut one, mut two) = (lease(&directory, "one"), lease(&directory, "two"));
        let begun = Instant::now();
        for lease in [&mut one, &mut two] {
            lease.step(begun).unwrap();
        }
        assert!(one.is_held() && !two.is_held());
        one.write("a", b"one").unwrap();
        assert_eq!(
            two.write("a", b"two").unwrap_err().kind(),
            ErrorKind::PermissionDenied
        );
        // It beats: nothing changes hands.
        for tenth in 1..30 {
            let now = begun + TIME / 10 * tenth;
            one.step(now).unwrap();
            two.step(now).unwrap();
            assert!(one.is_held() && !two.is_held(), "{tenth}");
        }
        let now = begun + TIME * 3;
        two.step(now).unwrap();
        assert!(!two.is_held());
        two.step(now + TIME * 2).unwrap();
        assert!(two.is_held());
        two.write("a", b"two").unwrap();
        assert_eq!(
            one.write("a", b"one").unwrap_err().kind(),
            ErrorKind::NotFound
        );
        assert!(one.remove("a").is_err());
        assert_eq!(fs::read(directory.path().join("a")).unwrap(), b"two");
        one.step(now + TIME * 2).unwrap();
        assert!(!one.is_held());
        assert_eq!(names(&directory), ["a", "lease.2", "writing.2.two"]);
    }

    #[test]
    fn what_was_prepared_before_another_took_over_is_gone_before_it_writes() {
        let directory = TempDir::new();
        let (mut one, mut two) = (lease(&directory, "one"), lease(&directory, "two"));
        let now = Instant::now();
        one.step(now).unwrap();
        let prepared = one.place(1).join("file");
        fs::write(&prepared, "late").unwrap();
        two.step(now).unwrap();
        two.step(now + TIME * 2).unwrap();
        assert!(two.is_held());
        // As if it had looked for higher numbers before.
        assert!(fs::rename(&prepared, directory.path().join("a")).is_err());
    }

    #[test]
    fn one_that_ends_leaves_the_store_to_others_at_once() {
        let directory = TempDir::new();
        let now = Instant::now();
        let mut one = lease(&directory, "one");
        one.step(now).unwrap();
        drop(one);
        let mut two = lease(&directory, "two");
        two.step(now).unwrap();
        assert!(two.is_held());
    }

    #[test]
    fn a_claim_that_comes_late_gives_up() {
        let directory = TempDir::new();
        let (mut one, mut two) = (lease(&directory, "one"), lease(&directory, "two"));
        let now = Instant::now();
        two.claim(7, now).unwrap();
        assert!(two.is_held());
        for number in [6, 7] {
            one.claim(number, now).unwrap();
            assert!(!one.is_held(), "{number}");
        }
        assert!(two.write("a", b"two").is_ok());
    }

    #[test]
    fn what_is_written_is_for_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let directory = TempDir::new();
        let store = directory.path().join("store/le");
        let mut lease = Lease::new(&store, TIME).unwrap();
        lease.step(Instant::now()).unwrap();
        lease.write("account.json", b"{}").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&store), 0o700);
        assert_eq!(mode(&store.join("account.json")), 0o600);
    }

    /// Writes its number into the store until it may not any more: the process of the next test.
    #[test]
    fn writes_where_it_is_told_to() {
        let Some(directory) = std::env::var_os(VARIABLE) else {
            return;
        };
        let mut lease = Lease::new(Path::new(&directory), TIME).unwrap();
        let mut count = 0_u64;
        loop {
            let stepped = lease.step(Instant::now());
            let text = format!("{} {count}", std::process::id());
            if stepped.is_err() || lease.write("a", text.as_bytes()).is_err() {
                return;
            }
            count += 1;
        }
    }

    fn writer(directory: &TempDir) -> Child {
        let test = "acme::lease::tests::writes_where_it_is_told_to";
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test])
            .env(VARIABLE, directory.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    }

    fn pause(child: &Child, signal: &str) {
        let status = Command::new("kill")
            .args([signal, &child.id().to_string()])
            .status();
        assert!(status.unwrap().success());
    }

    fn until_it_writes(directory: &TempDir, child: &Child) {
        let beginning = format!("{} ", child.id());
        eventually(PATIENCE, "a writer", || {
            let text = fs::read_to_string(directory.path().join("a")).ok()?;
            text.starts_with(&beginning).then_some(())
        });
    }

    #[test]
    fn a_writer_that_was_stopped_for_twice_the_lease_writes_nothing_when_it_goes_on() {
        for _ in 0..5 {
            let directory = TempDir::new();
            let mut stopped = writer(&directory);
            until_it_writes(&directory, &stopped);
            pause(&stopped, "-STOP");
            let mut lease = lease(&directory, "two");
            eventually(PATIENCE, "the lease", || {
                lease.step(Instant::now()).unwrap();
                lease.is_held().then_some(())
            });
            lease.write("a", b"two").unwrap();
            std::thread::sleep(TIME);
            pause(&stopped, "-CONT");
            assert!(stopped.wait().unwrap().success());
            assert_eq!(fs::read(directory.path().join("a")).unwrap(), b"two");
        }
    }

    #[test]
    fn one_that_was_killed_on_this_machine_is_followed_at_once() {
        let directory = TempDir::new();
        let mut killed = writer(&directory);
        until_it_writes(&directory, &killed);
        killed.kill().unwrap();
        killed.wait().unwrap();
        let mut lease = lease(&directory, "two");
        lease.step(Instant::now()).unwrap();
        assert!(lease.is_held());
        assert!(!names(&directory).iter().any(|name| name == "lease.1"));
    }
}
