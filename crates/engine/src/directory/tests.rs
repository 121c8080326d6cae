//! Requests for hosts of rows, with a far end of the link that answers what a test says.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use ipc::console::Outgoing;
use ipc::directory::{DirectoryMessage, FromDirectory, Row, RowAnswer, RowFrom, ToDirectory};

use super::eyes;
use super::link::{self, DirectoryLink};
use crate::figures::hosts;
use crate::fixture::{Fixture, generation, generation_after, generation_with_files, reply};
use crate::linked_thread::LinkedThread;

/// A directory process that answers by host.
struct FarEnd {
    _asker: LinkedThread<DirectoryLink>,
    thread: Option<JoinHandle<()>>,
}

impl FarEnd {
    fn begin(
        fixture: &Fixture,
        answer: impl Fn(&str) -> Option<RowAnswer> + Send + 'static,
    ) -> Self {
        Self::of(fixture, &["d"], move |_, host| answer(host))
    }

    /// One that has these directories.
    fn of(
        fixture: &Fixture,
        names: &[&str],
        answer: impl Fn(u16, &str) -> Option<RowAnswer> + Send + 'static,
    ) -> Self {
        let asker = link::start(Arc::clone(&fixture.shared.rows)).expect("a thread");
        let (here, there) = os::fdpass::packet_pair().expect("a pair");
        asker.use_link(DirectoryLink {
            link: here,
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        });
        let thread = std::thread::spawn(move || answer_all(&there, answer));
        Self {
            _asker: asker,
            thread: Some(thread),
        }
    }
}

fn answer_all(link: &OwnedFd, answer: impl Fn(u16, &str) -> Option<RowAnswer>) {
    let mut outgoing = Outgoing::default();
    loop {
        let _ = os::net::wait_readable(&[link.as_fd()], None);
        match ToDirectory::try_recv(link.as_fd()) {
            Ok(Some(ToDirectory::Ask {
                directory,
                host,
                id,
            })) => {
                let Some(answer) = answer(directory, &host) else {
                    continue;
                };
                let said = FromDirectory::Answer {
                    id,
                    directory,
                    host,
                    answer,
                    age_ms: 0,
                };
                assert!(said.put(&mut outgoing).expect("it is bounded"));
                outgoing.send(link.as_fd()).expect("room");
            }
            Ok(_) => {}
            Err(_) => return,
        }
    }
}

impl Drop for FarEnd {
    fn drop(&mut self) {
        // It ends with the link, which the asker has: that is dropped after this.
        drop(self.thread.take());
    }
}

fn row(columns: &[(&str, &str)]) -> RowAnswer {
    let columns = columns
        .iter()
        .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
    RowAnswer::Row(Row {
        seal: 1,
        columns: columns.collect(),
        uid: Some(4_321),
        from: RowFrom::Source,
    })
}

const HEAD: &str = r#"
[directories.d]
source = "sqlite:/tmp/rows.db"
query = "SELECT * FROM t WHERE host = $host"
wait = "150ms"
[log]
format = "vhost_combined"
[plans.small]
limits = [{ key = "tenant", rate = "2/d" }]
[[sites]]
hosts = ["own.jp"]
tenant = "own"
rules = [{ handler = { respond = { body = "own" } } }]
"#;

const ROWS: &str = r#"
[[sites]]
hosts = { directory = "d" }
tenant = "$row.tenant"
plan = "$row.plan"
  [[sites.rules]]
  match = { path = "/up", row = "upstream" }
  handler = { proxy = "$row.upstream", allow = ["0.0.0.0/0"] }
  [[sites.rules]]
  match = { path = "/to" }
  handler = { redirect = "/x/${row.note}" }
  [[sites.rules]]
  handler = { respond = { body = "$row.tenant of $host: ${row.note}" } }
  reply_headers = { set = { X-Note = "$row.note." } }
"#;

fn ask(fixture: &Fixture, host: &str, path: &str) -> (u16, Vec<String>, String) {
    reply(&fixture.ask(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")))
}

#[test]
fn a_host_with_a_row_has_a_site_and_exact_names_come_first() {
    let fixture = Fixture::of(generation(1, &format!("{HEAD}{ROWS}")));
    let _far = FarEnd::begin(&fixture, |host| {
        Some(match host {
            "a.jp" => row(&[("tenant", "ann"), ("note", "<b>'\r\nX: y")]),
            "own.jp" => row(&[("tenant", "thief")]),
            _ => RowAnswer::Missing,
        })
    });
    let (status, fields, body) = ask(&fixture, "a.jp", "/");
    assert_eq!(
        (status, &*body),
        (200, "ann of a.jp: %3Cb%3E%27%0D%0AX:%20y")
    );
    assert!(
        fields.iter().any(|it| it == "X-Note: <b>'X: y."),
        "{fields:?}"
    );
    let (status, fields, _) = ask(&fixture, "a.jp", "/to");
    assert_eq!(status, 302);
    let location = fields.iter().find(|it| it.starts_with("Location:"));
    assert_eq!(
        location.map(|it| &**it),
        Some("Location: /x/%3Cb%3E'%0D%0AX:%20y")
    );
    assert_eq!(ask(&fixture, "own.jp", "/").2, "own");
    assert_eq!(ask(&fixture, "none.jp", "/").0, 421);
    let records = fixture.records();
    assert!(records.starts_with("a.jp"), "{records}");
}

#[test]
fn a_row_that_reaches_for_more_than_its_own_is_out_alone() {
    let fixture = Fixture::of(generation(1, &format!("{HEAD}{ROWS}")));
    let _far = FarEnd::begin(&fixture, |host| {
        Some(match host {
            "good.jp" => row(&[("tenant", "good")]),
            "own-tenant.jp" => row(&[("tenant", "own")]),
            "no-tenant.jp" => row(&[("note", "x")]),
            "odd-tenant.jp" => row(&[("tenant", "a/b")]),
            "plan.jp" => row(&[("tenant", "t"), ("plan", "large")]),
            "redirect.jp" => row(&[("tenant", "t"), ("redirect", "a/../b")]),
            "wrong.jp" => RowAnswer::Wrong("two rows".into()),
            host => row(&[("tenant", "t"), ("upstream", host)]),
        })
    });
    for host in [
        "own-tenant.jp",
        "no-tenant.jp",
        "odd-tenant.jp",
        "plan.jp",
        "redirect.jp",
        "wrong.jp",
    ] {
        assert_eq!(ask(&fixture, host, "/").0, 503, "{host}");
    }
    assert_eq!(ask(&fixture, "good.jp", "/").0, 200);
}

#[test]
fn no_row_leads_to_this_machine_its_sockets_or_an_upstream_of_the_configuration() {
    let fixture = Fixture::of(generation(1, &format!("{HEAD}{ROWS}")));
    let _far = FarEnd::begin(&fixture, |host| {
        let upstream = match host {
            "loop.jp" => "127.0.0.1:9",
            "six.jp" => "[::1]:9",
            "mapped.jp" => "[::ffff:127.0.0.1]:9",
            "unix.jp" => "unix:/run/x.sock",
            "path.jp" => "192.0.2.1:80/x",
            "zero.jp" => "0.0.0.0:80",
            _ => "localhost:9",
        };
        Some(row(&[("tenant", "t"), ("upstream", upstream)]))
    });
    for host in [
        "loop.jp",
        "six.jp",
        "mapped.jp",
        "unix.jp",
        "path.jp",
        "zero.jp",
        "name.jp",
    ] {
        assert_eq!(ask(&fixture, host, "/up").0, 503, "{host}");
    }
}

#[test]
fn a_plan_counts_each_tenant_of_rows_apart() {
    let fixture = Fixture::of(generation(1, &format!("{HEAD}{ROWS}")));
    let _far = FarEnd::begin(&fixture, |host| {
        let tenant = host.split('-').next().unwrap_or_default();
        Some(row(&[("tenant", tenant), ("plan", "small")]))
    });
    let statuses = |hosts: &[&str]| -> Vec<u16> {
        hosts
            .iter()
            .map(|host| ask(&fixture, host, "/").0)
            .collect()
    };
    assert_eq!(statuses(&["a-1.jp", "a-2.jp", "a-1.jp"]), [200, 200, 503]);
    assert_eq!(statuses(&["b-1.jp", "b-1.jp", "b-2.jp"]), [200, 200, 503]);
}

#[test]
fn why_a_request_was_refused_says_whose_row_it_was() {
    let fixture = Fixture::of(generation(1, &format!("{HEAD}{ROWS}")));
    let _far = FarEnd::begin(&fixture, |host| {
        Some(match host {
            "a.jp" => row(&[("tenant", "ann"), ("plan", "small")]),
            _ => RowAnswer::Wrong("two\nrows".into()),
        })
    });
    let why = |host: &str| {
        let exchange = fixture.ask(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        let question = format!("why {}", exchange.request.id);
        crate::permits::questions::answer(&fixture.shared, &question).expect("an answer")
    };
    for host in ["a.jp", "a.jp"] {
        assert_eq!(ask(&fixture, host, "/").0, 200);
    }
    let said = why("a.jp");
    for line in [
        "directory   d\n",
        " ms old\n",
        "tenant      ann\n",
        "plan        small\n",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    let said = why("b.jp");
    for line in ["row         none that", "directory_wrong\n", "two\\nrows\n"] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert!(!said.contains("tenant "), "{said}");
}

#[test]
fn nobody_waits_longer_than_the_directory_says_and_known_names_serve_on() {
    let fixture = Fixture::of(generation(1, &format!("{HEAD}{ROWS}")));
    let far = FarEnd::begin(&fixture, |host| {
        (host == "a.jp").then(|| row(&[("tenant", "ann")]))
    });
    assert_eq!(ask(&fixture, "a.jp", "/").0, 200);
    let begun = std::time::Instant::now();
    let exchange = fixture.ask("GET / HTTP/1.1\r\nHost: new.jp\r\n\r\n");
    assert_eq!(
        (exchange.reply.status(), exchange.record.reason),
        (503, "directory_down")
    );
    assert!(begun.elapsed() < std::time::Duration::from_secs(5));
    drop(far);
    let serving = fixture.worker.serving();
    fixture.reload(generation_after(
        &serving.generation,
        &format!("{HEAD}{ROWS}"),
    ));
    assert_eq!(
        ask(&fixture, "a.jp", "/").0,
        200,
        "it is known after a reload"
    );
    assert_eq!(ask(&fixture, "new.jp", "/").0, 503);
}

#[test]
fn a_row_suspends_its_tenant_or_sends_its_visitors_elsewhere() {
    let fixture = Fixture::of(generation(1, &format!("{HEAD}{ROWS}")));
    let _far = FarEnd::begin(&fixture, |host| {
        Some(match host {
            "no.jp" => row(&[("tenant", "t"), ("suspended", "1")]),
            "old.jp" => row(&[("tenant", "t"), ("redirect", "new.jp")]),
            _ => row(&[("tenant", "t"), ("suspended", "0")]),
        })
    });
    let exchange = fixture.ask("GET / HTTP/1.1\r\nHost: no.jp\r\n\r\n");
    assert_eq!(
        (exchange.reply.status(), exchange.record.reason),
        (503, "tenant_suspended")
    );
    assert_eq!(ask(&fixture, "yes.jp", "/").0, 200);
    let (status, fields, _) = ask(&fixture, "old.jp", "/a%20b/../c?d=e");
    assert_eq!(status, 301);
    assert!(
        fields
            .iter()
            .any(|it| it == "Location: http://new.jp/c?d=e"),
        "{fields:?}"
    );
}

#[test]
fn files_of_a_row_must_be_its_users_and_a_column_is_one_name() {
    let directory = std::env::temp_dir().join(format!("nagaya-rows-{}", std::process::id()));
    for name in ["ann", "bob"] {
        std::fs::create_dir_all(directory.join(name)).expect("a directory");
        std::fs::write(directory.join(name).join("index.html"), name).expect("a file");
    }
    let own = os::process::user_id();
    let site = format!(
        "[[sites]]\nhosts = {{ directory = \"d\" }}\ntenant = \"$row.tenant\"\nuser = \"$row.user\"\n\
         root = \"{}/$row.user\"\n",
        directory.display()
    );
    let fixture = Fixture::of(generation(1, &format!("{HEAD}{site}")));
    let answer = |host: &str| {
        let (user, uid) = match host {
            "other.jp" => ("ann", 4_321),
            "up.jp" => ("..", 4_321),
            "deep.jp" => ("ann/../bob", 4_321),
            "hidden.jp" => (".ann", 4_321),
            _ => ("ann", 4_320),
        };
        let RowAnswer::Row(row) = row(&[("tenant", "t"), ("user", user)]) else {
            return None;
        };
        let uid = Some(uid);
        Some(RowAnswer::Row(Row { uid, ..row }))
    };
    if own == 0 {
        for (name, uid) in [("ann", 4_320), ("bob", 4_322)] {
            std::os::unix::fs::chown(directory.join(name), Some(uid), None).expect("root may");
        }
        let _far = FarEnd::begin(&fixture, answer);
        let (status, _, body) = ask(&fixture, "ann.jp", "/");
        assert_eq!((status, &*body), (200, "ann"));
        assert_eq!(
            ask(&fixture, "other.jp", "/").0,
            403,
            "they are not this user's"
        );
        for host in ["up.jp", "deep.jp", "hidden.jp"] {
            assert_eq!(ask(&fixture, host, "/").0, 503, "{host}");
        }
    }
    std::fs::remove_dir_all(&directory).expect("the directory");
}

#[test]
fn who_is_not_asked_for_in_time_may_come_again() {
    let text = format!("{HEAD}{ROWS}").replace("wait =", "questions = \"1/h\"\nwait =");
    let fixture = Fixture::of(generation(1, &text));
    let _far = FarEnd::begin(&fixture, |_| Some(row(&[("tenant", "ann")])));
    assert_eq!(
        ask(&fixture, "a.jp", "/").0,
        200,
        "one may be asked at once"
    );
    let exchange = fixture.ask("GET / HTTP/1.1\r\nHost: b.jp\r\n\r\n");
    assert_eq!(
        (exchange.reply.status(), exchange.record.reason),
        (503, "directory_busy")
    );
    let (_, fields, _) = reply(&exchange);
    assert!(fields.iter().any(|it| it == "Retry-After: 2"), "{fields:?}");
}

#[test]
fn a_directory_process_that_lies_or_babbles_ends_its_link_and_costs_no_known_name() {
    let fixture = Fixture::of(generation(1, &format!("{HEAD}{ROWS}")));
    let far = FarEnd::begin(&fixture, |host| match host {
        "a.jp" => Some(row(&[("tenant", "ann")])),
        _ => None,
    });
    assert_eq!(ask(&fixture, "a.jp", "/").0, 200);
    drop(far);
    let asker = link::start(Arc::clone(&fixture.shared.rows)).expect("a thread");
    let linked = || {
        let (link, there) = os::fdpass::packet_pair().expect("a pair");
        let names = vec!["d".to_owned()];
        asker.use_link(DirectoryLink { link, names });
        there
    };
    let there = linked();
    let mut outgoing = Outgoing::default();
    for (id, directory, host) in [(7, 0, "b.jp"), (9_999, 0, "a.jp"), (u64::MAX, u16::MAX, "")] {
        let answer = row(&[("tenant", "thief")]);
        let host = host.to_owned();
        let said = FromDirectory::Answer {
            id,
            directory,
            host,
            answer,
            age_ms: u64::MAX,
        };
        said.put(&mut outgoing).expect("it is bounded");
        let said = FromDirectory::Changed {
            directory: u16::MAX,
            host: None,
        };
        said.put(&mut outgoing).expect("it is bounded");
    }
    outgoing.send(there.as_fd()).expect("room");
    assert_eq!(
        ask(&fixture, "b.jp", "/").0,
        503,
        "nobody asked for what was said before"
    );
    assert_eq!(ask(&fixture, "a.jp", "/").2, "ann of a.jp: ");
    for babble in [&b"x"[..], &[os::fdpass::LAST], &[os::fdpass::LAST; 9_000]] {
        let there = linked();
        // It may have ended before all is said.
        let _ = os::fdpass::try_send(there.as_fd(), babble, &[]);
        let begun = std::time::Instant::now();
        while !os::net::wait_readable(&[there.as_fd()], None).is_ok_and(|_| ended(&there)) {
            assert!(
                begun.elapsed() < std::time::Duration::from_secs(20),
                "{babble:?}"
            );
        }
        assert_eq!(ask(&fixture, "a.jp", "/").2, "ann of a.jp: ");
    }
}

/// Whether the link has ended; what came over it before is dropped.
fn ended(link: &OwnedFd) -> bool {
    loop {
        match ToDirectory::try_recv(link.as_fd()) {
            Ok(Some(_)) => {}
            Ok(None) => return false,
            Err(_) => return true,
        }
    }
}

#[test]
fn scripts_read_the_row_and_nothing_where_the_configuration_has_the_site() {
    let script =
        "handler = { script = { code = \"Nginx.rputs Nagaya.row.inspect + Nagaya.site\" } }";
    let own = HEAD.replace("handler = { respond = { body = \"own\" } }", script);
    let rows = ROWS.replace(
        "handler = { respond = { body = \"$row.tenant of $host: ${row.note}\" } }",
        script,
    );
    let fixture = Fixture::of(generation(1, &format!("{own}{rows}")));
    let _far = FarEnd::begin(&fixture, |_| {
        Some(row(&[("tenant", "ann"), ("note", "#{1}")]))
    });
    let said = ask(&fixture, "a.jp", "/").2;
    assert_eq!(said, r##"{"tenant"=>"ann", "note"=>"\#{1}"}a.jp"##);
    assert_eq!(ask(&fixture, "own.jp", "/").2, "nilown.jp");
}

#[test]
fn what_is_forgotten_serves_nobody_and_is_not_forgotten_while_its_source_is_away() {
    let head = HEAD.replace("150ms", "60s");
    let fixture = Fixture::of(generation(1, &format!("{head}{ROWS}")));
    let _far = FarEnd::begin(&fixture, |_| Some(row(&[("tenant", "ann")])));
    assert_eq!(ask(&fixture, "a.jp", "/").0, 200);
    let shown = || hosts::show(&fixture.shared, "a.jp");
    assert!(
        shown().contains("makes a site of tenant ann"),
        "{}",
        shown()
    );
    fixture.shared.rows.directories.note_linked(false);
    for host in ["a.jp", "--all"] {
        let said = hosts::forget(&fixture.shared, host);
        assert!(
            said.starts_with("error: the source of d does not answer"),
            "{said}"
        );
    }
    assert_eq!(ask(&fixture, "a.jp", "/").0, 200);
    let said = hosts::forget(&fixture.shared, "b.jp");
    assert!(said.starts_with("nothing is kept of b.jp"), "{said}");
    hosts::forget(&fixture.shared, "a.jp --anyway");
    let shown = shown();
    assert!(
        shown.contains("serves any more") && !shown.contains("makes"),
        "{shown}"
    );
}

const TWO: &str = r#"
recorder = { directory = "{dir}/figures" }
[directories.d]
source = "sqlite:{dir}/d.db"
query = "SELECT * FROM t WHERE host = $host"
wait = "60s"
[directories.e]
source = "sqlite:{dir}/e.db"
query = "SELECT * FROM t WHERE host = $host"
wait = "60s"
[[sites]]
hosts = { directory = "d" }
tenant = "$row.tenant"
rules = [{ handler = { respond = { body = "d" } } }]
[[sites]]
hosts = { directory = "e" }
tenant = "e-$row.tenant"
rules = [{ handler = { respond = { body = "e" } } }]
"#;

#[test]
fn a_host_that_two_directories_have_is_seen_by_the_tenant_who_has_its_site() {
    let fixture = Fixture::of(generation_with_files(TWO, &[]));
    let _far = FarEnd::of(&fixture, &["d", "e"], |directory, host| {
        Some(match (directory, host) {
            (0, "both.jp") => row(&[("tenant", "ann")]),
            (0, _) => RowAnswer::Missing,
            (_, _) => row(&[("tenant", "bob")]),
        })
    });
    assert_eq!(ask(&fixture, "both.jp", "/").2, "d");
    assert_eq!(ask(&fixture, "other.jp", "/").2, "e");
    let serving = fixture.worker.serving();
    let seen = |tenant: &str| {
        let list = eyes::hosts_of(&fixture.shared, &serving.generation, tenant);
        list.seen.clone()
    };
    assert_eq!(seen("ann"), ["both.jp"]);
    assert_eq!(seen("e-bob"), ["other.jp"]);
    assert!(seen("bob").is_empty() && seen("e-ann").is_empty());
}
