//! Programs started for real: what they are, what they may, what is left of us in them, and how
//! they end. Each test runs in a process of its own, which is the parent of nothing else.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use os::spawn::{
    Birth, Birthplace, End, Ended, Failed, Limits, Process, Stage, Verdict, adopt_orphans,
    next_ended, reap_orphan, spawn,
};
use os::user::User;
use os::{file, pipe, process};
use testkit::{PATIENCE, TempDir, alone, alone_with};

/// What a start may ask for beyond its program.
struct Wish<'a> {
    environment: &'a [&'a str],
    user: Option<&'a User>,
    limits: Limits,
    birthplace: Birthplace<'a>,
}

const PLAIN: Wish<'static> = Wish {
    environment: &["PATH=/usr/bin:/bin"],
    user: None,
    limits: Limits {
        cpu_s: None,
        memory_bytes: None,
        files: None,
        processes: None,
        file_size_bytes: None,
    },
    birthplace: Birthplace::Own,
};

/// A program started, with our ends of its pipes.
struct Started {
    process: Process,
    verdict: Verdict,
    stdin: OwnedFd,
    stdout: OwnedFd,
}

fn start(place: &Path, name: &str, wish: &Wish<'_>) -> Result<Started, Failed> {
    let directory = file::open_directory(place).unwrap();
    let (stdin, its_stdin) = pipe::to_program().unwrap();
    let (stdout, its_stdout) = pipe::from_program().unwrap();
    let environment = wish.environment.iter();
    let environment: Vec<_> = environment.map(|one| CString::new(*one).unwrap()).collect();
    let (process, verdict) = spawn(&Birth {
        arguments: &[],
        directory: directory.as_fd(),
        name: &CString::new(name).unwrap(),
        environment: &environment,
        stdio: [its_stdin.as_fd(), its_stdout.as_fd(), its_stdout.as_fd()],
        user: wish.user,
        limits: &wish.limits,
        birthplace: wish.birthplace,
        listeners: &[],
        walls: None,
        filter: None,
        outlives: false,
    })?;
    Ok(Started {
        process,
        verdict,
        stdin,
        stdout,
    })
}

impl Started {
    fn await_verdict(&self) -> Result<(), Failed> {
        let known = os::net::wait_readable(&[self.verdict.as_fd()], Some(PATIENCE)).unwrap();
        assert_eq!(known, [true]);
        self.verdict.ask().unwrap()
    }

    /// Lets it go on to its end; what it wrote and how it ended.
    fn finish(self) -> (String, Ended) {
        drop(self.stdin);
        let said = read_to_end(self.stdout);
        (said, self.process.reap().unwrap())
    }
}

fn read_to_end(from: OwnedFd) -> String {
    rustix::fs::fcntl_setfl(&from, rustix::fs::OFlags::empty()).unwrap();
    let mut said = String::new();
    File::from(from).read_to_string(&mut said).unwrap();
    said
}

fn read_line(from: BorrowedFd<'_>) -> String {
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') {
        assert_eq!(
            os::net::wait_readable(&[from], Some(PATIENCE)).unwrap(),
            [true]
        );
        let mut byte = [0];
        assert_eq!(os::net::read(from, &mut byte).unwrap(), 1, "the end");
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap().trim_end().to_owned()
}

/// Runs a script to its end.
fn run(script: &str, wish: &Wish<'_>) -> (String, Ended) {
    let programs = TempDir::new();
    programs.write_program("script", format!("#!/bin/sh\n{script}\n"));
    let started = start(programs.path(), "script", wish).unwrap();
    started.await_verdict().unwrap();
    started.finish()
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    testkit::eventually(PATIENCE, what, || holds().then_some(()));
}

fn lives(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

/// `Name: value` lines.
fn fields(text: &str) -> BTreeMap<&str, String> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines
        .map(|(name, value)| (name, value.split_whitespace().collect::<Vec<_>>().join(" ")))
        .collect()
}

#[test]
fn nothing_of_this_process_is_left_in_a_program() {
    alone_with(
        &[("LD_PRELOAD", ""), ("SECRET", "not for programs")],
        || {
            // The shell reads its own status: when it starts another program it blocks signals a while.
            // All that could be inherited: descriptors that stay open, signals ignored and blocked,
            // a mask for files, another directory.
            let open = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), 500).unwrap();
            rustix::io::fcntl_setfd(&open, rustix::io::FdFlags::empty()).unwrap();
            let _signals = os::signal::Signals::listen().unwrap();
            rustix::process::umask(rustix::fs::Mode::empty());
            let wish = Wish {
                environment: &["PATH=/usr/bin:/bin", "EMPTY=", "A=b=c d"],
                ..PLAIN
            };
            let script = "cat /proc/self/environ | tr '\\0' '\\n'; echo --; ls /proc/self/fd; echo --
            umask; pwd -P; echo $0 $#; echo --; while read line; do echo \"$line\"; done </proc/$$/status; echo --; cut -d' ' -f5,6 /proc/$$/stat; echo $$";
            let (said, ended) = run(script, &wish);
            assert_eq!(ended.end, End::Exit(0), "{said}");
            let parts: Vec<_> = said.split("--\n").collect();
            let mut environment: Vec<_> = parts[0].lines().collect();
            environment.sort_unstable();
            // The shell adds its own directory.
            environment.retain(|line| !line.starts_with("PWD=") && !line.starts_with("_="));
            assert_eq!(environment, ["A=b=c d", "EMPTY=", "PATH=/usr/bin:/bin"]);
            // `ls` has one more for the directory; the shell one for its script.
            assert_eq!(
                parts[1].split_whitespace().collect::<Vec<_>>(),
                ["0", "1", "2", "3"]
            );
            let place: Vec<_> = parts[2].lines().collect();
            assert_eq!(place[0], "0022");
            assert!(place[1].contains("nagaya-test-"), "{}", place[1]);
            assert_eq!(place[2], "./script 0");
            let status = fields(parts[3]);
            for set in ["SigBlk", "SigIgn", "ShdPnd", "SigPnd"] {
                assert_eq!(status[set], "0000000000000000", "{set}");
            }
            assert_eq!(status["NoNewPrivs"], "1");
            let ids: Vec<_> = parts[4].split_whitespace().collect();
            // Its group and its session are named after itself.
            assert_eq!(ids, [ids[2]; 3], "{ids:?}");
        },
    );
}

#[test]
fn a_program_is_its_user_with_its_groups_and_nothing_else() {
    if testkit::lacks_root("to become others") {
        return;
    }
    alone(|| {
        let nobody = User::look_up("nobody").unwrap();
        let other = User {
            uid: 4_000_000_001,
            gid: 4_000_000_002,
            groups: vec![4_000_000_002, 7, 8],
        };
        for user in [nobody, other] {
            let wish = Wish {
                user: Some(&user),
                ..PLAIN
            };
            let (said, _) = run("cat /proc/$$/status", &wish);
            let status = fields(&said);
            assert_eq!(status["Uid"], [user.uid.to_string().as_str(); 4].join(" "));
            assert_eq!(status["Gid"], [user.gid.to_string().as_str(); 4].join(" "));
            let mut groups: Vec<u32> = status["Groups"]
                .split(' ')
                .map(|group| group.parse().unwrap())
                .collect();
            let mut wanted = user.groups.clone();
            groups.sort_unstable();
            wanted.sort_unstable();
            assert_eq!(groups, wanted);
            for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
                assert_eq!(status[set], "0000000000000000", "{set}");
            }
        }
    });
}

#[test]
fn limits_bind_the_program_and_leave_no_core() {
    alone(|| {
        let wish = Wish {
            limits: Limits {
                cpu_s: Some(5),
                memory_bytes: Some(1 << 30),
                files: Some(40),
                processes: Some(5_000),
                file_size_bytes: Some(4096),
            },
            ..PLAIN
        };
        let table = |said: &str| -> BTreeMap<String, (String, String)> {
            let rows = said.lines().skip(1).map(|line| {
                let (name, values) = line.split_at(26);
                let values: Vec<_> = values.split_whitespace().collect();
                (
                    name.trim().to_owned(),
                    (values[0].to_owned(), values[1].to_owned()),
                )
            });
            rows.collect()
        };
        let (said, _) = run("cat /proc/$$/limits", &wish);
        let rows = table(&said);
        for (name, soft, hard) in [
            ("Max core file size", "0", "0"),
            ("Max cpu time", "5", "6"),
            ("Max address space", "1073741824", "1073741824"),
            ("Max open files", "40", "40"),
            ("Max processes", "5000", "5000"),
            ("Max file size", "4096", "4096"),
        ] {
            assert_eq!(rows[name], (soft.into(), hard.into()), "{name}");
        }
        process::raise_nofile().unwrap();
        let (said, _) = run("cat /proc/$$/limits", &PLAIN);
        let rows = table(&said);
        let files: u64 = rows["Max open files"].0.parse().unwrap();
        assert!(files <= 1024, "{files}");
        assert_eq!(rows["Max core file size"].1, "0");
        // Nobody is given more than this process may.
        let all = Wish {
            limits: Limits {
                files: Some(u64::MAX),
                ..Limits::default()
            },
            ..PLAIN
        };
        let own = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let (said, _) = run("cat /proc/$$/limits", &all);
        let hard: Option<u64> = table(&said)["Max open files"].1.parse().ok();
        assert_eq!(hard, own.maximum);
    });
}

#[test]
fn what_keeps_a_program_from_starting_is_told_by_stage_and_error() {
    alone(|| {
        let programs = TempDir::new();
        programs.write("plain", "#!/bin/sh\n");
        programs.write_program("lost", "#!/nonexistent/interpreter\n");
        programs.write_program("text", "hello\n");
        fs::create_dir(programs.path().join("directory")).unwrap();
        let _busy = File::options()
            .append(true)
            .open(programs.write_program("busy", "#!/bin/sh\n"))
            .unwrap();
        for (name, stage, error) in [
            ("plain", Stage::Exec, libc::EACCES),
            ("directory", Stage::Exec, libc::EACCES),
            ("lost", Stage::Exec, libc::ENOENT),
            ("missing", Stage::Exec, libc::ENOENT),
            ("text", Stage::Exec, libc::ENOEXEC),
            ("busy", Stage::Exec, libc::ETXTBSY),
        ] {
            let started = start(programs.path(), name, &PLAIN).unwrap();
            let failed = started.await_verdict().unwrap_err();
            let found = (failed.stage, failed.error.raw_os_error());
            assert_eq!(found, (stage, Some(error)), "{name}");
            assert_eq!(started.finish().1.end, End::Exit(127), "{name}");
        }
    });
}

#[test]
fn a_program_that_is_being_written_is_waited_for_a_little() {
    alone(|| {
        let programs = TempDir::new();
        let path = programs.write_program("busy", "#!/bin/sh\nexit 5\n");
        // Another process has it open: what is started here would inherit ours.
        let mut writer = Command::new("sh")
            .args(["-c", "exec 3>>\"$0\"; echo open; read end"])
            .arg(path)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; 5];
        let mut its_output = writer.stdout.take().unwrap();
        its_output.read_exact(&mut said).unwrap();
        let started = start(programs.path(), "busy", &PLAIN).unwrap();
        assert!(started.verdict.ask().is_none());
        drop(writer.stdin.take());
        writer.wait().unwrap();
        started.await_verdict().unwrap();
        assert_eq!(started.finish().1.end, End::Exit(5));
    });
}

#[test]
fn a_directory_closed_to_the_user_and_a_group_that_is_none_are_told() {
    if testkit::lacks_root("to become others") {
        return;
    }
    alone(|| {
        let programs = TempDir::new();
        programs.write_program("script", "#!/bin/sh\n");
        let memory = file::memfd("no group", b"").unwrap();
        let procs_path = programs.write("procs", "");
        let procs = File::options().write(true).open(&procs_path).unwrap();
        let join = [procs.as_fd()];
        let into = Wish {
            birthplace: Birthplace::Into(memory.as_fd()),
            ..PLAIN
        };
        let failed = start(programs.path(), "script", &into).map(|started| started.await_verdict());
        let failed = failed.map_or_else(|failed| failed, |verdict| verdict.unwrap_err());
        assert_eq!(failed.stage, Stage::Group);
        // A file that takes anything is entered, for all that can be told.
        let joined = Wish {
            birthplace: Birthplace::Join(&join),
            ..PLAIN
        };
        start(programs.path(), "script", &joined).unwrap().finish();
        assert_eq!(fs::read(&procs_path).unwrap(), b"0");
        fs::set_permissions(programs.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let nobody = User::look_up("nobody").unwrap();
        let wish = Wish {
            user: Some(&nobody),
            ..PLAIN
        };
        let started = start(programs.path(), "script", &wish).unwrap();
        let failed = started.await_verdict().unwrap_err();
        assert_eq!(failed.stage, Stage::Directory);
        started.finish();
    });
}

#[test]
fn a_killed_program_takes_its_process_group_with_it() {
    alone(|| {
        let programs = TempDir::new();
        let script =
            "#!/bin/sh\nsleep 1000 & echo $!\n(trap '' TERM HUP; sleep 1000) & echo $!\nwait\n";
        programs.write_program("script", script);
        let started = start(programs.path(), "script", &PLAIN).unwrap();
        let children = [
            read_line(started.stdout.as_fd()),
            read_line(started.stdout.as_fd()),
        ];
        assert!(children.iter().all(|pid| lives(pid)));
        started.process.kill();
        let (_, ended) = started.finish();
        assert_eq!(ended.end, End::Signal(9));
        for pid in children {
            eventually("a child of the program to end", || !lives(&pid));
        }
    });
}

#[test]
fn what_a_program_leaves_in_its_group_ends_with_it() {
    alone(|| {
        adopt_orphans().unwrap();
        let programs = TempDir::new();
        // Its output is not the pipe: that would keep us waiting for its end.
        let script = "#!/bin/sh\nsleep 1000 >/dev/null 2>&1 &\necho $!\nexit 3\n";
        programs.write_program("script", script);
        let started = start(programs.path(), "script", &PLAIN).unwrap();
        let left = read_line(started.stdout.as_fd());
        let pid = started.process.pid();
        eventually("the leader to end", || next_ended().unwrap() == Some(pid));
        assert!(lives(&left), "only its leader has ended");
        assert_eq!(started.process.reap().unwrap().end, End::Exit(3));
        eventually("what it left to end", || !lives(&left));
        // It came to us, and is reaped like a program.
        eventually("an orphan", || {
            next_ended().unwrap().is_some_and(|orphan| {
                assert_eq!(orphan.to_string(), left);
                reap_orphan(orphan).unwrap();
                true
            })
        });
        assert_eq!(next_ended().unwrap(), None);
    });
}

#[test]
fn a_program_that_left_its_session_is_adopted() {
    alone(|| {
        adopt_orphans().unwrap();
        let programs = TempDir::new();
        let script = "#!/bin/sh\nsetsid sh -c 'echo $$; exec sleep 1000 >/dev/null 2>&1' &\n";
        programs.write_program("script", script);
        let started = start(programs.path(), "script", &PLAIN).unwrap();
        let fugitive = read_line(started.stdout.as_fd());
        let pid = started.process.pid();
        eventually("the leader to end", || next_ended().unwrap() == Some(pid));
        started.process.reap().unwrap();
        assert!(lives(&fugitive));
        let own = std::process::id().to_string();
        eventually("it to be our child", || {
            let status = fs::read_to_string(format!("/proc/{fugitive}/status")).unwrap();
            fields(&status)["PPid"] == own
        });
        let fugitive = rustix::process::Pid::from_raw(fugitive.parse().unwrap()).unwrap();
        rustix::process::kill_process(fugitive, rustix::process::Signal::KILL).unwrap();
        eventually("its end", || next_ended().unwrap().is_some());
        reap_orphan(next_ended().unwrap().unwrap()).unwrap();
    });
}

#[test]
fn a_program_dies_with_whoever_started_it() {
    const CHILD: &str = "OS_TEST_PARENT";
    if let Some(place) = std::env::var_os(CHILD) {
        let started = start(Path::new(&place), "script", &PLAIN).unwrap();
        println!("pid={}", read_line(started.stdout.as_fd()));
        // Not a return: nothing may be tidied up.
        process::set_name("ends");
        let own = rustix::process::getpid();
        rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
    }
    let programs = TempDir::new();
    programs.write_program("script", "#!/bin/sh\necho $$\nexec sleep 1000\n");
    let inner = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "spawn::a_program_dies_with_whoever_started_it",
            "--nocapture",
        ])
        .env(CHILD, programs.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&inner.stdout).into_owned();
    let pid = said.lines().find_map(|line| line.split_once("pid="));
    let pid = pid
        .unwrap_or_else(|| panic!("no pid in {said}"))
        .1
        .to_owned();
    eventually("the program to end", || !lives(&pid));
}

#[test]
fn what_a_program_took_is_told() {
    alone(|| {
        let (_, ended) = run("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done", &PLAIN);
        assert!(
            ended.cpu_us > 0 && ended.peak_rss_bytes > 100_000,
            "{ended:?}"
        );
        let limited = Wish {
            limits: Limits {
                cpu_s: Some(1),
                ..Limits::default()
            },
            ..PLAIN
        };
        let (_, ended) = run("while :; do :; done", &limited);
        assert_eq!(ended.end, End::Signal(libc::SIGXCPU as u8));
        // The kernel counts the limit in ticks, and what was taken exactly.
        assert!(ended.cpu_us >= 500_000, "{ended:?}");
        // Who does not listen is killed a second later.
        let (_, ended) = run("trap '' XCPU; while :; do :; done", &limited);
        assert_eq!(ended.end, End::Signal(libc::SIGKILL as u8));
    });
}

#[test]
fn a_thousand_programs_leave_nothing_open() {
    alone(|| {
        let programs = TempDir::new();
        programs.write_program("script", "#!/bin/true\n");
        let open = || fs::read_dir("/proc/self/fd").unwrap().count();
        let before = open();
        for _ in 0..1_000 {
            let started = start(programs.path(), "script", &PLAIN).unwrap();
            started.await_verdict().unwrap();
            started.finish();
        }
        assert_eq!(open(), before);
        assert_eq!(next_ended().unwrap(), None);
    });
}

#[test]
fn a_program_is_born_in_its_group() {
    if testkit::lacks_root("to make a group") {
        return;
    }
    alone(|| {
        let name = format!("os-spawn-{}", std::process::id());
        let group = |top: &str| {
            let group = Path::new(top).join(&name);
            fs::create_dir(&group).ok().map(|()| group)
        };
        let tops = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
        let version_2 = tops
            .iter()
            .find(|top| Path::new(top).join("cgroup.controllers").exists())
            .and_then(|top| group(top));
        match version_2 {
            None => testkit::lacks("a controller", "no control groups of version 2"),
            Some(group) => {
                let directory = file::open_directory(&group).unwrap();
                let wish = Wish {
                    birthplace: Birthplace::Into(directory.as_fd()),
                    ..PLAIN
                };
                let (said, _) = run("cat /proc/$$/cgroup", &wish);
                fs::remove_dir(&group).unwrap();
                assert!(said.contains(&name), "{said}");
            }
        }
        let version_1 = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup/cpu"].map(group);
        let version_1: Vec<_> = version_1.into_iter().flatten().collect();
        if version_1.is_empty() {
            return testkit::lacks("a controller", "no control groups of version 1");
        }
        let procs: Vec<_> = version_1
            .iter()
            .map(|group| File::options().write(true).open(group.join("cgroup.procs")))
            .map(|file| OwnedFd::from(file.unwrap()))
            .collect();
        let procs: Vec<_> = procs.iter().map(AsFd::as_fd).collect();
        let nobody = User::look_up("nobody").unwrap();
        let wish = Wish {
            user: Some(&nobody),
            birthplace: Birthplace::Join(&procs),
            ..PLAIN
        };
        let (said, _) = run("cat /proc/$$/cgroup", &wish);
        for group in &version_1 {
            fs::remove_dir(group).unwrap();
        }
        assert_eq!(said.matches(&name).count(), version_1.len(), "{said}");
    });
}

#[test]
fn users_are_looked_up_with_all_their_groups() {
    let root = User::look_up("root").unwrap();
    assert_eq!((root.uid, root.gid), (0, 0));
    assert!(root.groups.contains(&0));
    for name in ["no such user", "", "a\0b"] {
        assert!(User::look_up(name).is_err(), "{name:?}");
    }
    let own = User::this_process().unwrap();
    assert_eq!(own.uid, process::user_id());
    assert!(own.groups.contains(&own.gid));
    let directory = TempDir::new();
    let chowned = directory.write("chowned", "");
    if process::is_root() {
        chown(&chowned, Some(1), Some(2)).unwrap();
        let facts = file::facts(File::open(&chowned).unwrap().as_fd()).unwrap();
        assert_eq!((facts.uid, facts.gid), (1, 2));
    }
}
