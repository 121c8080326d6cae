//! What the recorder may not ask of the kernel once it has started.
//!
//! The idea: it needs files of its directory, memory, threads, and the links it was given. A library
//! that writes files asks for them in ways that differ from version to version, so here is a list of what it
//! never needs: no program and no process, no socket but those it has, no signal by a process's number, no
//! memory to run code from, and nothing of what is a way into the kernel.

use std::io;

use os::calls::{CallFilter, CallWhere, PRIVILEGED};

/// Calls that are refused whatever their arguments, beside those that nobody needs.
const REFUSED: &[libc::c_long] = &[
    // Programs and processes.
    libc::SYS_execve,
    libc::SYS_execveat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
    libc::SYS_unshare,
    // Sockets.
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    // Other processes by their number. A thread is still signalled by both its numbers, as this one's
    // own are.
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setattr,
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_msgget,
    libc::SYS_semget,
    // The other way to have code in memory that was written.
    libc::SYS_pkey_mprotect,
    // Who it is.
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setgroups,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_capset,
    libc::SYS_personality,
    // Files that are none.
    libc::SYS_mknodat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mknod,
];

/// Calls that are refused with some arguments: memory to run code from, and a process that is no thread.
const REFUSED_WHERE: &[CallWhere] = &[
    (
        libc::SYS_mmap,
        2,
        libc::PROT_EXEC as u64,
        libc::PROT_EXEC as u64,
    ),
    (
        libc::SYS_mprotect,
        2,
        libc::PROT_EXEC as u64,
        libc::PROT_EXEC as u64,
    ),
    (libc::SYS_clone, 0, libc::CLONE_THREAD as u64, 0),
];

/// All else is allowed.
pub(crate) fn filter() -> io::Result<CallFilter> {
    CallFilter::these(&[PRIVILEGED, REFUSED].concat(), REFUSED_WHERE)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::ErrorKind;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::process::Command;

    use os::signal::Signal;

    use crate::store::FigureStore;

    use super::*;

    fn within<T: Send>(something: impl FnOnce() -> T + Send) -> T {
        filter().unwrap().within(something).unwrap()
    }

    #[test]
    fn programs_sockets_and_signals_are_refused_by_the_kernel() {
        let own = std::process::id();
        let refused = within(|| {
            [
                ("listen", TcpListener::bind("127.0.0.1:0").err()),
                ("connect", TcpStream::connect("127.0.0.1:9").err()),
                ("datagrams", UdpSocket::bind("127.0.0.1:0").err()),
                ("pair", UnixStream::pair().err()),
                ("execute", Command::new("/bin/true").spawn().err()),
                (
                    "signal",
                    os::process::send_signal(own, Signal::Hangup).err(),
                ),
            ]
        });
        for (what, error) in refused {
            let kind = error.as_ref().map(io::Error::kind);
            assert_eq!(kind, Some(ErrorKind::PermissionDenied), "{what}: {error:?}");
        }
    }

    #[test]
    fn threads_links_and_figures_go_on() {
        let directory = testkit::TempDir::new();
        let (one, other) = os::fdpass::pair().unwrap();
        let said = within(|| {
            let thread = std::thread::spawn(|| vec![1_u8; 1 << 22]);
            assert_eq!(thread.join().unwrap().len(), 1 << 22);
            os::fdpass::send(one.as_fd(), b"y", &[]).unwrap();
            os::fdpass::recv(other.as_fd(), 100, 0).unwrap();
            File::create(directory.path().join("new")).unwrap();
            let mut store = FigureStore::open(directory.path(), 0).unwrap().0;
            store.set_setting("a", "b").unwrap();
            store.setting("a").unwrap()
        });
        assert_eq!(said.as_deref(), Some("b"));
    }
}
