//! What programs of pools may not ask of the kernel.
//!
//! The idea: a list of what no site needs, and what has been a way out of walls or into the kernel:
//! mounts and namespaces, other processes' memory, keys, programs in the kernel, settings of the
//! machine. All else is allowed: nobody can say what a program of a tenant's needs. What is refused
//! is refused with `EPERM`, as it mostly is to who is not root; a call that this list cannot judge
//! is unknown (`ENOSYS`), for which libraries have another one. Calls of another architecture
//! than the machine's own, whose numbers are others, end the program.

use std::io;

use os::calls::{PRIVILEGED, unknown};
use os::spawn::Filter;
use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{Eq, MaskedEq, Ne};
use seccompiler::{BpfProgram, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule};

/// Namespaces that could be made; each is a bit of the first argument of two calls.
const NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];
/// That of clocks is one of `unshare` alone.
const NAMESPACE_OF_CLOCKS: libc::c_int = 0x80;
/// Kinds of sockets that there may be.
const SOCKETS: [libc::c_int; 4] = [
    libc::AF_UNIX,
    libc::AF_INET,
    libc::AF_INET6,
    libc::AF_NETLINK,
];
/// Kinds of machines that a program may ask to be on: the usual one, and none, to be told.
const PERSONALITIES: [u32; 2] = [0, u32::MAX];
/// What puts words into a terminal's input: `TIOCSTI` and `TIOCLINUX`.
const TERMINALS: [u32; 2] = [0x5412, 0x541c];

/// The filter for programs of pools.
///
/// # Errors
/// On an architecture that filters cannot be made for.
pub(crate) fn filter() -> io::Result<Filter> {
    let program = refusing()?;
    let program = program.iter().map(|it| (it.code, it.jt, it.jf, it.k));
    let all = unknown().into_iter().chain(program);
    Ok(Filter::of(all))
}

fn refusing() -> io::Result<BpfProgram> {
    let rules = rules().map_err(io::Error::other)?;
    let filter = std::env::consts::ARCH.try_into().and_then(|architecture| {
        let refused = SeccompAction::Errno(libc::EPERM.unsigned_abs());
        SeccompFilter::new(
            rules.into_iter().collect(),
            SeccompAction::Allow,
            refused,
            architecture,
        )
    });
    let program = filter.and_then(BpfProgram::try_from);
    program.map_err(io::Error::other)
}

type Rules = Vec<(libc::c_long, Vec<SeccompRule>)>;

fn rules() -> Result<Rules, seccompiler::BackendError> {
    let mut rules: Rules = PRIVILEGED.iter().map(|call| (*call, Vec::new())).collect();
    let bit = |bit: libc::c_int| {
        let bit = u64::from(bit.unsigned_abs());
        let has = SeccompCondition::new(0, Qword, MaskedEq(bit), bit)?;
        SeccompRule::new(vec![has])
    };
    let made = NAMESPACES.iter().map(|it| bit(*it));
    rules.push((libc::SYS_clone, made.collect::<Result<_, _>>()?));
    let made = NAMESPACES.iter().chain(&[NAMESPACE_OF_CLOCKS]);
    let made = made.map(|it| bit(*it));
    rules.push((libc::SYS_unshare, made.collect::<Result<_, _>>()?));
    let is_none_of = |values: &[u32]| {
        let others = values.iter();
        let others = others.map(|it| SeccompCondition::new(0, Dword, Ne, u64::from(*it)));
        SeccompRule::new(others.collect::<Result<_, _>>()?)
    };
    let sockets = SOCKETS.map(libc::c_int::unsigned_abs);
    for call in [libc::SYS_socket, libc::SYS_socketpair] {
        rules.push((call, vec![is_none_of(&sockets)?]));
    }
    rules.push((libc::SYS_personality, vec![is_none_of(&PERSONALITIES)?]));
    let terminals = TERMINALS.iter().map(|it| {
        let is = SeccompCondition::new(1, Dword, Eq, u64::from(*it))?;
        SeccompRule::new(vec![is])
    });
    rules.push((libc::SYS_ioctl, terminals.collect::<Result<_, _>>()?));
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::AsFd;

    use os::spawn::{Birth, Birthplace, Limits, spawn};
    use os::user::User;

    use super::*;

    /// Runs a script of Perl's within the filter, as who this process is: what is refused is refused
    /// by nothing else where that is root. Tells what it said.
    fn run(script: &str) -> String {
        let directory = os::file::open_directory("/".as_ref()).unwrap();
        let null = File::open("/dev/null").unwrap();
        let (stdout, its_stdout) = os::pipe::from_program().unwrap();
        let arguments = ["-e", script].map(|word| CString::new(word).unwrap());
        let (process, verdict) = spawn(&Birth {
            directory: directory.as_fd(),
            name: c"/usr/bin/perl",
            arguments: &arguments,
            environment: &[c"PATH=/usr/bin:/bin".to_owned()],
            stdio: [null.as_fd(), its_stdout.as_fd(), its_stdout.as_fd()],
            listeners: &[],
            user: None::<&User>,
            limits: &Limits::default(),
            birthplace: Birthplace::Own,
            walls: None,
            filter: Some(&filter().unwrap()),
            outlives: false,
        })
        .unwrap();
        drop(its_stdout);
        let patience = Some(std::time::Duration::from_secs(30));
        let mut said = Vec::new();
        let mut file = File::from(stdout);
        loop {
            assert_eq!(
                os::net::wait_readable(&[file.as_fd()], patience).unwrap(),
                [true]
            );
            let mut bytes = [0; 4_096];
            match file.read(&mut bytes) {
                Ok(0) => break,
                Ok(read) => said.extend_from_slice(&bytes[..read]),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
        if let Some(Err(failed)) = verdict.ask() {
            panic!("{failed:?}");
        }
        process.reap().unwrap();
        String::from_utf8(said).unwrap()
    }

    /// What calls with these numbers and first arguments answer: an error's number, or 0.
    fn answers(calls: &[(libc::c_long, u64)]) -> Vec<i32> {
        let calls = calls.iter().map(|(call, first)| {
            // The rest of the arguments make no sense, so that nothing comes of what is let through.
            format!("$!=0; print(syscall({call},{first},-1,-1,-1,-1) < 0 ? $!+0 : 0, qq(\\n));")
        });
        let said = run(&calls.collect::<String>());
        said.lines().map(|line| line.parse().unwrap()).collect()
    }

    #[test]
    fn what_no_site_needs_is_refused_to_root_as_well() {
        let calls: Vec<_> = PRIVILEGED.iter().map(|call| (*call, u64::MAX)).collect();
        let refused = answers(&calls);
        for (call, answer) in PRIVILEGED.iter().zip(&refused) {
            assert_eq!(*answer, libc::EPERM, "call {call}");
        }
        assert_eq!(refused.len(), PRIVILEGED.len());
        for namespace in NAMESPACES.iter().chain(&[NAMESPACE_OF_CLOCKS]) {
            let flags = u64::from(namespace.unsigned_abs());
            let answer = answers(&[(libc::SYS_unshare, flags | 0x400)]);
            assert_eq!(answer, [libc::EPERM], "{namespace:x}");
        }
        for namespace in NAMESPACES {
            let flags = u64::from(namespace.unsigned_abs());
            // Refused by the kernel itself, did it come to look: a thread alone.
            let answer = answers(&[(libc::SYS_clone, flags | 0x1_0000)]);
            assert_eq!(answer, [libc::EPERM], "{namespace:x}");
        }
        let of_kernels = [libc::AF_PACKET, libc::AF_ALG, libc::AF_VSOCK, libc::AF_XDP];
        for kind in of_kernels {
            let kind = u64::from(kind.unsigned_abs());
            assert_eq!(answers(&[(libc::SYS_socket, kind)]), [libc::EPERM]);
        }
        assert_eq!(answers(&[(libc::SYS_personality, 8)]), [libc::EPERM]);
        let mut unknown = vec![(libc::SYS_clone3, 0)];
        if cfg!(target_arch = "x86_64") {
            unknown.extend([(0x4000_0000 | libc::SYS_getpid, 0), (0x4000_0000 | 521, 0)]);
        }
        for call in unknown {
            assert_eq!(answers(&[call]), [libc::ENOSYS], "{call:?}");
        }
    }

    #[test]
    fn what_sites_need_goes_on() {
        let script = r#"
            use Socket; use IO::Socket::INET; use IO::Socket::UNIX;
            my $tcp = IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1') or die "tcp $!";
            my $udp = IO::Socket::INET->new(Proto => 'udp') or die "udp $!";
            socketpair(my $a, my $b, AF_UNIX, SOCK_STREAM, 0) or die "pair $!";
            socket(my $netlink, 16, SOCK_RAW, 0) or die "netlink $!";
            my $pid = fork(); exit(7) unless $pid; waitpid($pid, 0); print $? >> 8, "\n";
            print `echo from a shell`;
            syscall(272, 0x400) == 0 or die "unshare $!" if $^O eq 'linux' && `uname -m` =~ /x86_64/;
            print -t STDIN ? "terminal" : "none", "\n";
        "#;
        assert_eq!(run(script), "7\nfrom a shell\nnone\n");
    }
}
