//! What a configuration says of directories.

use config::model::{
    Directory, DirectoryChanges, DirectorySource, RowFormat, RowTrust, ServerAddress,
};

use crate::written;

const SITE: &str =
    "[[listen]]\naddress = \"127.0.0.1:8080\"\n[[sites]]\nhosts = [\"*\"]\nroot = \"/srv\"\n";
const QUERY: &str = "query = \"SELECT tenant FROM domains WHERE host = $host\"\n";

fn directory(lines: &str) -> Directory {
    let text = format!("{SITE}[directories.customers]\n{lines}");
    let mut model = written::model(&text);
    model.directories.remove(0)
}

fn problem(lines: &str) -> String {
    let text = format!("{SITE}[directories.customers]\n{lines}\n");
    written::problems(&written::sources(&text))
}

#[test]
fn a_directory_is_a_source_and_a_query() {
    let usual = directory(&format!(
        "source = \"mysql://nagaya@127.0.0.1/hosting?password_file=db\"\n{QUERY}"
    ));
    assert_eq!((usual.keep_ms, usual.missing_ms), (60_000, 10_000));
    assert_eq!((usual.stale_ms, usual.wait_ms), (7 * 86_400_000, 1_000));
    assert_eq!((usual.questions, usual.uid_min), ((200, 1_000), 1_000));
    assert_eq!(usual.trust, RowTrust::Signed);
    let DirectorySource::Mysql(server) = &usual.source else {
        panic!("{usual:?}");
    };
    assert_eq!(server.address.to_string(), "127.0.0.1:3306");
    assert_eq!((&*server.user, &*server.database), ("nagaya", "hosting"));
    assert_eq!(server.password_file.as_deref(), Some("/db".as_ref()));
}

#[test]
fn every_source_is_written_as_it_is_read() {
    let other = directory(&format!(
        "source = \"postgres://u@[::1]:6432/d?tls=on&ca=ca.pem\"\n{QUERY}changes = \"LISTEN domains\"\n\
         all = \"SELECT host FROM domains WHERE host > $after ORDER BY host LIMIT 9\"\nmemcached = \"cache.internal:11211\"\n\
         trust = \"unsigned\"\nkeep = \"5m\"\nmissing = \"1s\"\nstale = \"0s\"\nsnapshot = \"/srv/snapshot\"\nwait = \"2s\"\n\
         questions = \"30/m\"\nuid_min = 5000\nuser = \"rows\"\n"
    ));
    let server = other.source.server().expect("a server");
    assert!(server.tls && server.authorities.is_some());
    assert_eq!(server.address.to_string(), "[::1]:6432");
    assert_eq!(
        other.changes,
        Some(DirectoryChanges::Listen("domains".into()))
    );
    assert_eq!(other.questions, (30, 60_000));
    let socket = directory(&format!(
        "source = \"mysql://u@/d?socket=/run/db.sock\"\n{QUERY}changes = \"SELECT id, host FROM c WHERE id > $since\"\n"
    ));
    let server = socket.source.server().expect("a server");
    assert_eq!(server.address, ServerAddress::Unix("/run/db.sock".into()));
    assert!(matches!(socket.changes, Some(DirectoryChanges::Query(_))));
    let sqlite = directory(&format!("source = \"sqlite:rows.db\"\n{QUERY}"));
    assert_eq!(sqlite.source, DirectorySource::Sqlite("/rows.db".into()));
    for (name, format) in [("a.csv", RowFormat::Csv), ("a.jsonl", RowFormat::JsonLines)] {
        let file = directory(&format!("source = \"file:{name}\"\n"));
        let path = format!("/{name}").into();
        assert_eq!(file.source, DirectorySource::File(path, format));
    }
}

#[test]
fn a_user_that_is_a_column_is_no_word_of_postgresql() {
    let query = |columns: &str| {
        let query = format!("SELECT {columns} FROM d WHERE host = $host");
        format!("source = \"postgres://u@b/c\"\nquery = {query:?}\n")
    };
    for columns in [
        "username AS user",
        "username AS /* whose */ user",
        "d.user",
        "d . user",
        "\"user\"",
        "'user' AS tenant",
        "'\"' AS q, \"user\", '\"'",
        "'it''s user'",
        "E'\\' user'",
        "E'''user'",
        "a -- user\n",
        "a /* user, 'user */",
        "users, user_name, superuser",
    ] {
        directory(&query(columns));
    }
    for columns in [
        "User",
        "user",
        "'\"', user",
        "E'\\'', user",
        "'\\', user",
        "a -- '\n, user",
        "a /* ' */, user",
        "\"a'\", user",
    ] {
        let problem = problem(&query(columns));
        assert!(
            problem.contains("PostgreSQL's word"),
            "{columns}: {problem}"
        );
    }
    directory("source = \"mysql://u@b/c\"\nquery = \"SELECT user FROM d WHERE host = $host\"\n");
}

#[test]
fn what_could_not_be_asked_is_refused() {
    let asked = |lines: &str| format!("source = \"sqlite:a.db\"\n{QUERY}{lines}");
    for (lines, said) in [
        ("".to_owned(), "source"),
        ("source = \"sqlite:a.db\"".to_owned(), "query"),
        ("source = \"redis://a\"".to_owned(), "is no source"),
        ("source = \"file:a.txt\"".to_owned(), "`.csv` or `.jsonl`"),
        (
            format!("source = \"file:a.csv\"\n{QUERY}"),
            "says nothing of a file",
        ),
        (
            format!("source = \"mysql://a/b\"\n{QUERY}"),
            "names no user",
        ),
        (
            format!("source = \"mysql://a:secret@b/c\"\n{QUERY}"),
            "password_file",
        ),
        (
            format!("source = \"mysql://a@b/c?x=1\"\n{QUERY}"),
            "no option",
        ),
        (
            format!("source = \"postgres://a@b/c?ca=d\"\n{QUERY}"),
            "without TLS",
        ),
        (
            format!("source = \"postgres://a@b/c?socket=/d\"\n{QUERY}"),
            "not both",
        ),
        (
            "source = \"sqlite:a.db\"\nquery = \"SELECT '$host'\"".to_owned(),
            "does not ask for",
        ),
        (
            "source = \"sqlite:a.db\"\nquery = \"SELECT $hots\"".to_owned(),
            "`$host`",
        ),
        (
            "source = \"postgres://a@b/c\"\nquery = \"SELECT tenant, User FROM d WHERE host = $host\"".to_owned(),
            "PostgreSQL's word",
        ),
        (
            format!("source = \"postgres://a@b/c\"\n{QUERY}all = \"SELECT host, user FROM d\""),
            "PostgreSQL's word",
        ),
        (asked("changes = \"LISTEN a\""), "`postgres:` alone"),
        (asked("trust = \"unsigned\""), "without `memcached`"),
        (asked("questions = \"0/s\""), "from 1 to"),
        (asked("user = \"root\""), "root"),
        (
            asked("snapshot = \"a\"\n[directories.b]\nsource = \"file:a.csv\"\nsnapshot = \"a\""),
            "same snapshot",
        ),
        (
            asked("user = \"a\"\n[directories.b]\nsource = \"file:a.csv\""),
            "another `user`",
        ),
    ] {
        let problem = problem(&lines);
        assert!(problem.contains(said), "{lines}: {problem}");
    }
}

#[test]
fn sources_that_programs_of_sites_can_reach_are_warned_of() {
    let warned = |source: &str, handler: &str| {
        let text = format!(
            "{SITE}user = \"someone\"\nrules = [{{ handler = {{ {handler} }} }}]\n[directories.customers]\nsource = \"{source}\"\n{QUERY}"
        );
        written::warnings(&written::sources(&text)).contains("needs no password")
    };
    let open = "mysql://u@127.0.0.1/d";
    assert!(warned(open, "cgi = true"));
    assert!(!warned(open, "respond = { status = 204 }"));
    assert!(!warned(
        "mysql://u@127.0.0.1/d?password_file=a",
        "cgi = true"
    ));
    assert!(!warned("mysql://u@192.0.2.1/d", "cgi = true"));
}

#[test]
fn a_password_in_a_url_is_refused_and_shown_nowhere() {
    for source in [
        "mysql://nagaya:s3cret@127.0.0.1/hosting",
        "mysql://nagaya:s3cret@127.0.0.1",
        "mysql://nagaya:s3/cr@et@127.0.0.1/hosting",
        "postgres:nagaya:s3cret@127.0.0.1/hosting",
        "mysqll://nagaya:s3cret@127.0.0.1/hosting",
        "mysql://nagaya:s3cret@127.0.0.1/hosting?colour=red",
        "mysql://nagaya:s3'cr@et@127.0.0.1/hosting",
        "mysql://nagaya:***@127.0.0.1/hosting?password=s3cret&tls=on",
    ] {
        let told = problem(&format!("source = \"{source}\"\n{QUERY}"));
        assert!(told.contains("nagaya:***"), "{told}");
        for part in ["s3", "cret", "cr@et"] {
            assert!(!told.contains(part), "{told}");
        }
    }
    // What is no password stays.
    let told = problem(&format!(
        "source = \"mysql://nagaya@127.0.0.1:33/h/x\"\n{QUERY}"
    ));
    assert!(told.contains("mysql://nagaya@127.0.0.1:33/h/x"), "{told}");
}
