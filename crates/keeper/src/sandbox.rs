//! What the keeper may ask of the kernel once it has started: no file, no socket, no program.
//!
//! The idea: a list of calls that threads, memory, locks, clocks and descriptors already open need;
//! every other call is refused with an error, and nothing that the keeper does depends on one. Of a
//! few calls only some arguments are allowed: a new thread but no new process, memory but none to
//! run, limits to be read but not set.

use std::io;

use os::calls::{CallFilter, CallWhere};

/// Calls that are allowed whatever their arguments.
const ALLOWED: &[libc::c_long] = &[
    // Descriptors that are open.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_ppoll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    libc::SYS_close,
    libc::SYS_fstat,
    // Memory.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    // Threads, their locks and their ends.
    libc::SYS_futex,
    libc::SYS_rseq,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigreturn,
    libc::SYS_restart_syscall,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_tgkill,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // Clocks and chance.
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_getrandom,
];

/// Calls that are allowed with some arguments.
const ALLOWED_WHERE: &[CallWhere] = &[
    // No memory to run code from.
    (libc::SYS_mmap, 2, libc::PROT_EXEC as u64, 0),
    (libc::SYS_mprotect, 2, libc::PROT_EXEC as u64, 0),
    // A thread, no process.
    (
        libc::SYS_clone,
        0,
        libc::CLONE_THREAD as u64,
        libc::CLONE_THREAD as u64,
    ),
    (
        libc::SYS_prctl,
        0,
        u32::MAX as u64,
        libc::PR_SET_NAME as u64,
    ),
    // Limits are read: there is nothing to set them by.
    (libc::SYS_prlimit64, 2, u64::MAX, 0),
];

/// All else is refused.
///
/// # Errors
/// On an architecture that filters cannot be made for.
pub(crate) fn filter() -> io::Result<CallFilter> {
    CallFilter::all_but(ALLOWED, ALLOWED_WHERE)
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::unix::net::UnixStream;
    use std::process::Command;

    use super::*;

    fn within<T: Send>(something: impl FnOnce() -> T + Send) -> T {
        filter().unwrap().within(something).unwrap()
    }

    #[test]
    fn files_sockets_and_programs_are_refused_by_the_kernel() {
        let path = testkit::TempDir::new().path().join("new");
        let refused = within(|| {
            [
                ("open", std::fs::File::open("/proc/self/status").err()),
                ("create", std::fs::File::create(&path).err()),
                ("stat", std::fs::metadata("/").err()),
                ("list", std::fs::read_dir("/").err()),
                ("unlink", std::fs::remove_file(&path).err()),
                ("listen", TcpListener::bind("127.0.0.1:0").err()),
                ("connect", TcpStream::connect("127.0.0.1:9").err()),
                ("datagrams", UdpSocket::bind("127.0.0.1:0").err()),
                ("pair", UnixStream::pair().err()),
                ("execute", Command::new("/bin/true").spawn().err()),
                ("descriptors", os::confine::bound_descriptors(100).err()),
            ]
        });
        for (what, error) in refused {
            let kind = error.as_ref().map(io::Error::kind);
            assert_eq!(kind, Some(ErrorKind::PermissionDenied), "{what}: {error:?}");
        }
    }

    #[test]
    fn threads_memory_links_and_signatures_go_on() {
        let (here, there) = os::fdpass::packet_pair().unwrap();
        let (one, other) = os::fdpass::pair().unwrap();
        use std::os::fd::AsFd;
        let signed = within(|| {
            let thread = std::thread::Builder::new().stack_size(256 * 1024);
            let thread = thread.name("another".into()).spawn(|| vec![1_u8; 1 << 22]);
            assert_eq!(thread.unwrap().join().unwrap().len(), 1 << 22);
            os::fdpass::try_send(here.as_fd(), b"x", &[]).unwrap();
            os::net::wait_readable(&[there.as_fd()], None).unwrap();
            os::fdpass::try_recv(there.as_fd(), &mut [0; 8]).unwrap();
            os::fdpass::send(one.as_fd(), b"y", &[]).unwrap();
            os::fdpass::recv(other.as_fd(), 100, 0).unwrap();
            rcgen::generate_simple_self_signed(vec!["a.example".into()]).is_ok()
        });
        assert!(signed);
    }
}
