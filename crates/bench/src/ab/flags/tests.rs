//! What command lines come to.

use super::*;

fn wish(line: &str) -> Result<Wish, Refusal> {
    let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    parse(&words)
}

fn load(line: &str) -> Flags {
    match wish(line) {
        Ok(Wish::Load(flags)) => *flags,
        other => panic!("{line}: {other:?}"),
    }
}

fn refused(line: &str) -> Refusal {
    wish(line)
        .err()
        .unwrap_or_else(|| panic!("{line}: is taken"))
}

#[test]
fn values_stand_apart_or_attached_and_flags_together() {
    for line in [
        "-n 200 -c 10 -k -l http://a/",
        "-n200 -c10 -kl http://a/",
        "-kln200 -lc10 http://a/",
        "-klc 10 -n 200 -- http://a/",
        "http://a/ -n 200 -kl -c 10",
    ] {
        let flags = load(line);
        let numbers = (flags.requests, flags.connections);
        assert_eq!((numbers, &*flags.url), ((200, 10), "http://a/"), "{line}");
        assert!(flags.keep_alive && flags.any_length, "{line}");
    }
    let flags = load("http://a/");
    assert_eq!(
        (flags.requests, flags.connections, flags.threads),
        (1, 1, 1)
    );
    assert_eq!(flags.timeout, Duration::from_secs(30));
}

#[test]
fn a_time_limit_sets_the_number_of_requests_where_it_stands() {
    for (line, requests) in [
        ("-t 10 http://a/", 50_000),
        ("-n 7 -t 10 http://a/", 50_000),
        ("-t 10 -n 7 http://a/", 7),
    ] {
        assert_eq!(load(line).requests, requests, "{line}");
        assert_eq!(load(line).time_limit, Some(Duration::from_secs(10)));
    }
    assert_eq!(load("-t 0 http://a/").time_limit, None);
}

#[test]
fn the_last_cookie_wins_and_fields_and_passwords_add_up() {
    let flags = load("-C a=1 -C b=2 -H A:1 -H B:2 -P p:1 -A a:1 http://a/");
    assert_eq!(flags.cookie.as_deref(), Some("b=2"));
    assert_eq!(flags.fields, ["A:1", "B:2"]);
    let whose: Vec<_> = flags.credentials.iter().map(|(whose, _)| *whose).collect();
    assert_eq!(whose, [Credentials::Proxy, Credentials::Server]);
}

#[test]
fn the_order_of_methods_matters() {
    let flags = load("-p body -m PATCH http://a/");
    assert_eq!(flags.method.as_deref(), Some("PATCH"));
    assert!(flags.body.is_some());
    for line in [
        "-m PATCH -p body http://a/",
        "-i -p body http://a/",
        "-p body -u body http://a/",
        "-p body -i http://a/",
    ] {
        let refusal = refused(line);
        assert_eq!(refusal.status, 1, "{line}: {}", refusal.words);
    }
}

#[test]
fn attributes_turn_html_on() {
    let html = load("-x border=1 -z align=right http://a/")
        .html
        .expect("HTML");
    assert_eq!(
        (&*html.table, &*html.row, &*html.cell),
        ("border=1", "", "align=right")
    );
    assert_eq!(
        load("-w http://a/").html.expect("HTML").cell,
        "bgcolor=white"
    );
    assert!(load("http://a/").html.is_none());
}

#[test]
fn what_is_wrong_is_said_with_its_status() {
    for (line, status, words) in [
        ("", 22, "no URL is given"),
        ("-n 5", 22, "no URL is given"),
        ("http://a/ http://b/", 22, "2 URLs are given"),
        ("-Y http://a/", 22, "-Y is no flag"),
        ("http://a/ -n", 22, "-n wants a value: -n requests"),
        ("-c 0 http://a/", 22, "from 1 to 100000"),
        ("-c 100001 -n 200000 http://a/", 22, "from 1 to 100000"),
        ("-c 5 -n 4 http://a/", 22, "more than the 4 requests"),
        ("-c x http://a/", 22, "`x` is none"),
        ("-n -5 http://a/", 1, "`-5` is none"),
        ("-n 0 http://a/", 1, "from 1 to"),
        ("-n 99999999999 http://a/", 1, "from 1 to"),
        ("-n 999999999999999999999999 http://a/", 1, "is none"),
        ("-s 0 http://a/", 22, "at least a second"),
        ("-W 0 http://a/", 22, "threads from 1"),
        ("--rate 5 http://a/", 22, "--rate does not go with"),
        ("--pid x http://a/", 22, "`x` is none"),
        ("--listen 70000 http://a/", 22, "end at 65535"),
        ("http://a/ --json", 22, "--json wants a value"),
    ] {
        let refusal = refused(line);
        assert_eq!(refusal.status, status, "{line}: {}", refusal.words);
        assert!(refusal.words.contains(words), "{line}: {}", refusal.words);
    }
    let broken = OsString::from_vec(b"http://\xff/".to_vec());
    assert!(parse(&[broken]).is_err_and(|refusal| refusal.words.contains("not UTF-8")));
}

#[test]
fn usage_and_version_go_before_what_is_wrong_after_them() {
    assert!(matches!(wish("-h -Y"), Ok(Wish::Usage)));
    assert!(matches!(wish("-kV -Y"), Ok(Wish::Version)));
}

#[test]
fn extras_take_their_value_either_way() {
    let extras = load("--pid=7 --listen 80 --json a --html=b http://a/").extras;
    assert_eq!((extras.pid, extras.listen), (Some(7), Some(80)));
    assert!(extras.json.is_some() && extras.html.is_some());
}

#[test]
fn the_usage_names_every_flag_within_a_line() {
    let usage = usage("ab");
    for (letter, ..) in &FLAGS {
        assert!(usage.contains(&format!("    -{letter} ")), "{letter}");
    }
    let long: Vec<_> = usage.lines().filter(|line| line.len() > 100).collect();
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn the_next_word_belongs_to_the_last_flag_alone() {
    for (cluster, expected) in [
        ("n", true),
        ("kn", true),
        ("n5", false),
        ("k", false),
        ("nk", false),
        ("", false),
    ] {
        assert_eq!(takes_next_word(cluster.as_bytes()), expected, "{cluster}");
    }
}
