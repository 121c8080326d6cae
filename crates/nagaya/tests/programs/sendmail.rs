//! `nagaya sendmail`: what a server is told, and what whoever sends is told.

use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use testkit::{PATIENCE, TempDir, eventually, free_port};

use crate::fixtures::limited;
use crate::fixtures::pools::{Wish, bed};
use crate::fixtures::smtp::{MailServer, SILENCE, Script};

const USUAL: Script = |_| None;

fn sendmail(server: &str, words: &[&str], message: &[u8]) -> Output {
    let mut sending = Command::new(env!("CARGO_BIN_EXE_nagaya"))
        .args(["sendmail", "--server", server])
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = sending.stdin.take().unwrap();
    // Where it refuses early it does not read all.
    let _ = input.write_all(message);
    drop(input);
    sending.wait_with_output().unwrap()
}

/// Sends, and tells the exit status and the one line that is said.
fn sent(server: &MailServer, words: &[&str], message: &str) -> (i32, String) {
    told(&sendmail(
        &server.address.to_string(),
        words,
        message.as_bytes(),
    ))
}

fn told(output: &Output) -> (i32, String) {
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    (output.status.code().unwrap(), said)
}

#[test]
fn a_message_is_handed_over_whole() {
    let server = MailServer::start(USUAL);
    let message = "To: \"J, D\" <a@b.test>, root\nBcc: c@d.test\nSubject: x\nX-Nagaya-Site: forged\nFrom: x@y\nDate: z\nMessage-ID: 1\n\nhello é\n.\n..two\nend";
    let words = [
        "-t",
        "-i",
        "-fme@here.test",
        "--pool=p-1",
        "--tenant=t",
        "--sites=s.test=",
    ];
    let (code, said) = sent(&server, &words, message);
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains(" from <me@here.test> to <a@b.test> and 2 more, "),
        "{said}"
    );
    assert!(
        said.ends_with(": accepted: 250 2.0.0 queued as 4711\n"),
        "{said}"
    );
    let heard = server.heard();
    let domain = heard[0].strip_prefix("EHLO ").unwrap();
    let bytes = message.len();
    let expected = [
        format!("MAIL FROM:<me@here.test> BODY=8BITMIME SIZE={bytes}"),
        "RCPT TO:<a@b.test>".into(),
        format!("RCPT TO:<root@{domain}>"),
        "RCPT TO:<c@d.test>".into(),
        "DATA".into(),
        "X-Nagaya-Tenant: t\r\nX-Nagaya-Site: s.test\r\nX-Nagaya-Pool: p-1\r\nTo: \"J, D\" <a@b.test>, root\r\nSubject: x\r\nFrom: x@y\r\nDate: z\r\nMessage-ID: 1\r\n\r\nhello é\r\n..\r\n...two\r\nend\r\n.\r\n".into(),
        "QUIT".into(),
    ];
    assert_eq!(heard[1..], expected);
}

#[test]
fn the_words_of_a_page_count_after_those_of_its_pool() {
    let server = MailServer::start(USUAL);
    let elsewhere = MailServer::start(USUAL);
    let words = [
        "-t",
        "-i",
        "--tenant=t",
        "--sites=s.test=/",
        "--pool=p",
        "-fa@b.test",
        "-oi",
        "-t",
        "--tenant=forged",
        "--sites=forged=/",
        "--pool=forged",
        "--server",
        &elsewhere.address.to_string(),
        "-rc@d.test",
    ];
    let (code, said) = sent(&server, &words, "To: a@b.test\n\n");
    assert_eq!(code, 0, "{said}");
    assert!(elsewhere.heard().is_empty());
    assert!(server.heard()[1].starts_with("MAIL FROM:<c@d.test>"));
    let message = server.messages().remove(0);
    assert!(
        message.starts_with("X-Nagaya-Tenant: t\r\nX-Nagaya-Site: s.test\r\nX-Nagaya-Pool: p\r\n"),
        "{message}"
    );
    assert!(!message.contains("forged"), "{message}");
}

#[test]
fn the_site_is_the_one_whose_page_sends() {
    let sites = TempDir::new();
    let root = |name: &str| sites.path().join(name);
    for name in ["a", "a/b", "c"] {
        std::fs::create_dir_all(root(name)).unwrap();
    }
    for (directory, site) in [("a", Some("a.test")), ("a/b", Some("b.test")), ("c", None)] {
        let server = MailServer::start(USUAL);
        let output = Command::new(env!("CARGO_BIN_EXE_nagaya"))
            .current_dir(root(directory))
            .args([
                "sendmail",
                "--server",
                &server.address.to_string(),
                "a@b.test",
            ])
            .arg(format!(
                "--sites=a.test={},b.test={}",
                root("a").display(),
                root("a/b").display()
            ))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let message = server.messages().remove(0);
        let stamp = message
            .lines()
            .find_map(|it| it.strip_prefix("X-Nagaya-Site: "));
        assert_eq!(stamp, site, "{directory}");
    }
}

#[test]
fn refusals_are_told_with_the_servers_words() {
    let scripts: [(Script, i32, &str); 8] = [
        (
            |it| (it == "greeting").then_some("554 go away"),
            69,
            "says to greeting: 554 go away",
        ),
        (
            |it| (it == "greeting").then_some("SSH-2.0-x"),
            76,
            "no SMTP: SSH-2.0-x",
        ),
        (
            |it| it.starts_with("MAIL").then_some("451 later"),
            69,
            "says to MAIL: 451 later",
        ),
        (
            |it| it.starts_with("RCPT").then_some("550 who?"),
            67,
            "not sent: a@b.test: 550 who?",
        ),
        (
            |it| it.starts_with("RCPT").then_some("450 grey"),
            69,
            "not sent: a@b.test: 450 grey",
        ),
        (
            |it| (it == "DATA").then_some("554 no"),
            69,
            "says to DATA: 554 no",
        ),
        (
            |it| (it == ".").then_some("552-too\r\n552 large"),
            69,
            "says to the message: 552 too large",
        ),
        (
            |it| it.starts_with("RCPT TO:<c@").then_some("550 \x1b[1mwho"),
            67,
            "accepted for 1 recipients: 250 2.0.0 queued as 4711; not for 1, the first c@d.test: 550 \\u{1b}[1mwho",
        ),
    ];
    for (script, status, words) in scripts {
        let server = MailServer::start(script);
        let (code, said) = sent(&server, &["-t"], "To: a@b.test, c@d.test\n\nx\n");
        assert!(
            code == status && said.contains(words),
            "{words}: {code}, {said}"
        );
    }
}

#[test]
fn an_old_server_is_spoken_to_as_well() {
    let server = MailServer::start(|it| it.starts_with("EHLO").then_some("502 what?"));
    let (code, said) = sent(&server, &["a@b.test", "-f", ""], "\né\n");
    assert_eq!(code, 0, "{said}");
    assert_eq!(server.heard()[2], "MAIL FROM:<>");
}

#[test]
fn a_server_that_is_silent_or_never_ends_is_left() {
    let scripts: [(Script, &str); 4] = [
        (|it| (it == "greeting").then_some(SILENCE), "greeting: "),
        (|it| it.starts_with("RCPT").then_some(SILENCE), "RCPT: "),
        (|it| (it == ".").then_some(SILENCE), "the message: "),
        (|it| (it == "DATA").then_some("354-more"), "DATA: "),
    ];
    for (script, what) in scripts {
        let server = MailServer::start(script);
        let begun = Instant::now();
        let (code, said) = sent(&server, &["a@b.test", "--patience", "1"], "\nx\n");
        assert_eq!(code, 69, "{said}");
        let whole = format!("not sent: {what}{}: no answer in time\n", server.address);
        assert!(said.ends_with(&whole), "{said}");
        assert!(begun.elapsed() >= Duration::from_secs(1));
    }
    let nobody = format!("127.0.0.1:{}", free_port());
    let (code, said) = told(&sendmail(&nobody, &["a@b.test"], b"\nx\n"));
    assert!(code == 69 && said.contains("connection refused"), "{said}");
}

#[test]
fn what_cannot_be_sent_reaches_no_server() {
    let server = MailServer::start(USUAL);
    for (words, message, status, why) in [
        (&["-t"][..], "Subject: x\n\n", 64, "it is for nobody"),
        (&["-t"], "To: a@b.test> SIZE=1 <\n\n", 65, "is no address"),
        (
            &["-t", "-fa@b.test\r\nDATA"],
            "To: a@b.test\n\n",
            65,
            "is no address",
        ),
        (&["a@b\nDATA"], "\n", 65, "is no address"),
    ] {
        let (code, said) = sent(&server, words, message);
        assert!(code == status && said.contains(why), "{code}, {said}");
    }
    let output = sendmail(&server.address.to_string(), &["-t", "-bs"], b"");
    assert_eq!(output.status.code(), Some(64));
    let many: String = (0..1_001)
        .map(|at| format!("To: a{at}@b.test\n"))
        .take(900)
        .collect();
    let more = "Cc: ".to_owned()
        + &(0..200)
            .map(|at| format!("c{at}@b.test,"))
            .collect::<String>();
    let (code, said) = sent(&server, &["-t"], &format!("{many}{more}\n\n"));
    assert!(
        code == 65 && said.contains("more than 1000 recipients"),
        "{said}"
    );
    let output = sendmail(
        &server.address.to_string(),
        &["a@b.test"],
        &vec![b'\n'; (32 << 20) + 1],
    );
    let (code, said) = told(&output);
    assert!(code == 65 && said.contains("more than 32 MiB"), "{said}");
    assert!(server.heard().is_empty(), "{:?}", server.heard());
}

#[test]
fn many_recipients_come_in_parts() {
    let server = MailServer::start(USUAL);
    let all: Vec<String> = (0..250).map(|at| format!("a{at}@b.test")).collect();
    let (code, said) = sent(
        &server,
        &["-t"],
        &format!("Bcc: {}\n\nx\n", all.join(",\n ")),
    );
    assert_eq!(code, 0, "{said}");
    let messages = server.messages();
    assert_eq!(messages.len(), 3);
    assert!(
        messages
            .iter()
            .all(|it| it == &messages[0] && !it.contains("a7@"))
    );
    let heard = server.heard();
    let named = heard
        .iter()
        .filter_map(|it| it.strip_prefix("RCPT TO:<")?.strip_suffix('>'));
    assert_eq!(named.collect::<Vec<_>>(), all);
}

#[test]
fn mail_of_a_pool_arrives_with_its_stamp() {
    let server = MailServer::start(|it| it.contains("nobody@").then_some("451 later"));
    let page = "<?php $to = $_GET['to'] . '@there.test'; \
                $sent = mail($to, 'hello', \".\\nx\", ['X-Nagaya-Site' => 'forged', 'Bcc' => 'c@d.test'], '-fpage@app.test --sites=forged=/'); \
                echo $sent ? 'sent' : 'not sent';";
    let files = [("app/index.php", page)];
    let pools = format!("mail = \"{}\"", server.address);
    let wish = Wish {
        pools: &pools,
        files: &files,
        ..Wish::default()
    };
    let Some(bed) = bed(&wish) else { return };
    assert_eq!(bed.get("/?to=a").text(), "sent", "{}", bed.gateway.stderr());
    let message = server.messages().remove(0);
    for line in [
        "X-Nagaya-Site: app.test",
        "To: a@there.test",
        "Subject: hello",
        "..",
        "x",
    ] {
        assert!(
            message.split("\r\n").any(|it| it == line),
            "{line}: {message}"
        );
    }
    assert!(
        !message.contains("forged") && !message.contains("Bcc"),
        "{message}"
    );
    let heard = server.heard();
    assert!(
        heard[1].starts_with("MAIL FROM:<page@app.test> SIZE="),
        "{heard:?}"
    );
    assert_eq!(
        heard[2..4],
        ["RCPT TO:<a@there.test>", "RCPT TO:<c@d.test>"]
    );
    let is_logged = |words: &str| {
        let log = bed.gateway.stderr();
        let is_it = |line: &&str| line.contains("nagaya sendmail: mail of app.test in ");
        log.lines()
            .filter(is_it)
            .any(|it| it.contains(words))
            .then_some(())
    };
    eventually(PATIENCE, "what became of it in the log", || {
        is_logged("queued as 4711")
    });
    // What is refused for now is not taken for sent.
    assert_eq!(bed.get("/?to=nobody&c").text(), "not sent");
    eventually(PATIENCE, "why not in the log", || {
        is_logged("nobody@there.test: 451 later")
    });
    // It is counted for the pool it comes from.
    eventually(PATIENCE, "the counts", || {
        let pools = limited::ask(&bed.gateway, "pools json");
        let status = limited::ask(&bed.gateway, "status json");
        let counts = r#""mails":1,"mails_unsent":1"#;
        [pools, status]
            .iter()
            .all(|it| it.matches(counts).count() == 1)
            .then_some(())
    });
}

/// A mail server as Debian has it; ended when dropped.
struct Mailer {
    process: std::process::Child,
    port: u16,
    mailboxes: TempDir,
}

impl Mailer {
    fn start(name: &str) -> Mailer {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/mailer.sh");
        let (port, mailboxes) = (free_port(), TempDir::new());
        let process = Command::new(script)
            .args([name, &port.to_string()])
            .arg(mailboxes.path())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut mailer = Mailer {
            process,
            port,
            mailboxes,
        };
        eventually(PATIENCE * 5, name, || {
            assert!(mailer.process.try_wait().unwrap().is_none(), "{name} ended");
            std::net::TcpStream::connect(("127.0.0.1", port)).ok()
        });
        mailer
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// What a user has got, once something with these words is there.
    fn mail_of(&self, user: &str, words: &str) -> String {
        let mailbox = self.mailboxes.path().join(user);
        eventually(PATIENCE, "mail", || {
            let bytes = std::fs::read(&mailbox).ok()?;
            let text = String::from_utf8_lossy(&bytes).into_owned();
            text.contains(words).then_some(text)
        })
    }
}

impl Drop for Mailer {
    fn drop(&mut self) {
        // Nothing of it outlives this one.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
#[ignore = "installs mail servers of Debian, in memory: make soak"]
fn mail_of_a_pool_arrives_by_exim4_and_by_postfix() {
    if testkit::lacks_root("to run mail servers") {
        return;
    }
    let page = "<?php $to = $_GET['to'] . '@localhost'; \
                $sent = mail($to, 'hello', \"first\\n.\\né \" . str_repeat('long ', 400) . 'end', ['X-Nagaya-Site' => 'forged']); \
                echo $sent ? 'sent' : 'not sent';";
    for name in ["exim4", "postfix"] {
        let mailer = Mailer::start(name);
        let pools = format!("mail = \"{}\"", mailer.address());
        let files = [("app/index.php", page)];
        let wish = Wish {
            pools: &pools,
            files: &files,
            ..Wish::default()
        };
        let Some(bed) = bed(&wish) else { return };
        let said = bed.get("/?to=backup").text();
        assert_eq!(said, "sent", "{name}: {}", bed.gateway.stderr());
        let mail = mailer.mail_of("backup", "\nfirst\n.\né long ");
        for line in ["X-Nagaya-Site: app.test", "Subject: hello"] {
            assert!(mail.lines().any(|it| it == line), "{name}: {line}: {mail}");
        }
        assert!(mail.contains("To: backup@localhost"), "{name}: {mail}");
        assert!(!mail.contains("forged"), "{name}: {mail}");
        let said = bed.get("/?to=nobody-of-this-name").text();
        if name == "exim4" {
            // It takes what comes from this machine, and looks later whom it is for.
            assert_eq!(said, "sent");
            let back = mailer.mail_of("www-data", "nobody-of-this-name");
            assert!(back.contains("Subject: Mail delivery failed"), "{back}");
        } else {
            assert_eq!(said, "not sent");
            let refusal = "nobody-of-this-name@localhost: 550 ";
            bed.gateway.wait_for_message(refusal);
        }
        let (code, said) = told(&sendmail(
            &mailer.address(),
            &["-t", "-i", "-fsomebody@localhost"],
            b"To: www-data@localhost, backup@localhost\nCc: sys@localhost\n\nby hand\n",
        ));
        assert_eq!(code, 0, "{name}: {said}");
        for user in ["www-data", "backup", "sys"] {
            mailer.mail_of(user, "\nby hand\n");
        }
    }
}
