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
    apply_filter_all_threads,
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

/// Filters, ready to be entered.
#[derive(Debug)]
pub struct CallFilters([BpfProgram; 2]);

impl CallFilters {
    /// Refuses every call but these.
    ///
    /// # Errors
    /// On an architecture that filters cannot be made for, as below.
    pub fn all_but(calls: &[libc::c_long], some: &[CallWhere]) -> io::Result<CallFilters> {
        let mut rules = rules(calls, some)?;
        // The other filter has the word about it.
        rules.push((libc::SYS_clone3, Vec::new()));
        CallFilters::of(compile(rules, refused(), SeccompAction::Allow)?)
    }

    /// Refuses these calls.
    ///
    /// # Errors
    /// On an architecture that filters cannot be made for.
    pub fn these(calls: &[libc::c_long], some: &[CallWhere]) -> io::Result<CallFilters> {
        let rules = rules(calls, some)?;
        CallFilters::of(compile(rules, SeccompAction::Allow, refused())?)
    }

    /// Makes one way of starting threads unknown besides, whose arguments a filter cannot see:
    /// libraries go back to the older one.
    fn of(filter: BpfProgram) -> io::Result<CallFilters> {
        let unknown = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
        let clone3 = vec![(libc::SYS_clone3, Vec::new())];
        Ok(CallFilters([
            compile(clone3, SeccompAction::Allow, unknown)?,
            filter,
        ]))
    }

    /// Has the kernel refuse it to every thread of this process, and those to come.
    ///
    /// # Errors
    /// When the kernel cannot, or does not let us.
    pub fn enter(&self) -> io::Result<()> {
        let mut filters = self.0.iter();
        filters.try_for_each(|it| apply_filter_all_threads(it).map_err(io::Error::other))
    }

    /// Does something on a thread that the filters hold for, and no other of this program.
    ///
    /// # Errors
    /// When the kernel cannot filter, or does not let us.
    ///
    /// # Panics
    /// As what is done does.
    pub fn within<T: Send>(&self, something: impl FnOnce() -> T + Send) -> io::Result<T> {
        let mut filters = self.0.iter();
        let mut begin =
            move || filters.try_for_each(|it| apply_filter(it).map_err(io::Error::other));
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
