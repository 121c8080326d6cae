//! Called as `ab`, beside ApacheBench: the same command lines on the same server, both reports read
//! by one parser.
//!
//! Every line is compared with its numbers taken out, so labels, order, units and formats are; and
//! the values that do not depend on time are compared as they are.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use testkit::peer::find_program;
use testkit::{ScriptedUpstream, Seen, Step, TempDir, eventually};

/// Lines of a report whose values do not depend on time.
const STEADY: [&str; 13] = [
    "Server Software",
    "Server Hostname",
    "Document Path",
    "Document Length",
    "Concurrency Level",
    "Complete requests",
    "Failed requests",
    "   (Connect",
    "Non-2xx responses",
    "Keep-Alive requests",
    "Total transferred",
    "Total body sent",
    "HTML transferred",
];

/// Requests of a connection to `/five` before it is closed.
const FIVE: usize = 5;

/// ApacheBench, ours under its name, and a place for their files.
struct Both {
    theirs: PathBuf,
    ours: PathBuf,
    directory: TempDir,
}

/// One of the two, run.
struct Ran {
    status: Option<i32>,
    out: String,
    err: String,
    /// Its first request, its server's port replaced.
    sent: String,
    /// Its server's port.
    port: String,
}

impl Both {
    /// `None` where ApacheBench is not installed.
    fn find() -> Option<Both> {
        let theirs = find_program("ab")?;
        let directory = TempDir::new();
        directory.write("body", "a=1&b=2");
        let ours = directory.path().join("ab");
        symlink(env!("CARGO_BIN_EXE_nagaya"), &ours).unwrap();
        Some(Both {
            theirs,
            ours,
            directory,
        })
    }

    /// Both with the same words, each on a server of its own.
    fn run(&self, line: &str) -> (Ran, Ran) {
        (run(self, &self.theirs, line), run(self, &self.ours, line))
    }
}

/// Runs a line; `URL` stands for the server, `PROXY` for its address, `DIR` for the directory.
fn run(both: &Both, program: &PathBuf, line: &str) -> Ran {
    let server = ScriptedUpstream::start(script());
    let address = server.address().to_string();
    let mut command = command(both, program, line, &address);
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let port = server.address().port().to_string();
    let first = server.take_seen().into_iter().next();
    let sent = first.map(|seen| [seen.head.bytes, seen.body].concat());
    Ran {
        status: status.code(),
        out: String::from_utf8(stdout).unwrap(),
        err: String::from_utf8(stderr).unwrap(),
        sent: String::from_utf8(sent.unwrap_or_default())
            .unwrap()
            .replace(&port, "PORT"),
        port,
    }
}

fn command(both: &Both, program: &PathBuf, line: &str, address: &str) -> Command {
    let mut command = Command::new(program);
    let words = line.split("  ").filter(|word| !word.is_empty());
    let directory = both.directory.path().display().to_string();
    command.args(words.map(|word| {
        word.replace("URL", &format!("http://{address}"))
            .replace("PROXY", address)
            .replace("DIR", &directory)
    }));
    command.stdin(Stdio::null()).env_remove("NO_COLOR");
    command
}

/// A server of HTTP/1.0 that keeps connections where asked to.
fn script() -> impl Fn(&Seen) -> Vec<Step> + Send + Sync {
    let count = Arc::new(AtomicUsize::new(0));
    move |seen| {
        let number = count.fetch_add(1, Ordering::Relaxed);
        let (method, rest) = seen.head.line.split_once(' ').unwrap_or_default();
        let path = rest.split(' ').next().unwrap_or_default();
        let asked = seen.head.field("Connection").is_some();
        let keeps = asked && !(path.ends_with("/five") && seen.nth + 1 == FIVE);
        let status = if path.ends_with("/gone") { 404 } else { 200 };
        let body = match path.ends_with("/dynamic") {
            true => "x".repeat(10 + number % 3),
            false => "Hello, world!".to_owned(),
        };
        let mut reply = format!(
            "HTTP/1.1 {status} Scripted\r\nServer: Scripted/1 (test)\r\nContent-Length: {}\r\n\
             Connection: {}\r\n\r\n",
            body.len(),
            if keeps { "Keep-Alive" } else { "close" }
        );
        if method != "HEAD" {
            reply += &body;
        }
        let mut steps = vec![Step::ReadBody, Step::Send(reply.into_bytes())];
        if !keeps {
            steps.push(Step::Close);
        }
        steps
    }
}

/// The lines of a report as far as both must agree on them: without the three lines that say who
/// made it, what is said of doubtful times, and what is ours alone.
fn lines(ran: &Ran) -> Vec<&str> {
    let doubts = ["WARNING:", "ERROR:", "        These", "       deviation"];
    let banner = if ran.out.starts_with("<p>") { 4 } else { 3 };
    let lines = ran.out.lines().skip(banner);
    let mut lines: Vec<_> = lines
        .take_while(|line| !line.starts_with("Note: "))
        .filter(|line| !doubts.iter().any(|doubt| line.starts_with(doubt)))
        .collect();
    // The empty line before our notes.
    lines.pop_if(|line| line.is_empty());
    lines
}

/// A line with its numbers taken out, and in tables of times the blanks before them.
fn shape(line: &str) -> String {
    let mut shape = String::new();
    for letter in line.chars() {
        let goes_on = shape.ends_with('#');
        match letter {
            '0'..='9' | '.' if goes_on => {}
            '0'..='9' => shape.push('#'),
            _ => shape.push(letter),
        }
    }
    let times = ["Connect:", "Processing:", "Waiting:", "Total:", "<tr", " "];
    if times.iter().any(|start| line.starts_with(start)) {
        while shape.contains(" #") {
            shape = shape.replace(" #", "#");
        }
    }
    shape
}

/// Values that do not depend on time, by label.
fn steady(ran: &Ran) -> BTreeMap<&str, &str> {
    let found = lines(ran).into_iter().filter_map(|line| {
        let (label, value) = line.split_once(':')?;
        STEADY.contains(&label).then_some((label, value))
    });
    found.collect()
}

fn check(both: &Both, line: &str) -> (Ran, Ran) {
    let (theirs, ours) = both.run(line);
    assert_eq!(
        ours.status, theirs.status,
        "{line}: {}{}",
        ours.out, ours.err
    );
    let shapes = |ran: &Ran| lines(ran).into_iter().map(shape).collect::<Vec<_>>();
    let (expected, found) = (shapes(&theirs), shapes(&ours));
    assert_eq!(
        found, expected,
        "{line}:\n{}\nbut\n{}",
        theirs.out, ours.out
    );
    assert_eq!(steady(&ours), steady(&theirs), "{line}");
    assert_eq!(ours.sent, theirs.sent, "{line}");
    assert_eq!(ours.err, theirs.err, "{line}");
    for ran in [&theirs, &ours] {
        let port = format!("Server Port:            {}", ran.port);
        let proxied = line.contains("-X  ");
        assert!(
            proxied || ran.out.contains(&port) || ran.out.starts_with("<p>"),
            "{line}"
        );
    }
    (theirs, ours)
}

#[test]
fn reports_and_requests_are_apache_benchs() {
    let Some(both) = Both::find() else { return };
    for line in [
        "URL/index.html",
        "-n  20  -c  4  URL/index.html",
        "-n20  -c4  URL/index.html?a=b",
        "-n  200  -c  4  URL/index.html",
        "-n  1100  -c  2  -k  URL/index.html",
        "-q  -n  200  -c  4  URL/index.html",
        "-k  -n  40  -c  4  URL/index.html",
        "-k  -n  40  -c  1  URL/five",
        "-k  -n  41  -c  1  URL/five",
        "-i  -n  10  -c  2  URL/index.html",
        "-i  -k  -n  10  -c  2  URL/index.html",
        "-p  DIR/body  -T  application/json  -n  10  -c  2  URL/index.html",
        "-p  DIR/body  -k  -n  10  -c  2  URL/index.html",
        "-u  DIR/body  -n  5  URL/index.html",
        "-p  DIR/body  -m  PATCH  -n  5  URL/index.html",
        "-m  DELETE  -n  5  URL/index.html",
        "-l  -n  12  URL/dynamic",
        "-n  12  URL/dynamic",
        "-k  -n  12  URL/dynamic",
        "-n  10  -c  2  URL/gone",
        "-k  -n  10  -c  2  URL/gone",
        "-S  -n  10  URL/index.html",
        "-d  -n  10  URL/index.html",
        "-dSq  -n  10  URL/index.html",
        "-t  60  -n  10  URL/index.html",
        "-s  20  -b  8192  -n  10  URL/index.html",
        "-B  127.0.0.1  -n  2  URL/index.html",
        "-A  user:secret  -C  a=1  -C  b=2  -n  2  URL/index.html",
        "-H  Host: other.test  -H  User-Agent: me  -H  accept: text/html  -n  2  URL/index.html",
        "-X  PROXY  -P  p:q  -n  2  http://other.test/index.html",
        "-r  -n  5  URL/index.html",
    ] {
        check(&both, line);
    }
}

#[test]
fn tables_are_apache_benchs() {
    let Some(both) = Both::find() else { return };
    for line in [
        "-w  -n  10  -c  2  URL/index.html",
        "-w  -k  -n  10  -c  2  URL/gone",
        "-x  border=1  -y  class=r  -z  class=d  -p  DIR/body  -n  10  URL/index.html",
        "-w  -l  -q  -n  200  URL/dynamic",
        "-w  -n  12  URL/dynamic",
    ] {
        let (theirs, ours) = check(&both, line);
        // The same number of lines before the table, too.
        assert_eq!(
            ours.out.lines().count(),
            theirs.out.lines().count(),
            "{line}"
        );
    }
}

#[test]
fn files_are_apache_benchs() {
    let Some(both) = Both::find() else { return };
    let mut found = Vec::new();
    for program in [&both.theirs, &both.ours] {
        let line = "-n  20  -c  4  -e  DIR/by.csv  -g  DIR/each.tsv  URL/index.html";
        assert_eq!(run(&both, program, line).status, Some(0));
        let read = |name| std::fs::read_to_string(both.directory.path().join(name)).unwrap();
        let (by, each) = (read("by.csv"), read("each.tsv"));
        assert_eq!((by.lines().count(), each.lines().count()), (102, 21));
        let times = by
            .lines()
            .skip(1)
            .map(|line| line.split_once(',').unwrap().1);
        let times: Vec<f64> = times.map(|time| time.parse().unwrap()).collect();
        // ApacheBench reads beyond its times here, so that its last but one may be anything.
        assert!(program == &both.theirs || times.is_sorted(), "{by}");
        let totals = each
            .lines()
            .skip(1)
            .map(|line| line.split('\t').nth(4).unwrap());
        let totals: Vec<u64> = totals.map(|total| total.parse().unwrap()).collect();
        assert!(totals.is_sorted(), "{each}");
        let weekday = |line: &str| line.get(..3).map(str::to_owned);
        let shapes: Vec<_> = by.lines().chain(each.lines()).map(shape).collect();
        found.push((shapes, each.lines().nth(1).and_then(weekday)));
    }
    let (ours, theirs) = (found.pop().unwrap(), found.pop().unwrap());
    assert_eq!(ours.0, theirs.0);
}

#[test]
fn exit_statuses_are_apache_benchs() {
    let Some(both) = Both::find() else { return };
    let refused = format!("http://127.0.0.1:{}/", testkit::free_port());
    for (line, status) in [
        (&*format!("-n  5  -c  2  {refused}"), 111),
        ("-h", 22),
        ("-V", 0),
        ("", 22),
        ("-n  5", 22),
        ("-n", 22),
        ("URL", 22),
        ("URL/  URL/", 22),
        ("-c  5  -n  4  URL/", 22),
        ("-c  200001  -n  300000  URL/", 22),
        ("-n  0  URL/", 1),
        ("-i  -p  DIR/body  URL/", 1),
        ("-m  PUT  -p  DIR/body  URL/", 1),
        ("-p  DIR/absent  URL/", 1),
        ("-s  1  URL/stuck", 119),
    ] {
        // Only ever the first of these has nobody to listen.
        let (theirs, ours) = match line.ends_with("/stuck") {
            true => stuck(&both, line),
            false => both.run(line),
        };
        assert_eq!(theirs.status, Some(status), "{line}: {}", theirs.err);
        assert_eq!(ours.status, Some(status), "{line}: {}", ours.err);
        let silent = line == "-V";
        assert_eq!(ours.err.is_empty(), silent, "{line}: {}", ours.err);
        let begins = |ran: &Ran| ran.out.contains("(be patient)");
        assert_eq!(begins(&ours), begins(&theirs), "{line}");
    }
    // ApacheBench complains of an unknown flag and goes on without what follows it.
    assert_eq!(run(&both, &both.ours, "-Y  -n  5  URL/").status, Some(22));
}

/// Both on a server that never answers.
fn stuck(both: &Both, line: &str) -> (Ran, Ran) {
    let run = |program| {
        let server = ScriptedUpstream::start(|_| vec![Step::Idle(Duration::from_secs(60))]);
        let address = server.address().to_string();
        let output = command(both, program, line, &address).output().unwrap();
        Ran {
            status: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
            sent: String::new(),
            port: String::new(),
        }
    };
    (run(&both.theirs), run(&both.ours))
}

#[test]
fn an_interrupted_run_prints_its_report() {
    let Some(both) = Both::find() else { return };
    for program in [&both.theirs, &both.ours] {
        let server = ScriptedUpstream::start(|seen| match seen.connection {
            0..5 => vec![Step::reply(200, "x"), Step::Close],
            _ => vec![Step::Idle(Duration::from_secs(60))],
        });
        let address = server.address().to_string();
        let mut command = command(&both, program, "-n  100  URL/", &address);
        let child = command.stdout(Stdio::piped()).spawn().unwrap();
        eventually(Duration::from_secs(60), "a sixth request", || {
            let sent = server.received();
            sent.get(5)
                .is_some_and(|sent| sent.ends_with(b"\r\n\r\n"))
                .then_some(())
        });
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        let out = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(1), "{out}");
        assert!(out.contains("\nComplete requests:      5\n"), "{out}");
        assert!(
            !out.contains("..done") && out.contains("(longest request)"),
            "{out}"
        );
    }
}

#[test]
fn a_dynamic_page_and_a_refused_connection_are_explained() {
    let directory = TempDir::new();
    let both = Both {
        theirs: PathBuf::new(),
        ours: env!("CARGO_BIN_EXE_nagaya").into(),
        directory,
    };
    let dynamic = run(&both, &both.ours, "bench  -n  12  URL/dynamic");
    let (_, after) = dynamic.out.split_once("(longest request)\n").unwrap();
    assert!(
        after.contains("the 8 failed by Length") && after.contains("try -l"),
        "{after}"
    );
    let refused = format!("bench  -n  5  http://127.0.0.1:{}/", testkit::free_port());
    let refused = run(&both, &both.ours, &refused);
    assert!(
        refused.err.contains("refused") && refused.err.contains("(111)"),
        "{}",
        refused.err
    );
    let mixed = run(&both, &both.ours, "bench  -n  5  --rate  7  URL/");
    assert_eq!(mixed.status, Some(2));
    assert!(
        mixed.err.contains("--requests instead of -n"),
        "{}",
        mixed.err
    );
}
