//! What a process has the kernel refuse it from now on: filters of calls (seccomp).
//!
//! The idea: a process that reads what others wrote asks the kernel for little once it has started.
//! Which calls those are is its own business; a filter is made of a list of all it may ask for, or of
//! what it may not. What is refused is refused with an error (`EPERM`), for every thread there is and
//! those to come, and cannot be taken back. Not here: filters of programs that are started, which
//! [`crate::spawn`] hands on whoever made them.

use std::io;

use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{Eq, MaskedEq};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule, apply_filter,
    apply_filter_all_threads, sock_filter,
};

/// A call that is meant where an argument has a value under a mask: its place, the mask, the value.
pub type CallWhere = (libc::c_long, u8, u64, u64);

/// Opens a mount with other properties (6.15); of one number on every architecture.
const OPEN_TREE_ATTR: libc::c_long = 467;
/// Calls that have been ways into the kernel, out of walls, or to other processes: mounts and namespaces,
/// memory of others, keys, programs in the kernel, settings of the machine.
pub const PRIVILEGED: &[libc::c_long] = &[
    // Mounts, roots, namespaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setns,
    libc::SYS_open_tree,
    OPEN_TREE_ATTR,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_fanotify_init,
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_perf_event_open,
    // Keys, which belong to the user and not to the process.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // Ways to have the kernel do much that is seldom looked at.
    libc::SYS_bpf,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_lookup_dcookie,
    libc::SYS_nfsservctl,
    // The kernel and the machine.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    #[cfg(not(all(target_env = "musl", target_arch = "aarch64")))]
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_vhangup,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
];

/// Where the number of a call is, for a filter.
const NUMBER: u32 = 0;
/// Calls of x86-64 with pointers of 32 bits have this bit in their number.
#[cfg(target_arch = "x86_64")]
const X32: u32 = 0x4000_0000;

/// An instruction of a filter: its code, what it skips where a comparison holds and where not, a number.
pub type Instruction = (u16, u8, u8, u32);

/// Instructions that come before all others of a filter: calls that it cannot judge are not there
/// (`ENOSYS`), for which libraries have others. `clone3` has its arguments where no filter sees them; calls
/// with pointers of 32 bits have other numbers than those of a list.
#[must_use]
pub fn unknown() -> Vec<Instruction> {
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let is = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let answer = libc::BPF_RET | libc::BPF_K;
    let unknown = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs();
    let clone3 = u32::try_from(libc::SYS_clone3).unwrap_or(u32::MAX);
    let instructions = [
        (load, 0, NUMBER),
        (is, 1, clone3),
        (answer, 0, unknown),
        #[cfg(target_arch = "x86_64")]
        (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 1, X32),
        #[cfg(target_arch = "x86_64")]
        (answer, 0, unknown),
    ];
    // What is skipped where a comparison does not hold is the answer after it.
    let code = |code: u32| u16::try_from(code).unwrap_or_default();
    let instructions = instructions.map(|(it, else_skip, k)| (code(it), 0, else_skip, k));
    instructions.to_vec()
}

/// A filter, ready to be entered.
#[derive(Debug)]
pub struct CallFilter(BpfProgram);

impl CallFilter {
    /// Refuses every call but these.
    ///
    /// # Errors
    /// On an architecture that filters cannot be made for, as below.
    pub fn all_but(calls: &[libc::c_long], some: &[CallWhere]) -> io::Result<CallFilter> {
        CallFilter::of(rules(calls, some)?, refused(), SeccompAction::Allow)
    }

    /// Refuses these calls.
    ///
    /// # Errors
    /// On an architecture that filters cannot be made for.
    pub fn these(calls: &[libc::c_long], some: &[CallWhere]) -> io::Result<CallFilter> {
        CallFilter::of(rules(calls, some)?, SeccompAction::Allow, refused())
    }

    fn of(
        rules: Rules,
        otherwise: SeccompAction,
        where_one_holds: SeccompAction,
    ) -> io::Result<CallFilter> {
        let program = compile(rules, otherwise, where_one_holds)?;
        let before = unknown().into_iter();
        let before = before.map(|(code, jt, jf, k)| sock_filter { code, jt, jf, k });
        Ok(CallFilter(before.chain(program).collect()))
    }

    /// Has the kernel refuse it to every thread of this process, and those to come.
    ///
    /// # Errors
    /// When the kernel cannot, or does not let us.
    pub fn enter(&self) -> io::Result<()> {
        apply_filter_all_threads(&self.0).map_err(io::Error::other)
    }

    /// Does something on a thread that the filter holds for, and no other of this program.
    ///
    /// # Errors
    /// When the kernel cannot filter, or does not let us.
    ///
    /// # Panics
    /// As what is done does.
    pub fn within<T: Send>(&self, something: impl FnOnce() -> T + Send) -> io::Result<T> {
        let begin = || apply_filter(&self.0).map_err(io::Error::other);
        std::thread::scope(|scope| {
            let inside = scope.spawn(move || begin().map(|()| something()));
            let ended = inside.join();
            ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

fn refused() -> SeccompAction {
    SeccompAction::Errno(libc::EPERM.unsigned_abs())
}

type Rules = Vec<(libc::c_long, Vec<SeccompRule>)>;

fn rules(calls: &[libc::c_long], some: &[CallWhere]) -> io::Result<Rules> {
    let mut rules: Rules = calls.iter().map(|call| (*call, Vec::new())).collect();
    for (call, place, mask, value) in some {
        let (length, how) = match *mask {
            u64::MAX => (Qword, Eq),
            mask if mask == u64::from(u32::MAX) => (Dword, Eq),
            mask => (Qword, MaskedEq(mask)),
        };
        let condition = SeccompCondition::new(*place, length, how, *value);
        let rule = condition.and_then(|it| SeccompRule::new(vec![it]));
        rules.push((*call, vec![rule.map_err(io::Error::other)?]));
    }
    Ok(rules)
}

fn compile(
    rules: Rules,
    otherwise: SeccompAction,
    where_one_holds: SeccompAction,
) -> io::Result<BpfProgram> {
    let architecture = std::env::consts::ARCH.try_into();
    let filter = architecture.and_then(|architecture| {
        let rules = rules.into_iter().collect();
        SeccompFilter::new(rules, otherwise, where_one_holds, architecture)
    });
    filter
        .and_then(BpfProgram::try_from)
        .map_err(io::Error::other)
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// What a thread asks for that does nothing.
    const OF_THREADS: &[libc::c_long] = &[
        libc::SYS_exit,
        libc::SYS_futex,
        libc::SYS_madvise,
        libc::SYS_mmap,
        libc::SYS_mprotect,
        libc::SYS_munmap,
        libc::SYS_rt_sigprocmask,
        libc::SYS_sigaltstack,
        libc::SYS_getpid,
    ];

    /// The error of a call without arguments, if it is one.
    fn error(call: libc::c_long) -> Option<i32> {
        // SAFETY: calls that read no memory, and numbers that no call has.
        let answer = unsafe { libc::syscall(call) };
        (answer < 0).then(|| io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }

    #[test]
    fn calls_with_pointers_of_32_bits_are_not_there_whatever_a_filter_lists() {
        let x32 = libc::c_long::from(X32);
        let calls = [libc::SYS_getppid, libc::SYS_getpid, x32 | libc::SYS_getpid];
        let errors = move || calls.map(error);
        // A kernel that has such calls would answer them, one that has none says the same by itself: what
        // refuses all that it does not list shows who is asked first.
        let all_but = CallFilter::all_but(OF_THREADS, &[]).unwrap();
        let refused = [Some(libc::EPERM), None, Some(libc::ENOSYS)];
        assert_eq!(all_but.within(errors).unwrap(), refused);
        let these = CallFilter::these(&[libc::SYS_getppid], &[]).unwrap();
        assert_eq!(these.within(errors).unwrap(), refused);
    }
}
