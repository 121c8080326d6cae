//! Users: their numbers and the groups they are in.

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::process::{Gid, Uid};

/// Groups a user may be in: the kernel's `NGROUPS_MAX`.
const GROUPS_MAX: usize = 65_536;

/// Who a program runs as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The user's number.
    pub uid: u32,
    /// The number of its first group.
    pub gid: u32,
    /// Every group it is in, the first one among them.
    pub groups: Vec<u32>,
}

impl User {
    /// Looks a user up by name; `NotFound` where there is none. May wait for the user database.
    pub fn look_up(name: &str) -> io::Result<User> {
        let name = CString::new(name)?;
        let (uid, gid) = numbers(&name)?;
        Ok(User {
            uid,
            gid,
            groups: groups(&name, gid)?,
        })
    }

    /// The name of the user with this number; `None` where there is none. May wait for the user database.
    pub fn name_of(uid: u32) -> io::Result<Option<String>> {
        let name = with_entry(Wanted::Number(uid), |entry| {
            // SAFETY: text of the database's, which ends in NUL and lives as long as the entry.
            let name = unsafe { CStr::from_ptr(entry.pw_name) };
            name.to_str().ok().map(str::to_owned)
        });
        match name {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            name => name,
        }
    }

    /// Runs `work` as this user, on a thread of its own; as who this process is, where that is
    /// not root and cannot become anybody.
    pub fn act<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
        let become_user = || {
            let groups: Vec<_> = self.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
            let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
            set_thread_groups(&groups)?;
            set_thread_res_gid(gid, gid, gid)?;
            set_thread_res_uid(uid, uid, uid)
        };
        let acted = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                if crate::process::is_root() {
                    become_user()?;
                }
                Ok(work())
            });
            thread.join()
        });
        acted.unwrap_or_else(|_| Err(io::Error::other("the thread broke off")))
    }

    /// The user and the groups of this process.
    pub fn this_process() -> io::Result<User> {
        let gid = rustix::process::getegid().as_raw();
        let mut groups: Vec<_> = rustix::process::getgroups()?
            .into_iter()
            .map(Gid::as_raw)
            .collect();
        if !groups.contains(&gid) {
            groups.push(gid);
        }
        Ok(User {
            uid: crate::process::user_id(),
            gid,
            groups,
        })
    }
}

/// The home of a user, as the user database has it: perhaps nothing is there. May wait for the
/// database.
pub fn home(name: &str) -> io::Result<PathBuf> {
    let name = CString::new(name)?;
    with_entry(Wanted::Name(&name), |entry| {
        // SAFETY: text of the database's, which ends in NUL and lives as long as the entry.
        let path = unsafe { CStr::from_ptr(entry.pw_dir) };
        PathBuf::from(OsStr::from_bytes(path.to_bytes()))
    })
}

/// The user's and its first group's number.
pub(crate) fn numbers(name: &CStr) -> io::Result<(u32, u32)> {
    with_entry(Wanted::Name(name), |entry| (entry.pw_uid, entry.pw_gid))
}

/// By what a user is looked up.
enum Wanted<'a> {
    Name(&'a CStr),
    Number(u32),
}

/// Reads the entry of a user.
fn with_entry<T>(wanted: Wanted<'_>, read: impl FnOnce(&libc::passwd) -> T) -> io::Result<T> {
    /// Room for one line of the user database.
    const LINE_MAX: usize = 64 * 1024;
    let mut line = vec![0; LINE_MAX];
    let mut entry = std::mem::MaybeUninit::<libc::passwd>::uninit();
    let mut found = std::ptr::null_mut();
    let (place, room, bytes) = (entry.as_mut_ptr(), line.as_mut_ptr(), line.len());
    // SAFETY: all pointers are to live memory of the length told; `found` is set to `entry`, by
    // then filled in, or to null.
    unsafe {
        let error = match wanted {
            Wanted::Name(name) => libc::getpwnam_r(name.as_ptr(), place, room, bytes, &mut found),
            Wanted::Number(uid) => libc::getpwuid_r(uid, place, room, bytes, &mut found),
        };
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        match found.as_ref() {
            Some(entry) => Ok(read(entry)),
            None => Err(io::Error::new(io::ErrorKind::NotFound, "no such user")),
        }
    }
}

/// The groups of a user whose first group is `gid`.
fn groups(name: &CStr, gid: u32) -> io::Result<Vec<u32>> {
    let mut groups = vec![0; 64];
    loop {
        let mut count = libc::c_int::try_from(groups.len()).unwrap_or(libc::c_int::MAX);
        // SAFETY: the name ends in NUL, and `count` is the length of the memory at `groups`.
        let fits =
            unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &mut count) >= 0 };
        let count = usize::try_from(count).unwrap_or_default();
        if fits {
            groups.truncate(count);
            return Ok(groups);
        }
        if groups.len() >= GROUPS_MAX {
            return Err(io::Error::other("it is in too many groups"));
        }
        groups.resize((groups.len() * 2).max(count).min(GROUPS_MAX), 0);
    }
}
