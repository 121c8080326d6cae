//! Programs behind walls: what they see, and what does not get them out. Each test runs in a process
//! of its own, with the capabilities of the packaged service and no more.

use std::ffi::CString;
use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use os::spawn::{
    Adopted, Birth, Birthplace, Failed, Filter, Limits, Process, Seen, Stage, Verdict, Walls,
    next_ended, spawn,
};
use os::user::User;
use os::{file, pipe};
use rustix::thread::{CapabilitySet, CapabilitySets};
use testkit::{PATIENCE, TempDir, alone, lacks_root};

/// Nobody's number.
const ONE: u32 = 4_000_001;
const OTHER: u32 = 4_000_002;
/// What a shell and its programs need.
const SYSTEM: [&str; 6] = ["/usr", "/bin", "/lib", "/lib64", "/sbin", "/etc/passwd"];

fn user(uid: u32) -> User {
    User {
        uid,
        gid: uid,
        groups: vec![uid],
    }
}

/// What a start may ask for beyond its script.
#[derive(Default)]
struct Wish<'a> {
    user: Option<&'a User>,
    listeners: &'a [BorrowedFd<'a>],
    walls: Option<&'a Walls>,
    filter: Option<&'a Filter>,
    outlives: bool,
}

struct Started {
    process: Process,
    verdict: Verdict,
    stdin: OwnedFd,
    stdout: OwnedFd,
}

fn start(script: &str, wish: &Wish<'_>) -> Started {
    let directory = file::open_directory(Path::new("/")).unwrap();
    let (stdin, its_stdin) = pipe::to_program().unwrap();
    let (stdout, its_stdout) = pipe::from_program().unwrap();
    let arguments = [c"-c".to_owned(), CString::new(script).unwrap()];
    let (process, verdict) = spawn(&Birth {
        directory: directory.as_fd(),
        name: c"/bin/sh",
        arguments: &arguments,
        environment: &[c"PATH=/usr/bin:/bin".to_owned()],
        stdio: [its_stdin.as_fd(), its_stdout.as_fd(), its_stdout.as_fd()],
        listeners: wish.listeners,
        user: wish.user,
        limits: &Limits::default(),
        birthplace: Birthplace::Own,
        walls: wish.walls,
        filter: wish.filter,
        outlives: wish.outlives,
    })
    .unwrap();
    Started {
        process,
        verdict,
        stdin,
        stdout,
    }
}

impl Started {
    fn await_verdict(&self) -> Result<(), Failed> {
        let known = os::net::wait_readable(&[self.verdict.as_fd()], Some(PATIENCE)).unwrap();
        assert_eq!(known, [true]);
        self.verdict.ask().unwrap()
    }
}

/// Runs a script to its end; what it said.
fn run(script: &str, wish: &Wish<'_>) -> String {
    let started = start(script, wish);
    if let Err(failed) = started.await_verdict() {
        panic!("{failed:?}");
    }
    drop(started.stdin);
    rustix::fs::fcntl_setfl(&started.stdout, rustix::fs::OFlags::empty()).unwrap();
    let mut said = String::new();
    File::from(started.stdout)
        .read_to_string(&mut said)
        .unwrap();
    started.process.reap().unwrap();
    said
}

fn seen(path: &Path, is_writable: bool) -> Seen<'_> {
    Seen {
        path,
        is_writable,
        is_optional: false,
    }
}

/// The system, and this as its own.
fn walls(own: &[&Path], directory: &Path) -> Result<Walls, Failed> {
    let system = SYSTEM.iter().map(|path| Seen {
        is_optional: true,
        ..seen(Path::new(path), false)
    });
    let own = own.iter().map(|path| seen(path, true));
    Walls::new(system.chain(own), 1 << 20, directory)
}

/// Leaves this process the capabilities that the packaged service has.
fn as_the_service() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/nagaya.service");
    let unit = fs::read_to_string(unit).unwrap();
    let listed = unit
        .lines()
        .find_map(|line| line.strip_prefix("CapabilityBoundingSet="))
        .unwrap();
    let mut kept = CapabilitySet::empty();
    for (name, one) in CapabilitySet::all().iter_names() {
        if listed.split(' ').any(|it| it == format!("CAP_{name}")) {
            kept |= one;
        }
    }
    assert!(kept.contains(CapabilitySet::SYS_ADMIN), "{listed}");
    let held = rustix::thread::capabilities(None).unwrap();
    for one in CapabilitySet::all().difference(kept).iter() {
        let _ = rustix::thread::remove_capability_from_bounding_set(one);
    }
    let kept = kept.intersection(held.permitted);
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, sets).unwrap();
}

/// Homes of two users, each with something that everybody may read.
fn homes() -> (TempDir, PathBuf, PathBuf) {
    let place = TempDir::new();
    let top = fs::canonicalize(place.path()).unwrap();
    let home = |name: &str, uid| {
        let home = top.join(name);
        fs::create_dir(&home).unwrap();
        fs::write(home.join("word"), format!("word of {name}\n")).unwrap();
        chown(&home, Some(uid), Some(uid)).unwrap();
        fs::set_permissions(&home, Permissions::from_mode(0o755)).unwrap();
        home
    };
    let (one, other) = (home("one", ONE), home("other", OTHER));
    (place, one, other)
}

/// Asserts of what a program's status and open files are that it can do nothing by them.
fn assert_harmless(rest: &str) {
    assert!(rest.contains("CapEff:\t0000000000000000"), "{rest}");
    assert!(rest.contains("CapPrm:\t0000000000000000"), "{rest}");
    let bound = rest.lines().find_map(|line| line.strip_prefix("CapBnd:\t"));
    let bound = u64::from_str_radix(bound.unwrap(), 16).unwrap();
    assert_eq!(bound & 1 << 21, 0, "nobody mounts: {bound:x}");
    let open = rest.lines().skip_while(|line| !line.starts_with("total"));
    assert_eq!(open.count(), 1, "nothing but pipes is open: {rest}");
}

#[test]
fn what_is_not_shown_is_not_there() {
    if lacks_root("to build walls") {
        return;
    }
    alone(|| {
        as_the_service();
        let (place, one, other) = homes();
        let _socket = UnixListener::bind(place.path().join("socket")).unwrap();
        let before = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let walls = walls(&[&one], &one).unwrap();
        let wish = Wish {
            user: Some(&user(ONE)),
            walls: Some(&walls),
            ..Wish::default()
        };
        let top = place.path().display();
        let own = std::process::id();
        let script = format!(
            "pwd; cat word; echo mine >new && cat new; echo --
            ls {top}; cat {other}/word ../other/word /etc/shadow /etc/hostname {top}/socket; ls /sys /root /run /home; echo --
            touch /x /usr/x /etc/x /dev/x; echo y >/dev/null && head -c1 /dev/zero | wc -c; echo --
            ls /; ls /dev; readlink /var/tmp; echo --
            ls /proc | grep -v '^[0-9]'; cat /proc/{own}/environ; ls /proc/{own}/root /proc/1/root; cat /proc/sys/kernel/hostname; echo --
            cd ../../../..; pwd; ls /proc/self/cwd/; echo --
            grep -c ' ro,' /proc/self/mountinfo; grep Cap /proc/self/status; ls -l /proc/$$/fd | grep -v pipe:",
            other = other.display()
        );
        let said = run(&script, &wish);
        assert_eq!(fs::read_to_string("/proc/self/mountinfo").unwrap(), before);
        assert_eq!(fs::read_to_string(one.join("new")).unwrap(), "mine\n");
        let parts: Vec<_> = said.split("--\n").collect();
        let [own, others, written, top, processes, above, rest] = parts[..] else {
            panic!("{said}");
        };
        assert_eq!(own, format!("{}\nword of one\nmine\n", one.display()));
        let mut lines = others.lines();
        assert_eq!(lines.next(), Some("one"), "{others}");
        for line in lines {
            assert!(line.contains("No such file"), "{line}");
        }
        let refused = written.matches("Read-only file system").count();
        let denied = written.matches("Permission denied").count();
        assert_eq!(refused + denied, 4, "{written}");
        assert!(written.ends_with("1\n"), "{written}");
        for name in ["proc", "tmp", "usr", "dev", "etc"] {
            assert!(top.lines().any(|line| line == name), "{top}");
        }
        for name in ["home", "root", "run", "sys", "boot", "mnt", "sda"] {
            assert!(!top.lines().any(|line| line == name), "{top}");
        }
        assert!(
            top.ends_with("\n/tmp\n") && top.contains("urandom"),
            "{top}"
        );
        let mut lines = processes.lines();
        assert_eq!(lines.next(), Some("self"), "{processes}");
        assert_eq!(lines.next(), Some("thread-self"), "{processes}");
        for line in lines {
            assert!(line.contains("No such file"), "{line}");
        }
        assert_eq!(above.lines().next(), Some("/"));
        assert!(
            !above.contains("root\n") && above.contains("usr"),
            "{above}"
        );
        assert_harmless(rest);
    });
}

#[test]
fn links_and_directories_swapped_lead_nowhere() {
    if lacks_root("to build walls") {
        return;
    }
    alone(|| {
        as_the_service();
        let (_place, one, other) = homes();
        let (site, gone) = (one.join("site"), one.join("gone"));
        fs::create_dir(&site).unwrap();
        fs::create_dir(&gone).unwrap();
        chown(&site, Some(ONE), Some(ONE)).unwrap();
        let user = user(ONE);
        // What is seen alone is what was there, and not what a link there leads to now.
        let made = walls(&[&site], &site).unwrap();
        let wish = Wish {
            user: Some(&user),
            walls: Some(&made),
            ..Wish::default()
        };
        let link = other.display();
        let script = format!("ln -s {link} swap; cat swap/word; ls -d /proc/self/cwd/../*");
        let said = run(&script, &wish);
        assert!(said.contains("swap/word: No such file"), "{said}");
        assert!(!said.contains("word of other"), "{said}");
        fs::rename(&site, one.join("moved")).unwrap();
        symlink(&other, &site).unwrap();
        let started = start("cat word", &wish);
        let failed = started.await_verdict().unwrap_err();
        let number = failed.error.raw_os_error();
        assert_eq!((failed.stage, number), (Stage::Walls, Some(libc::ELOOP)));
        assert_eq!(failed.path.as_deref(), Some(site.as_path()));
        started.process.reap().unwrap();
        // Nor is it taken for what it leads to by who makes ready anew.
        rustix::fs::chownat(
            rustix::fs::CWD,
            &site,
            Some(rustix::process::Uid::from_raw(ONE)),
            None,
            rustix::fs::AtFlags::SYMLINK_NOFOLLOW,
        )
        .unwrap();
        let failed = walls(&[&site], &site).unwrap_err();
        assert!(failed.error.to_string().contains("belongs to user"));
        let made = walls(&[&gone], &gone).unwrap();
        fs::remove_dir(&gone).unwrap();
        let wish = Wish {
            walls: Some(&made),
            ..Wish::default()
        };
        let started = start("true", &wish);
        let failed = started.await_verdict().unwrap_err();
        assert_eq!(failed.path.as_deref(), Some(gone.as_path()));
        started.process.reap().unwrap();
        // A directory that is not behind the walls is none to start in.
        let made = walls(&[&one], &other).unwrap();
        let wish = Wish {
            walls: Some(&made),
            ..Wish::default()
        };
        let started = start("true", &wish);
        let failed = started.await_verdict().unwrap_err();
        assert_eq!(failed.stage, Stage::Directory);
        started.process.reap().unwrap();
    });
}

#[test]
fn a_program_has_a_small_tmp_of_its_own_that_ends_with_it() {
    if lacks_root("to build walls") {
        return;
    }
    alone(|| {
        as_the_service();
        let (_place, one, _) = homes();
        let made = walls(&[&one], &one).unwrap();
        let user = user(ONE);
        let wish = Wish {
            user: Some(&user),
            walls: Some(&made),
            ..Wish::default()
        };
        let name = format!("walls-{}", std::process::id());
        let script = format!(
            "echo x >/tmp/{name} && cat /var/tmp/{name} /dev/shm/{name}; head -c 3000000 /dev/zero >/tmp/full; rm /tmp/full
            i=0; while [ $i -lt 3000 ]; do true >/tmp/$i || break; i=$((i+1)); done; ls /tmp | wc -l"
        );
        let said = run(&script, &wish);
        assert!(said.starts_with("x\nx\n"), "{said}");
        assert!(said.matches("No space left").count() >= 2, "{said}");
        let files: u32 = said.lines().last().unwrap().trim().parse().unwrap();
        assert!((500..1_100).contains(&files), "{said}");
        assert!(!Path::new("/tmp").join(&name).exists());
        let again = run(
            &format!("ls /tmp; cat {}", one.join("word").display()),
            &wish,
        );
        // What is seen there has its place in it.
        assert!(!again.contains(&name) && again.ends_with("word of one\n"));
    });
}

#[test]
fn a_program_that_becomes_root_outside_does_not_inside() {
    if lacks_root("to make such a program") {
        return;
    }
    alone(|| {
        as_the_service();
        let (_place, one, _) = homes();
        let program = one.join("id");
        fs::copy("/usr/bin/id", &program).unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o4755)).unwrap();
        let made = walls(&[&one], &one).unwrap();
        let user = user(ONE);
        let wish = Wish {
            user: Some(&user),
            walls: Some(&made),
            ..Wish::default()
        };
        let said = run("./id -u; su -c id root </dev/null; id -u", &wish);
        assert!(!said.lines().any(|line| line == "0"), "{said}");
        assert!(!said.contains("uid=0"), "{said}");
        assert!(said.starts_with(&format!("{ONE}\n")), "{said}");
    });
}

#[test]
fn a_kernel_that_cannot_bar_all_mounts_at_once_shows_one() {
    if lacks_root("to build walls") {
        return;
    }
    alone(|| {
        let (_place, one, _) = homes();
        let made = walls(&[&one], &one).unwrap();
        let user = user(ONE);
        let wish = Wish {
            user: Some(&user),
            walls: Some(&made),
            ..Wish::default()
        };
        let script = "cat word; echo x >own && cat own; touch /usr/x; cat /proc/self/mountinfo";
        let with = run(script, &wish);
        unknown(libc::SYS_mount_setattr);
        let without = run(script, &wish);
        for said in [with, without] {
            assert!(said.starts_with("word of one\nx\ntouch: "), "{said}");
            let usr = said.lines().find(|line| line.contains(" /usr ")).unwrap();
            assert!(usr.contains(" ro,nosuid,nodev"), "{usr}");
            let home = format!(" {} ", one.display());
            let home = said.lines().find(|line| line.contains(&home)).unwrap();
            assert!(home.contains(" rw,nosuid,nodev"), "{home}");
        }
        unknown(libc::SYS_open_tree);
        let started = start("true", &wish);
        let failed = started.await_verdict().unwrap_err();
        let number = failed.error.raw_os_error();
        assert_eq!((failed.stage, number), (Stage::Walls, Some(libc::ENOSYS)));
        started.process.reap().unwrap();
    });
}

#[test]
fn walls_that_may_not_be_built_are_an_error() {
    if lacks_root("to have something to lose") {
        return;
    }
    alone(|| {
        let (_place, one, _) = homes();
        let made = walls(&[&one], &one).unwrap();
        let mut held = rustix::thread::capabilities(None).unwrap();
        held.effective.remove(CapabilitySet::SYS_ADMIN);
        held.permitted.remove(CapabilitySet::SYS_ADMIN);
        rustix::thread::set_capabilities(None, held).unwrap();
        let wish = Wish {
            walls: Some(&made),
            ..Wish::default()
        };
        let started = start("true", &wish);
        let failed = started.await_verdict().unwrap_err();
        let number = failed.error.raw_os_error();
        assert_eq!((failed.stage, number), (Stage::Walls, Some(libc::EPERM)));
        assert_eq!(failed.path.as_deref(), Some(Path::new("/")));
        started.process.reap().unwrap();
    });
}

/// Has the kernel not know a call, for this process and those it starts.
fn unknown(call: libc::c_long) {
    let steps = answering(call, libc::ENOSYS);
    let steps: Vec<_> = steps
        .into_iter()
        .map(|(code, jt, jf, k)| libc::sock_filter { code, jt, jf, k })
        .collect();
    let program = libc::sock_fprog {
        len: u16::try_from(steps.len()).unwrap(),
        filter: steps.as_ptr().cast_mut(),
    };
    // SAFETY: reads live structures.
    let done = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            0,
            &raw const program,
        )
    };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// A filter that answers one call with an error, and allows all others.
fn answering(call: libc::c_long, error: libc::c_int) -> [(u16, u8, u8, u32); 4] {
    let code = |code: u32| u16::try_from(code).unwrap();
    let answer = code(libc::BPF_RET | libc::BPF_K);
    let call = u32::try_from(call).unwrap();
    [
        (code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS), 0, 0, 0),
        (
            code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K),
            0,
            1,
            call,
        ),
        (answer, 0, 0, libc::SECCOMP_RET_ERRNO | error.unsigned_abs()),
        (answer, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}

#[test]
fn what_a_filter_refuses_is_refused_whoever_asks() {
    alone(|| {
        let filter = Filter::of(answering(libc::SYS_chdir, libc::EXDEV));
        let wish = Wish {
            filter: Some(&filter),
            ..Wish::default()
        };
        let said = run("cd /tmp; grep Seccomp: /proc/self/status", &wish);
        assert!(said.contains("cd: "), "{said}");
        assert!(said.ends_with("Seccomp:\t2\n"), "{said}");
        let wrong = Filter::of([]);
        let wish = Wish {
            filter: Some(&wrong),
            ..Wish::default()
        };
        let started = start("true", &wish);
        assert_eq!(started.await_verdict().unwrap_err().stage, Stage::Filter);
        started.process.reap().unwrap();
    });
}

#[test]
fn listeners_are_what_a_program_has_beside_its_three() {
    alone(|| {
        let place = TempDir::new();
        let listeners = ["a", "b", "c"].map(|name| {
            let path = place.path().join(name);
            OwnedFd::from(UnixListener::bind(path).unwrap())
        });
        // In the places that they are to have, in the wrong order: none may be lost to another.
        let numbers: Vec<_> = listeners.iter().rev().map(AsFd::as_fd).collect();
        let wish = Wish {
            listeners: &numbers,
            ..Wish::default()
        };
        let script = "echo $LISTEN_PID $$; ls /proc/$$/fd; for fd in 3 4 5; do readlink /proc/$$/fd/$fd; done; cat /proc/net/unix";
        let said = run(script, &wish);
        let mut lines = said.lines();
        let numbers: Vec<_> = lines.next().unwrap().split(' ').collect();
        assert_eq!(numbers[0], numbers[1]);
        for fd in ["0", "1", "2", "3", "4", "5"] {
            assert_eq!(lines.next(), Some(fd), "{said}");
        }
        for name in ["c", "b", "a"] {
            let inode = lines.next().unwrap();
            let inode = inode.trim_start_matches("socket:[").trim_end_matches(']');
            let path = place.path().join(name);
            let path = path.to_str().unwrap();
            let line = said.lines().find(|line| line.ends_with(path)).unwrap();
            assert!(line.contains(inode), "{name}: {said}");
        }
        assert!(run("echo \"<$LISTEN_PID>\"", &Wish::default()).starts_with("<>"));
    });
}

#[test]
fn a_program_may_outlive_who_started_it_and_be_adopted() {
    const CHILD: &str = "OS_TEST_OUTLIVED";
    if std::env::var_os(CHILD).is_some() {
        let wish = Wish {
            outlives: true,
            ..Wish::default()
        };
        let started = start("sleep 1000 >/dev/null 2>&1 & wait", &wish);
        started.await_verdict().unwrap();
        println!("pid={}", started.process.pid());
        let own = rustix::process::getpid();
        rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
    }
    alone(|| {
        os::spawn::adopt_orphans().unwrap();
        let inner = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "walls::a_program_may_outlive_who_started_it_and_be_adopted",
                "--nocapture",
            ])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&inner.stdout).into_owned();
        let pid = said.lines().find_map(|line| line.split_once("pid="));
        let pid: u32 = pid.unwrap().1.trim().parse().unwrap();
        let adopted = Adopted::open(pid).unwrap();
        assert!(!adopted.has_ended());
        let handed = adopted.try_clone_fd().unwrap();
        let again = Adopted::of(pid, handed).unwrap();
        assert_eq!(again.pid(), pid);
        let other = adopted.try_clone_fd().unwrap();
        assert!(Adopted::of(pid + 1, other).is_err());
        let file = OwnedFd::from(File::open("/dev/null").unwrap());
        assert!(Adopted::of(pid, file).is_err());
        let child = testkit::eventually(PATIENCE, "its child", || {
            os::tree::look(pid)?.pids.get(1).copied()
        });
        again.kill();
        let ended = os::net::wait_readable(&[adopted.as_fd()], Some(PATIENCE)).unwrap();
        assert_eq!(ended, [true]);
        assert!(adopted.has_ended());
        testkit::eventually(PATIENCE, "the end of both", || {
            while let Some(orphan) = next_ended().unwrap() {
                os::spawn::reap_orphan(orphan).unwrap();
            }
            let gone = !os::process::is_there(pid) && !os::process::is_there(child);
            gone.then_some(())
        });
        let reaped = Adopted::of(pid, adopted.try_clone_fd().unwrap());
        assert_eq!(reaped.unwrap_err().kind(), std::io::ErrorKind::NotFound);
        assert!(Adopted::open(pid).is_err());
    });
}
