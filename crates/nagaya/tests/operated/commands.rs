//! The subcommands beside `serve`: what they print and how they exit.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use testkit::temp::TempDir;

fn nagaya(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_nagaya"))
        .args(arguments)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

const GOOD: &str = "[[listen]]\naddress = \"127.0.0.1:80\"\n[[sites]]\nhosts = [\"*\"]\n\
                    rules = [{ handler = { respond = { body = \"x\" } } }]\n";

#[test]
fn check_exits_by_what_it_found() {
    let directory = TempDir::new();
    let good = directory.write("good.toml", GOOD);
    let bad = directory.write("bad.toml", "wrokers = 1\n[[listen]]\naddress = 7\n");
    let run = |file: &std::path::Path, more: &[&str]| {
        let mut arguments = vec!["check", "-c", file.to_str().unwrap()];
        arguments.extend(more);
        nagaya(&arguments)
    };
    let fine = run(&good, &[]);
    assert_eq!(fine.status.code(), Some(0));
    assert!(text(&fine.stdout).contains("fine (1 site, 1 listener)"));
    let wrong = run(&bad, &[]);
    assert_eq!(wrong.status.code(), Some(2));
    let said = text(&wrong.stderr);
    assert!(
        said.contains("bad.toml:1:1") && said.contains("bad.toml:3:"),
        "{said}"
    );
    assert_eq!(
        run(&directory.path().join("absent.toml"), &[])
            .status
            .code(),
        Some(2)
    );
    assert_eq!(nagaya(&["check", "--nonsense"]).status.code(), Some(2));
    let stray = nagaya(&["check", good.to_str().unwrap()]);
    let tip = format!(
        "tip: a configuration file is named by `-c {}`",
        good.display()
    );
    assert!(text(&stray.stderr).contains(&tip), "{stray:?}");
    assert_eq!(stray.status.code(), Some(2));
    assert_eq!(nagaya(&["chekc"]).status.code(), Some(2));
    // Where the result cannot be written, the check has failed.
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_nagaya"));
    command
        .args(["check", "-c", good.to_str().unwrap()])
        .stdout(full);
    assert_eq!(command.output().unwrap().status.code(), Some(1));
}

#[test]
fn what_check_dumps_is_a_configuration_that_says_the_same() {
    let directory = TempDir::new();
    let good = directory.write("good.toml", GOOD);
    let dumped = nagaya(&["check", "--dump", "-c", good.to_str().unwrap()]);
    assert_eq!(dumped.status.code(), Some(0));
    let again = directory.write("again.toml", &dumped.stdout);
    let dumped_again = nagaya(&["check", "--dump", "-c", again.to_str().unwrap()]);
    assert_eq!(
        text(&dumped_again.stdout),
        text(&dumped.stdout),
        "{}",
        text(&dumped_again.stderr)
    );
}

#[test]
fn status_says_what_is_missing() {
    let directory = TempDir::new();
    let without = directory.write("without.toml", GOOD);
    let asked = nagaya(&["status", "-c", without.to_str().unwrap()]);
    assert_eq!(asked.status.code(), Some(2));
    assert!(text(&asked.stderr).contains("[control]\n    socket = \"/run/nagaya.sock\""));
    let socket = directory.path().join("socket");
    let asked = nagaya(&["status", "--socket", socket.to_str().unwrap()]);
    assert_eq!(asked.status.code(), Some(1));
    let said = text(&asked.stderr);
    assert!(
        said.contains(": no such file or directory\n  it does not run"),
        "{said}"
    );
}

#[test]
fn status_prints_the_answer_to_its_question() {
    use std::io::{BufRead, BufReader, Write};
    for (options, question) in [(vec![], "status\n"), (vec!["--json"], "status json\n")] {
        let directory = TempDir::new();
        let path = directory.path().join("socket");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut line = String::new();
                BufReader::new(&stream).read_line(&mut line).unwrap();
                stream
                    .write_all(format!("you asked: {line}").as_bytes())
                    .unwrap();
            });
            let mut arguments = vec!["status", "--socket", path.to_str().unwrap()];
            arguments.extend(&options);
            let asked = nagaya(&arguments);
            assert_eq!(text(&asked.stdout), format!("you asked: {question}"));
            assert_eq!(asked.status.code(), Some(0));
        });
    }
}

#[test]
fn completions_and_man_page_come_from_the_same_definitions() {
    for shell in ["bash", "zsh", "fish"] {
        let script = nagaya(&["completions", shell]);
        assert_eq!(script.status.code(), Some(0));
        let script = text(&script.stdout);
        for command in ["status", "bench"] {
            assert!(script.contains(command), "{shell}: {command}");
        }
        assert!(
            !script.contains("nagaya__server") && !script.contains("never by hand"),
            "{shell}"
        );
    }
    let said = text(&nagaya(&["sreve"]).stderr);
    assert!(
        said.contains("'serve'") && !said.contains("'server'"),
        "{said}"
    );
    let page = text(&nagaya(&["man"]).stdout);
    for part in [
        ".TH nagaya 1",
        "\\fBnagaya check\\fR [\\fB\\-\\-dump\\fR]",
        "\\fBnagaya completions\\fR \\fISHELL\\fR",
        "\\fBnagaya bench\\fR [\\fIOPTIONS\\fR]",
        "\n.nf\nSignals",
        "\n  USR1 ",
    ] {
        assert!(page.contains(part), "{part} is missing in:\n{page}");
    }
    assert!(!page.contains("(1)"), "no other page is installed:\n{page}");
}

#[test]
fn commands_that_measure_read_no_configuration() {
    for (words, helped) in [
        (&["bench", "--help"][..], "-c <connections>"),
        (&["bench", "-h"], "-c <connections>"),
    ] {
        let asked = nagaya(words);
        let help = text(&asked.stdout);
        assert_eq!(asked.status.code(), Some(0), "{words:?}");
        assert!(
            help.contains(helped) && !help.contains("--config"),
            "{help}"
        );
    }
    for (words, tip) in [
        (
            &["-c", "nagaya.toml", "bench", "x"][..],
            "write `nagaya bench x`",
        ),
        (
            &["lab", "run", "--blocks", "2"],
            "cargo run --release -p lab",
        ),
    ] {
        let asked = nagaya(words);
        assert_eq!(asked.status.code(), Some(2), "{words:?}");
        assert!(text(&asked.stderr).contains(tip), "{asked:?}");
    }
    let said = text(&nagaya(&["bnech"]).stderr);
    assert!(said.contains("'bench'"), "{said}");
}

/// Somebody without privileges.
const NOBODY: u32 = 65_534;

/// `line` and `rules` of a site with a root, checked by somebody who is not root: the exit status
/// and what was said.
fn checked_without_privileges(line: &str, rules: &str) -> (Option<i32>, String) {
    let directory = TempDir::new();
    let site = format!("[[sites]]\nhosts = [\"a.jp\"]\nroot = \".\"\n{line}\n{rules}");
    let file = format!("[[listen]]\naddress = \"127.0.0.1:8080\"\n{site}");
    let file = directory.write("nagaya.toml", file);
    let run = |program: &Path| {
        let mut command = Command::new(program);
        command.args(["check", "-c", file.to_str().unwrap()]);
        if rustix::process::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.output()
    };
    let built = Path::new(env!("CARGO_BIN_EXE_nagaya"));
    let said = run(built).or_else(|_| {
        // Nobody else may enter the directory it was built in.
        let own = directory.path().join("nagaya");
        assert!(Command::new("cp").arg(built).arg(&own).status()?.success());
        run(&own)
    });
    let said = said.unwrap();
    (said.status.code(), text(&said.stdout) + &text(&said.stderr))
}

#[test]
fn check_says_without_privileges_what_only_root_can_serve() {
    let cgi = "[[sites.rules]]\nhandler = { cgi = true }\n";
    let cannot = "its programs cannot run as daemon";
    let remedy = "start as root, or take `user` out of the site";
    let none = "programs cannot run as user `no-such-user`";
    for (line, expected_status, expected) in [
        ("user = \"daemon\"", 0, vec![cannot, remedy]),
        ("user = \"no-such-user\"", 2, vec![none]),
        ("", 0, vec![]),
    ] {
        let (status, said) = checked_without_privileges(line, cgi);
        assert_eq!(status, Some(expected_status), "{said}");
        assert!(expected.iter().all(|part| said.contains(part)), "{said}");
        assert_eq!(said.contains("warning"), line.contains("daemon"), "{said}");
    }
}

#[test]
fn check_tells_of_all_files_of_maps_that_cannot_be_read() {
    let maps = "[maps.gone]\nfile = \"gone.txt\"\n[maps.directory]\nfile = \".\"\n";
    let (status, said) = checked_without_privileges("", maps);
    assert_eq!(status, Some(2), "{said}");
    for expected in [
        "gone.txt`: no such file or directory",
        "`: a directory, not a file",
        "nagaya.toml:8:8",
        "nagaya.toml:10:8",
        "2 problems",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

#[test]
fn check_warns_of_programs_of_maps_that_cannot_be_started() {
    let maps = "[maps.relative]\nprogram = [\"nope.pl\"]\n\
                [maps.absolute]\nprogram = [\"/nonexistent/nope.pl\"]\n\
                [maps.plain]\nprogram = [\"./nagaya.toml\"]\n\
                [maps.fine]\nprogram = [\"sh\"]\n";
    let (status, said) = checked_without_privileges("", maps);
    assert_eq!(status, Some(0), "{said}");
    for expected in [
        "map relative: no program `nope.pl` in /usr/local/bin",
        "map absolute: program /nonexistent/nope.pl: no such file",
        "nagaya.toml: it is not executable: chmod +x ",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    assert!(!said.contains("map fine"), "{said}");
}

#[test]
fn where_there_is_no_configuration_both_places_are_named() {
    if Path::new("/etc/nagaya/nagaya.toml").exists() {
        return testkit::lacks("a machine without a gateway", "it is configured");
    }
    let directory = TempDir::new();
    for word in ["status", "check"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nagaya"));
        let asked = command.arg(word).current_dir(directory.path()).output();
        let asked = asked.unwrap();
        assert_eq!(asked.status.code(), Some(2), "{word}");
        let said = text(&asked.stderr);
        let both = "neither nagaya.toml nor /etc/nagaya/nagaya.toml is there";
        assert!(said.contains(both), "{word}: {said}");
    }
}

#[test]
fn check_tells_of_sockets_that_are_none() {
    let absent = "socket /nonexistent/php.sock: no such file";
    for (socket, expected) in [
        ("/nonexistent/php.sock", absent),
        ("/dev/null", "socket /dev/null: no socket"),
    ] {
        let rule = format!("[[sites.rules]]\nhandler = {{ fastcgi = \"unix:{socket}\" }}\n");
        let (status, said) = checked_without_privileges("", &rule);
        assert_eq!(status, Some(0), "{said}");
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn check_warns_of_what_pools_are_to_see_and_start_in_that_is_not_there() {
    let pools = "handler = { app = { command = [\"/bin/true\"], directory = \"app\" } }\n\
                 [pools]\nsee = [\"/usr\", \"/nonexistent/shared\"]\n";
    let (status, said) = checked_without_privileges("", &format!("[[sites.rules]]\n{pools}"));
    assert_eq!(status, Some(0), "{said}");
    for expected in [
        "warning: pools cannot see `/nonexistent/shared`: no such file",
        "nagaya.toml:10:16",
        "warning: no application can start in `",
        "/app`: no such file",
        "nagaya.toml:8:58",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    assert!(!said.contains("`/usr`"), "{said}");
}

#[test]
fn check_warns_of_a_root_that_no_request_can_open() {
    use std::os::unix::fs::{chown, symlink};
    let directory = TempDir::new();
    let at = |name: &str| directory.path().join(name);
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    };
    for name in ["app/releases/7", "app/.hidden", "outside", "home/www"] {
        std::fs::create_dir_all(at(name)).unwrap();
    }
    symlink(at("app/releases/7"), at("app/current")).unwrap();
    symlink(at("outside"), at("app/out")).unwrap();
    symlink(".hidden", at("app/hides")).unwrap();
    if rustix::process::geteuid().is_root() {
        chown(at("home"), Some(12_345), Some(12_345)).unwrap();
    }
    let check = |root: &str, more: &str| {
        let site = format!("[[sites]]\nhosts = [\"a.jp\"]\nroot = \"{root}\"\n{more}\n");
        let text_of = format!("[[listen]]\naddress = \"127.0.0.1:8080\"\n{site}");
        let file = directory.write("nagaya.toml", text_of);
        let checked = nagaya(&["check", "-c", file.to_str().unwrap()]);
        assert_eq!(checked.status.code(), Some(0), "{checked:?}");
        text(&checked.stderr)
    };
    let within = "within = \"app\"";
    for fine in ["app/current", "app/releases/7"] {
        assert_eq!(check(fine, within), "", "{fine}");
    }
    for (root, more, expected) in [
        ("app/out", within, "it is a link to a place outside of "),
        (
            "app/current",
            "within = \"app\"\nsymlinks = \"deny\"",
            "try `symlinks = \"allow\"`",
        ),
        ("app/hides", within, "begins with a dot"),
    ] {
        let said = check(root, more);
        let place = at(root).display().to_string();
        let whole = format!("warning: site a.jp: no request can open {place}: ");
        assert!(said.contains(&whole) && said.contains(expected), "{said}");
        assert!(said.contains("nagaya.toml:5:8"), "{said}");
    }
    let said = check("app", "within = \"/\"");
    assert!(
        said.contains("nagaya.toml:6:10") && said.contains("every file of the machine"),
        "{said}"
    );

    // Closed to the server, which is another user where this one is root.
    assert_eq!(check("home/www", ""), "");
    mode(&at("home"), 0o600);
    let said = check("home/www", "");
    mode(&at("home"), 0o700);
    let home = at("home").display().to_string();
    assert!(
        said.contains(&format!("may not enter {home}: try chgrp ")),
        "{said}"
    );
    assert!(
        said.contains(&format!("&& chmod 750 {home}")) && !said.contains("o+x"),
        "{said}"
    );
}
